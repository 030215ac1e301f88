"""A bucket into which processes of the installed connector write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from integration_tests.connector import Connector
from unit_tests.lake.buckets import Bucket
from unit_tests.lake.contents import LakeContents


@dataclass
class ProcessLake(LakeContents):
    """One bucket and a local directory for what belongs to it."""

    _connectors: int = field(default=0, init=False)

    @classmethod
    def of(cls, bucket: Bucket, directory: Path) -> ProcessLake:
        return cls(bucket.settings, directory)

    def connector(self, endpoint: str | None = None, environment: Mapping[str, str] | None = None, **options: Any) -> Connector:
        """A connector that writes here, through another endpoint such as a proxy's if one is given."""
        self._connectors += 1
        bucket = self.bucket.through(endpoint) if endpoint else self.bucket
        return Connector(self.directory / f"connector-{self._connectors}", bucket, options, environment or {})
