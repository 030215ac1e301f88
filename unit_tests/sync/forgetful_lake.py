"""A lake with a person in it, and the command that forgets this person: what is left, in any version of any object."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.cli.forget_command import Request, forget, parse_cascade
from destination_s3_spark.cli.maintenance import workshop
from destination_s3_spark.delta_log.log import DeltaLog
from destination_s3_spark.storage.client import s3_client
from destination_s3_spark.sync import runtime
from destination_s3_spark.tables.configured import column_rules
from destination_s3_spark.tables.forgetting.wanted import Subject
from unit_tests.lake import messages
from unit_tests.lake.inline_engine import InlineEngine
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import JsonObject, complete, records, schema_of, state, stream
from unit_tests.sync.hidden_values import in_other_forms, unpacked
from unit_tests.sync.process_ends import FATES, ends_at

NUMBER = 7_310_294_718_225
"""The id of the person to forget. No other value has its bytes."""
MARK = "qxyjane"
"""Part of all other values of the person."""
SECRET = "0123456789abcdef" * 2
WAITING = {"merge": [{"stream": "users", "at_least_every_hours": 24, "when_changed_percent": 1_000}]}


def catalog(
    mode: str,
    key: Sequence[str] = ("id",),
    properties: Mapping[str, Any] | None = None,
    *,
    cdc: bool = True,
    generation: int | None = 1,
    minimum: int | None = 0,
) -> JsonObject:
    properties = {
        **(properties or {}),
        "id": {"type": "integer"},
        "mail": {"type": "string"},
        "price": {"type": "number"},
        "tags": {"type": "array", "items": {"type": "string"}},
        **({"_ab_cdc_deleted_at": {"type": "string", "format": "date-time"}} if cdc else {}),
    }
    ids: dict[str, Any] = {"generation": generation, "minimum_generation": minimum, "sync_id": generation}
    return messages.catalog(stream(schema=schema_of(properties), mode=mode, key=key, **ids))


def person(version: int, **other: Any) -> dict[str, Any]:
    return {"id": NUMBER, "mail": f"{MARK}{version}@example.org", "price": 1.5, "tags": [MARK], f"{MARK}-undeclared": 1, **other}


def somebody(number: int, version: int = 1) -> dict[str, Any]:
    return {"id": number, "mail": f"{number}@{version}", "price": number / 4, "tags": [str(number)]}


@dataclass
class ForgetfulLake(Lake):
    syncs: int = 0

    def go(self, mode: str, data: Iterable[Mapping[str, Any]], **configured: Any) -> None:
        """Sync rows of the users, under a catalog of this mode."""
        self.syncs += 1
        self.sync(catalog(mode, **configured), [records(data, emitted_at=self.syncs), state(self.syncs), complete()])

    def forget(self, *wanted: Mapping[str, Any], dry_run: bool = False, forever: bool = False) -> dict[str, Any]:
        """Run the command on the users, and return its record."""
        done = self.forget_all(*wanted, dry_run=dry_run, forever=forever)
        return done["users"] if done else {}

    def forget_all(
        self, *wanted: Mapping[str, Any], cascade: Any = (), dry_run: bool = False, forever: bool = False
    ) -> dict[str, dict[str, Any]]:
        """Run the command on the users, and return its records by stream."""
        factory = self.factory()
        every = factory.find()
        links = parse_cascade(json.dumps(cascade).encode(), lambda name: factory.choose(every, name, None))
        subjects = [Subject.parse(json.dumps(one).encode(), "number 1") for one in wanted]
        request = Request(subjects, dry_run, column_rules(self.config()), links, forever)
        kept: list[dict[str, Any]] = []
        with patch.object(runtime, "engine_of", lambda *_: InlineEngine()), workshop(factory, every) as tools:
            forget(tools, factory.choose(every, "users", None), request, kept.append)
        return {one["stream"]["name"]: one for one in kept}

    def live_files(self) -> LiveFiles:
        return self.own_chain().live_files()

    def rows_of(self, kind: FileKind = FileKind.FINAL) -> list[dict[str, Any]]:
        """The rows of the live files of a kind, by id."""
        return sorted((row for _, rows in self.rows_by_key(kind) for row in rows), key=lambda row: row.get("id") or 0)

    def rows_by_key(self, kind: FileKind = FileKind.FINAL) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        for file in self.live(kind):
            yield file.key, pq.read_table(pa.BufferReader(self.store.get(file.key))).to_pylist()

    def check(self) -> None:
        assert self.verified().problems == ()

    def check_delta(self) -> None:
        """Check that the Delta table has the files of the table, all of them once."""
        log = DeltaLog(self.store, "lake/users/").read()
        assert log is not None
        assert sorted(f"lake/users/{path}" for path in log.adds) == sorted(file.key for file in self.live(FileKind.FINAL))

    def keep_versions(self) -> None:
        """Let the bucket keep all versions of its objects."""
        self._client.put_bucket_versioning(Bucket=self.settings.bucket, VersioningConfiguration={"Status": "Enabled"})

    def versions(self) -> Iterator[tuple[str, bytes]]:
        """Every version of every object."""
        for page in self._client.get_paginator("list_object_versions").paginate(Bucket=self.settings.bucket):
            for one in page.get("Versions", []):
                answer = self._client.get_object(Bucket=self.settings.bucket, Key=one["Key"], VersionId=one["VersionId"])
                yield f"{one['Key']} ({one['VersionId']})", answer["Body"].read()

    def holding(self) -> list[str]:
        """The versions of objects that have a value of the person, in any form."""
        return [name for name, body in self.versions() if _holds(name, body)]

    @property
    def _client(self) -> Any:
        return s3_client(self.settings)


@lru_cache(4096)
def _holds(name: str, body: bytes) -> bool:
    encoded = (NUMBER + 2**63).to_bytes(8, "big")
    marks = [MARK.encode(), str(NUMBER).encode(), NUMBER.to_bytes(8, "little")[:6], encoded, encoded.hex().encode()]
    marks += [form for mark in marks[:2] for form in (mark.hex().encode(), *(base64.b64encode(b"x" * at + mark)[4:-4] for at in range(3)))]
    return any(mark in form for content in unpacked(name, body) for form in in_other_forms(content) for mark in marks)


def history(lake: ForgetfulLake, mode: str) -> None:
    """Syncs after which the person is in files of every kind."""
    lake.go(mode, [*(somebody(number) for number in range(40)), person(1)])
    lake.go(mode, [somebody(3, 2), person(2)])
    if mode == "append_dedup":
        lake.go(mode, [person(3, _ab_cdc_deleted_at="2026-01-01T00:00:00Z"), somebody(41, 3)])
        lake.options = {**lake.options, "tables": {**lake.options.get("tables", {}), **WAITING}}
        lake.go(mode, [person(4), somebody(5, 4)])
        lake.go(mode, [person(5), somebody(6, 5), somebody(5, 5)])


def dying_everywhere(
    lake: ForgetfulLake,
    start: int,
    step: int = 7,
    command: Callable[[], object] | None = None,
    again: Callable[[int], object] = lambda _: None,
) -> None:
    """Run a command that dies before or after every call, of these chances each `step`th from `start` on, until it lives.

    The command forgets the person if no other one is given. `again` is called after each death.
    """
    run, at = command or (lambda: lake.forget({"id": NUMBER})), start
    while True:
        with ends_at(lake, at // 2 + 1, FATES[at % 2]) as seen:
            run()
        if len(seen) <= at // 2:
            return
        at += step
        again(at)


def forgotten_wherever_it_dies(lake: ForgetfulLake, start: int, again: Callable[[int], object] = lambda _: None) -> None:
    """Forget the person with a command that dies, and check that it did."""
    dying_everywhere(lake, start, again=again)
    lake.forget({"id": NUMBER})
    assert lake.holding() == []
    lake.check()
