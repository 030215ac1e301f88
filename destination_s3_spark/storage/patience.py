"""Retries against a failing store: one time budget over all requests, whichever layer repeats them.

botocore's own retries count attempts. Eight attempts end within seconds if connections are refused, and take eight minutes if nothing
answers. A caller that repeats the call also starts the count again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from botocore.exceptions import HTTPClientError
from botocore.retries.standard import ExponentialBackoff, RetryEventAdapter, StandardRetryConditions, ThrottlingErrorDetector

from destination_s3_spark.storage.settings import ClientLimits

LONGEST_WAIT_S = 10
"""Longest pause between two attempts in seconds, so that a recovered store is noticed soon."""
ATTEMPTS_AT_500 = 8
"""Attempts of a request answered with 500. Ceph and others answer so permanently, for example for an aborted upload."""
CALM_S = 30.0
"""Seconds without a failure after which the next failure counts as new trouble."""

_ASKED = "destination_s3_spark.asked"


class OutOfPatience(HTTPClientError):
    """The request was not sent: similar requests have failed for longer than the budget."""

    fmt = "the store has been in trouble for too long"


@dataclass(slots=True)
class _Asked:
    """A call in progress: its scopes (widest first), its start, and the start of its current attempt."""

    scopes: tuple[str, ...]
    began: float
    attempt: float


@dataclass(frozen=True, slots=True)
class _Trouble:
    """A period in which requests failed and none succeeded: the time of the first failure and of the last."""

    since: float
    last: float


class Patience:
    """Retry policy of a client: decides whether a failed request is sent again. Thread-safe.

    Trouble is recorded for the store, for each kind of request and for each object: a store may answer GETs but no PUTs, or fail for one
    key. A response ends the trouble. Once trouble has exceeded the budget, requests of that kind or for that object fail without being
    sent. Layers that repeat a call, and successive tasks, thus do not add up their waiting. Requests of other kinds get one attempt each.
    """

    def __init__(self, limits: ClientLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._budget_s = limits.patience_s
        self._attempt_s = limits.read_timeout_s
        self._clock = clock
        self._events = RetryEventAdapter()
        self._conditions = StandardRetryConditions(limits.attempts)
        self._backoff = ExponentialBackoff(LONGEST_WAIT_S, throttling_detector=ThrottlingErrorDetector(self._events))
        self._trouble: dict[str, _Trouble] = {}

    def install(self, client: Any) -> None:
        """Take over retry decisions from botocore, whose own retries must be off."""
        service = client.meta.service_model.service_id.hyphenize()
        client.meta.events.register_first(f"before-call.{service}", self._begin)
        client.meta.events.register_last(f"needs-retry.{service}", self._wait_before_retry)

    def _begin(self, model: Any, params: dict[str, Any], **_: Any) -> None:
        now = self._clock()
        store, *own = ("the store", model.name, f"{model.name} {params['url_path']}")
        troubles = self._troubles(own, now)
        if troubles and self._is_over(min(trouble.since for trouble in troubles.values()), now):
            self._trouble |= {scope: _Trouble(trouble.since, now) for scope, trouble in troubles.items()}
            raise OutOfPatience
        params["context"][_ASKED] = _Asked((store, *own), now, now)

    def _wait_before_retry(self, request_dict: dict[str, Any], **event: Any) -> float | None:
        """Return the seconds until the next attempt, or None for no further attempt."""
        asked: _Asked = request_dict["context"][_ASKED]
        context = self._events.create_retry_context(request_dict=request_dict, **event)
        wait = None
        if self._conditions.is_retryable(context):
            internal_error = context.http_response is not None and context.http_response.status_code == HTTPStatus.INTERNAL_SERVER_ERROR
            since = asked.began if internal_error else self._note_failure(asked)
            delay = self._backoff.delay_amount(context)
            attempt = self._clock() + delay
            if not self._is_over(since, attempt) and not (internal_error and context.attempt_number >= ATTEMPTS_AT_500):
                wait, asked.attempt = delay, attempt
        elif event["caught_exception"] is None:
            for scope in asked.scopes:
                self._trouble.pop(scope, None)
        self._events.adapt_retry_response_from_context(context)
        return wait

    def _note_failure(self, asked: _Asked) -> float:
        """Record a failed attempt and return the start of its trouble. In a narrower scope trouble starts no later than in wider ones."""
        troubles = self._troubles(asked.scopes, asked.attempt)
        now, since = self._clock(), asked.attempt
        for scope in asked.scopes:
            if scope in troubles:
                since = min(since, troubles[scope].since)
            self._trouble[scope] = _Trouble(since, now)
        return min(since, asked.began)

    def _troubles(self, scopes: Sequence[str], now: float) -> dict[str, _Trouble]:
        known = {scope: self._trouble.get(scope) for scope in scopes}
        return {scope: trouble for scope, trouble in known.items() if trouble is not None and now - trouble.last < CALM_S}

    def _is_over(self, since: float, attempt: float) -> bool:
        """Return whether an attempt at that time could end after the budget."""
        return attempt + self._attempt_s - since > self._budget_s
