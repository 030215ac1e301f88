"""What the chain of the only table under a prefix says of its files and of its last merge, read over plain S3."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

Json = dict[str, Any]
BLOCK_KEY = re.compile(r"/chain/\d{20}\.json$")


@dataclass(frozen=True, slots=True)
class Files:
    """Some files: how many, their rows and bytes."""

    count: int
    rows: int
    bytes: int

    @classmethod
    def of(cls, entries: list[Json], kind: str) -> Files:
        """Those of a kind among the entries of a block."""
        chosen = [entry for entry in entries if entry["kind"] == kind]
        return cls(len(chosen), sum(entry["rows"] for entry in chosen), sum(entry["bytes"] for entry in chosen))


@dataclass(frozen=True, slots=True)
class Merge:
    """A merge: final files `before`, those that were `removed` and `written`, and the `runs` of sorted rows that came into them."""

    before: Files
    removed: Files
    written: Files
    runs: Files


@dataclass(frozen=True, slots=True)
class TableLog:
    """The events of the chain under `prefix/`, and the way to the files."""

    client: S3Client
    bucket: str
    prefix: str

    def last_merge(self) -> Merge:
        """The last MergeData of the chain, which has one."""
        events = self._events()
        number = max(number for number, event in enumerate(events) if event["kind"] == "MergeData")
        merge = events[number]
        runs = Files.of(merge["filesRemoved"], "delta")
        return Merge(
            Files.of(_final(events[:number]), "final"), Files.of(merge["filesRemoved"], "final"), Files.of(merge["files"], "final"), runs
        )

    def bytes_written(self) -> int:
        """The bytes of all files that any block added: runs, final files, tombstones and merge states."""
        return sum(file["bytes"] for event in self._events() for file in event.get("files", ()))

    def files(self) -> Files:
        """The final files of today."""
        return Files.of(_final(self._events()), "final")

    def download(self, directory: Path) -> None:
        """Copy the table's final files into a new directory."""
        directory.mkdir()
        for number, file in enumerate(_final(self._events())):
            self.client.download_file(self.bucket, file["key"], str(directory / f"{number:05}.parquet"))

    def clear(self) -> None:
        """Delete everything under the prefix, so that the server's memory does not fill up."""
        for key in self._keys():
            self.client.delete_object(Bucket=self.bucket, Key=key)

    def _events(self) -> list[Json]:
        blocks = sorted(key for key in self._keys() if BLOCK_KEY.search(key))
        bodies = (self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read() for key in blocks)
        return [json.loads(body)["event"] for body in bodies]

    def _keys(self) -> Iterator[str]:
        for page in self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=f"{self.prefix}/"):
            yield from (item["Key"] for item in page.get("Contents", []))


def _final(events: list[Json]) -> list[Json]:
    """The final files that are live after these events."""
    live: dict[str, Json] = {}
    for event in events:
        for file in event.get("filesRemoved", ()):
            live.pop(file["key"], None)
        live.update((file["key"], file) for file in event.get("files", ()) if file["kind"] == "final")
    return list(live.values())
