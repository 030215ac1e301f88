"""The destination in this process, without Spark. It dies by losing the store: from a call on, nothing reaches S3 any more."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from destination_s3_spark.errors import SyncError
from destination_s3_spark.protocol.catalog import parse_catalog
from destination_s3_spark.storage.settings import AccessKey, ClientLimits, S3Settings
from destination_s3_spark.sync.batches import Limits
from integration_tests.s3_proxy import Fault, S3Proxy, When
from unit_tests.lake.buckets import REGION, Bucket
from unit_tests.sync.inline_lake import LARGE, InlineLake

SMALL = Limits(batch_bytes=300, age_s=3600, spool_bytes=600)
"""Batches of a few rows, which are committed while the input goes on."""
IMPATIENT = ClientLimits(patience_s=0.1, attempts=1, read_timeout_s=10)


@dataclass(frozen=True, slots=True)
class Death:
    """The call at which the destination dies, and whether the store still sees it."""

    call: int
    when: When


@dataclass(frozen=True, slots=True)
class Ended:
    """What a destination leaves behind: the states that it acknowledged, as it sent them, and its error; `killed` ones have any."""

    states: Sequence[Mapping[str, Any]]
    error: SyncError | None
    killed: bool


@dataclass
class InlineDestination:
    """Syncs into one bucket, through a proxy when it is to die."""

    bucket: Bucket
    directory: Path
    proxy: S3Proxy
    runs: int = 0

    def write(self, catalog: Mapping[str, Any], delivered: Sequence[bytes], death: Death | None = None, *, in_small_batches: bool) -> Ended:
        """One run of `write` with these lines on stdin."""
        self.runs += 1
        killed: list[bool] = []
        self.proxy.forget()
        if death is not None:
            self.proxy.inject(Fault(status=0, when=death.when, skip=death.call, times=1, effect=lambda _: killed.append(True)))
            self.proxy.inject(Fault(status=0, only=lambda _: bool(killed)))
        directory = self.directory / f"run-{self.runs}"
        directory.mkdir(parents=True)
        lake = InlineLake(self._settings(dies=death is not None), directory, SMALL if in_small_batches else LARGE)
        error: SyncError | None = None
        try:
            lake.sync(parse_catalog(json.dumps(catalog).encode()), delivered)
        except SyncError as failure:
            error = failure
        return Ended([message["state"] for message in lake.states], error, bool(killed))

    def _settings(self, *, dies: bool) -> S3Settings:
        server = self.bucket.server
        settings = S3Settings(self.bucket.name, REGION, server.endpoint, AccessKey(server.access_key, server.secret_key))
        return replace(settings, endpoint=self.proxy.endpoint, limits=IMPATIENT) if dies else settings
