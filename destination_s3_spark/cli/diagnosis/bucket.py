"""Diagnosis of the bucket: the endpoint, the clock, and every permission that a sync needs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from destination_s3_spark.cli.diagnosis.finding import Finding, Verdict
from destination_s3_spark.errors import SyncError
from destination_s3_spark.storage.paths import PathTemplate
from destination_s3_spark.storage.probes import Answer, ask
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.sync.check import CHECK_LIMITS, Step, checking

_PART = "bucket"
SKEW_DOUBTFUL_S = 60
SKEW_BAD_S = 15 * 60
"""AWS refuses requests that are signed with a time further away than this."""


def look_at_bucket(settings: S3Settings, template: PathTemplate) -> Iterator[Finding]:
    """Yield a finding for the endpoint, the clock, and each step of the connection check."""
    place = settings.endpoint or "AWS S3"
    try:
        answer = ask(settings, CHECK_LIMITS)
    except SyncError as error:
        yield Finding(_PART, "endpoint", Verdict.BAD, error.message)
        return
    yield Finding(_PART, "endpoint", Verdict.GOOD, f"{place} answered in {answer.seconds * 1000:.0f} ms")
    yield _clock(answer)
    with checking(settings, template) as steps:
        yield from _steps(steps)


def _clock(answer: Answer) -> Finding:
    ahead = answer.ahead_s
    if ahead is None:
        return Finding(_PART, "clock", Verdict.SKIPPED, "the store's answer has no date to compare with")
    if abs(ahead) < SKEW_DOUBTFUL_S:
        return Finding(_PART, "clock", Verdict.GOOD, "this machine and the store agree")
    side = "ahead of" if ahead > 0 else "behind"
    verdict = Verdict.BAD if abs(ahead) >= SKEW_BAD_S else Verdict.DOUBTFUL
    return Finding(_PART, "clock", verdict, f"this machine is {abs(ahead):,.0f} s {side} the store. Set the clock right (NTP).")


def _steps(steps: Sequence[Step]) -> Iterator[Finding]:
    failed: set[str] = set()
    for step in steps:
        missing = failed.intersection(step.after)
        if missing:
            failed.add(step.name)
            yield Finding(_PART, step.action, Verdict.SKIPPED, "needs what is bad above")
            continue
        begun = time.monotonic()
        try:
            step.run()
        except SyncError as error:
            failed.add(step.name)
            yield Finding(_PART, step.action, Verdict.BAD, error.message)
        else:
            yield Finding(_PART, step.action, Verdict.GOOD, f"{(time.monotonic() - begun) * 1000:.0f} ms")
