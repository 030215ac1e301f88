"""Forgetting of rows: afterwards no byte under the bucket path has them, in no version of an object, and all other rows are there."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.client import BaseClient
from botocore.exceptions import ClientError

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.cli.forget_command import Request, forget
from destination_s3_spark.cli.maintenance import Workshop
from destination_s3_spark.delta_log.log import DeltaLog
from destination_s3_spark.errors import ConfigError, SyncError, TransientError
from destination_s3_spark.protocol.catalog import Catalog, parse_catalog
from destination_s3_spark.storage.client import s3_client
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.configured import column_rules
from destination_s3_spark.tables.factory import TableFactory
from destination_s3_spark.tables.forgetting.course import Forgetting
from destination_s3_spark.tables.forgetting.wanted import Subject
from destination_s3_spark.tables.updates.resources import Resources, TaskResources
from destination_s3_spark.tables.updates.steps import Update
from destination_s3_spark.tables.verification import verify
from unit_tests.conftest import Reply, S3Proxy
from unit_tests.examples import one_of, quick_first
from unit_tests.sync.hidden_values import in_other_forms, unpacked
from unit_tests.sync.inline_lake import InlineEngine, InlineLake, line, state, status

NUMBER = 7_310_294_718_225
"""The id of the person to forget. No other value has its bytes."""
MARK = "qxyjane"
"""Part of all other values of the person."""
SECRET = "0123456789abcdef" * 2
WAITING = {"merge": [{"stream": "users", "at_least_every_hours": 24, "when_changed_percent": 1_000}]}


def catalog(
    mode: str,
    key: Iterable[str] = ("id",),
    properties: dict[str, Any] | None = None,
    *,
    cdc: bool = True,
    generation: int = 1,
    minimum: int = 0,
) -> Catalog:
    properties = {
        **(properties or {}),
        "id": {"type": "integer"},
        "mail": {"type": "string"},
        "price": {"type": "number"},
        "tags": {"type": "array", "items": {"type": "string"}},
        **({"_ab_cdc_deleted_at": {"type": "string", "format": "date-time"}} if cdc else {}),
    }
    entry = {
        "stream": {"name": "users", "json_schema": {"type": "object", "properties": properties}, "supported_sync_modes": ["incremental"]},
        "sync_mode": "incremental",
        "destination_sync_mode": mode,
        "primary_key": [[name] for name in key],
        "cursor_field": [],
        "generation_id": generation,
        "minimum_generation_id": minimum,
        "sync_id": generation,
    }
    return parse_catalog(json.dumps({"streams": [entry]}).encode())


def person(version: int, **other: Any) -> dict[str, Any]:
    return {"id": NUMBER, "mail": f"{MARK}{version}@example.org", "price": 1.5, "tags": [MARK], f"{MARK}-undeclared": 1, **other}


def somebody(number: int, version: int = 1) -> dict[str, Any]:
    return {"id": number, "mail": f"{number}@{version}", "price": number / 4, "tags": [str(number)]}


@dataclass
class Lake(InlineLake):
    syncs: int = 0

    def go(self, mode: str, data: Iterable[dict[str, Any]], **configured: Any) -> None:
        self.syncs += 1
        messages = (line({"type": "RECORD", "record": {"stream": "users", "emitted_at": self.syncs, "data": one}}) for one in data)
        self.sync(catalog(mode, **configured), [*messages, state(self.syncs), status("COMPLETE")])

    def factory(self) -> TableFactory:
        return TableFactory(self.config(), S3Store(self.settings), datetime.now(UTC))

    def forget(self, *wanted: dict[str, Any], dry_run: bool = False, forever: bool = False) -> dict[str, Any]:
        """Run the command on the table, and return its record."""
        factory = self.factory()
        every = factory.find()
        (found,) = every.tables
        subjects = [Subject.parse(json.dumps(one).encode(), "number 1") for one in wanted]
        records: list[dict[str, Any]] = []
        with ThreadPoolExecutor(2) as pool:
            resources = Resources(TaskResources(self.settings, 2**26), 2, None)
            engine: Any = InlineEngine()
            tools = Workshop(replace(factory, map_files=pool.map), engine, pool, resources, factory.publishers(every))
            forget(tools, [found], Request(subjects, dry_run, column_rules(self.config()), forever=forever), records.append)
        return records[0] if records else {}

    def live(self) -> LiveFiles:
        factory = self.factory()
        (found,) = factory.find().tables
        return factory.read_chain(found).live_files()

    def rows(self, kind: FileKind = FileKind.FINAL) -> list[dict[str, Any]]:
        store = S3Store(self.settings)
        found = [pq.read_table(pa.BufferReader(store.get(file.key))).to_pylist() for file in self.live().of(kind)]
        return sorted((row for rows in found for row in rows), key=lambda row: row.get("id") or 0)

    def rows_by_key(self) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        store = S3Store(self.settings)
        for file in self.live().of(FileKind.FINAL):
            yield file.key, pq.read_table(pa.BufferReader(store.get(file.key))).to_pylist()

    def verify(self) -> None:
        factory = self.factory()
        (found,) = factory.find().tables
        assert verify(factory.store, found).problems == ()

    def verify_delta(self) -> None:
        """Check that the Delta table has the files of the table, all of them once."""
        log = DeltaLog(S3Store(self.settings), "lake/users/").read()
        assert log is not None
        assert sorted(f"lake/users/{path}" for path in log.adds) == sorted(file.key for file in self.live().of(FileKind.FINAL))

    @property
    def client(self) -> Any:
        return s3_client(replace(self.settings, bucket=""))

    def versioned(self) -> None:
        self.client.put_bucket_versioning(Bucket=self.settings.bucket, VersioningConfiguration={"Status": "Enabled"})

    def versions(self) -> Iterator[tuple[str, bytes]]:
        """Every version of every object."""
        for page in self.client.get_paginator("list_object_versions").paginate(Bucket=self.settings.bucket):
            for one in page.get("Versions", []):
                answer = self.client.get_object(Bucket=self.settings.bucket, Key=one["Key"], VersionId=one["VersionId"])
                yield f"{one['Key']} ({one['VersionId']})", answer["Body"].read()

    def holding(self) -> list[str]:
        """The versions of objects that have a value of the person, in any form."""
        encoded = (NUMBER + 2**63).to_bytes(8, "big")
        marks = [MARK.encode(), str(NUMBER).encode(), NUMBER.to_bytes(8, "little")[:6], encoded, encoded.hex().encode()]
        marks += [
            form for mark in marks[:2] for form in (mark.hex().encode(), *(base64.b64encode(b"x" * at + mark)[4:-4] for at in range(3)))
        ]
        return [
            name
            for name, body in self.versions()
            if any(mark in form for content in unpacked(name, body) for form in in_other_forms(content) for mark in marks)
        ]


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> Lake:
    return Lake(s3_settings, tmp_path)


def history(lake: Lake, mode: str) -> None:
    """Syncs after which the person is in files of every kind."""
    lake.go(mode, [*(somebody(number) for number in range(40)), person(1)])
    lake.go(mode, [somebody(3, 2), person(2)])
    if mode == "append_dedup":
        lake.go(mode, [person(3, _ab_cdc_deleted_at="2026-01-01T00:00:00Z"), somebody(41, 3)])
        lake.options = {**lake.options, "tables": {**lake.options.get("tables", {}), **WAITING}}
        lake.go(mode, [person(4), somebody(5, 4)])
        lake.go(mode, [person(5), somebody(6, 5), somebody(5, 5)])


@pytest.mark.parametrize("raw", [True, False], ids=["raw", "no raw"])
@pytest.mark.parametrize("mode", ["append", "append_dedup"])
@pytest.mark.parametrize("wanted", quick_first([{"mail": f"{MARK}2@example.org"}, {"id": NUMBER}]))
def test_no_byte_of_a_forgotten_person_stays(lake: Lake, mode: str, raw: bool, wanted: dict[str, Any]) -> None:
    if mode == "append" and "mail" in wanted:
        wanted = {"price": 1.5, "id": NUMBER}
    if mode == "append_dedup" and not raw and "mail" in wanted:
        wanted = {"mail": f"{MARK}4@example.org"}  # which a waiting row still has
    lake.versioned()
    lake.options = {"tables": {"raw_tables": raw}, "publish": {"keep_replaced_minutes": 60, "delta": raw}}
    history(lake, mode)
    kinds = {FileKind.FINAL} | ({FileKind.RAW} if raw else set())
    kinds |= {FileKind.DELTA, FileKind.TOMBSTONE} if mode == "append_dedup" else set()
    assert {file.kind for file in lake.live().files} == kinds
    assert len(lake.holding()) > len(kinds)
    others = {kind: [row for row in lake.rows(kind) if MARK not in repr(row)] for kind in (FileKind.FINAL, FileKind.RAW)}

    dry = lake.live()
    assert lake.forget(wanted, dry_run=True) == {}
    assert lake.live() == dry
    record = lake.forget(wanted)

    assert lake.holding() == []
    assert {kind: lake.rows(kind) for kind in others} == others
    lake.verify()
    assert record["rows"]["raw"] == (len([0, 1, 2, 3, 4] if mode == "append_dedup" else [0, 1]) if raw else 0)
    assert MARK not in json.dumps(record)
    assert str(NUMBER) not in json.dumps(record)

    lake.options = {"tables": {"raw_tables": raw}, "publish": {"delta": raw}}
    if raw:
        lake.verify_delta()
    lake.go(mode, [somebody(50)])
    assert lake.holding() == []
    lake.verify()
    mails = {row["id"]: row["mail"] for row in lake.rows()}
    assert mails.keys() == {*range(40), 50} | ({41} if mode == "append_dedup" else set())
    if raw:
        lake.verify_delta()
        before = lake.rows()
        lake.rebuild()
        assert [row["mail"] for row in lake.rows()] == [row["mail"] for row in before]
        lake.verify()


def test_a_key_that_names_a_field_twice_is_that_field(lake: Lake) -> None:
    lake.go("append_dedup", [person(1), somebody(1)], key=("id", "id"))
    lake.forget({"id": NUMBER})
    assert lake.holding() == []
    assert [row["id"] for row in lake.rows()] == [1]


def test_a_table_without_such_rows_is_not_written_to(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    lake.go("append_dedup", [somebody(1), somebody(2)])
    before = sorted(lake.versions())
    record = lake.forget({"id": NUMBER})
    assert sorted(lake.versions()) == before
    assert set(record["rows"].values()) == {0}
    assert "forgot 0 rows" in capsys.readouterr().out


@pytest.mark.parametrize("mail", ["a", "b"])
def test_rows_whose_key_is_null_or_does_not_fit_are_told_apart(lake: Lake, mail: str) -> None:
    others: list[dict[str, Any]] = [{**somebody(1), "id": "word"}, {**somebody(2), "id": None}, somebody(3)]
    unfit = {**person(1), "id": "other" if mail == "a" else None, "mail": mail, "price": 7}
    lake.go("append_dedup", [*others, unfit] if mail == "a" else [others[0], others[2], unfit])
    before = [row["mail"] for row in lake.rows() if row["mail"] != mail]
    assert lake.forget({"mail": mail})["rows"]["final"] == 1
    assert [row["mail"] for row in lake.rows()] == before
    lake.verify()


def test_values_are_found_as_rules_made_them(lake: Lake) -> None:
    lake.go("append", [person(1), somebody(1)])
    rules = [{"stream": "users", "column": "mail", "action": "hash"}]
    lake.options = {"tables": {"columns": rules, "hash_secret": SECRET}}
    lake.go("append", [{"id": 8, "mail": f"{MARK}1@example.org"}, somebody(2)])
    assert lake.forget({"mail": f"{MARK}1@example.org"})["rows"]["final"] == 2
    assert [row["id"] for row in lake.rows()] == [1, 2]


def test_many_subjects_and_columns_go_at_once(lake: Lake) -> None:
    lake.go("append_dedup", [somebody(number) for number in range(60)])
    record = lake.forget(
        *({"id": number} for number in range(0, 60, 2)), {"mail": "7@1"}, {"mail": "9@1", "price": 2.25}, {"mail": "11@1", "price": 0}
    )
    assert [row["id"] for row in lake.rows()] == [number for number in range(1, 60, 2) if number not in {7, 9}]
    assert {kind: rows for kind, rows in record["rows"].items() if rows} == {"final": 32, "raw": 32}
    lake.verify()


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"nobody": 1}, "no column of the field 'nobody'"),
        ({"tags": "x"}, "does not hold single values"),
        ({"id": "word"}, "does not fit the type"),
        ({"mail": None}, "a null of 'mail'"),
    ],
)
def test_what_names_no_rows_is_refused(lake: Lake, wanted: dict[str, Any], said: str) -> None:
    lake.go("append", [somebody(1)])
    with pytest.raises(ConfigError, match=said) as refused:
        lake.forget(wanted)
    assert "word" not in str(refused.value)


def test_a_table_of_a_sync_that_died_waits_for_the_next_one(lake: Lake) -> None:
    lake.go("append_dedup", [person(1), somebody(1)])
    lake.limits = replace(lake.limits, batch_bytes=1)
    again = line({"type": "RECORD", "record": {"stream": "users", "emitted_at": 2, "data": person(2)}})
    with pytest.raises(SyncError):
        lake.sync(catalog("append_dedup"), [*[again, state(2)] * 3, b"{\n"])
    with pytest.raises(TransientError, match="next sync has ended"):
        lake.forget({"id": NUMBER})
    lake.go("append_dedup", [somebody(2)])
    lake.forget({"id": NUMBER})
    assert lake.holding() == []


@pytest.mark.parametrize("wanted", [{"id": NUMBER}, {"mail": f"{MARK}1@example.org"}])
def test_a_sync_that_exchanges_files_meanwhile_is_named(lake: Lake, monkeypatch: pytest.MonkeyPatch, wanted: dict[str, Any]) -> None:
    lake.options = {"publish": {"keep_replaced_minutes": 0}}
    lake.go("append_dedup", [person(1), somebody(1)])
    searched = Forgetting.searched

    def overtaken(forgetting: Forgetting) -> Update:
        monkeypatch.undo()
        lake.go("append_dedup", [person(2)])
        return searched(forgetting)

    monkeypatch.setattr(Forgetting, "searched", overtaken)
    with pytest.raises(TransientError, match=r"A sync has just written to it\. Try again\."):
        lake.forget(wanted)
    lake.forget({"id": NUMBER})
    assert lake.holding() == []


@pytest.mark.parametrize("mode", ["append", "append_dedup"])
def test_files_of_partitions_and_of_earlier_columns_lose_the_rows(mode: str, lake: Lake) -> None:
    lake.options = {"tables": {"partition_by": [{"stream": "users", "column": "group", "transform": "identity"}], **WAITING}}
    data = [{**one, "group": group} for group in ("a", "b") for one in (somebody(1), somebody(2), person(1))]
    lake.versioned()
    lake.go(mode, data, key=("id", "group"), properties={"group": {"type": "string"}})
    more = {"group": {"type": "string"}, "later": {"type": "string"}, "born": {"type": "string", "format": "date"}}
    lake.go(mode, [{**one, "later": MARK if one["id"] == NUMBER else "x"} for one in data], key=("id", "group"), properties=more)
    schemas = {file.schema_id for file in lake.live().files}
    others = [row for row in lake.rows() if MARK not in repr(row)]

    lake.forget({"id": NUMBER, "mail": f"{MARK}1@example.org"})
    assert lake.holding() == []
    assert [(row["id"], row["group"]) for row in lake.rows()] == [(row["id"], row["group"]) for row in others]
    assert all(f"={row['group']}/" in key for key, rows in lake.rows_by_key() for row in rows)
    assert schemas == {file.schema_id for file in lake.live().files if file.kind is FileKind.RAW}
    lake.verify()
    lake.rebuild()
    lake.verify()
    assert {(row["id"], row["group"], row["later"]) for row in lake.rows()} >= {(1, "a", "x"), (2, "b", "x")}


def test_nothing_is_changed_if_old_versions_may_not_be_listed(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.go("append", [person(1)])
    before = sorted(lake.versions())
    call = getattr(BaseClient, "_make_api_call")  # noqa: B009 (as above)

    def denied(client: BaseClient, name: str, *given: Any) -> Any:
        if name == "ListObjectVersions":
            answer: Any = {"Error": {"Code": "AccessDenied"}, "ResponseMetadata": {"HTTPStatusCode": 403}}
            raise ClientError(answer, name)
        return call(client, name, *given)

    with monkeypatch.context() as patched:
        patched.setattr(BaseClient, "_make_api_call", denied)
        with pytest.raises(ConfigError, match="s3:ListBucketVersions"):
            lake.forget({"id": NUMBER})
    assert sorted(lake.versions()) == before


def test_a_store_without_versions_has_none_to_delete(lake: Lake, s3_proxy: S3Proxy) -> None:
    lake.go("append", [person(1), somebody(2)])
    s3_proxy.fail("ListObjectVersions", Reply.error(501, "NotImplemented"))
    direct, lake.settings = lake.settings, replace(lake.settings, endpoint=s3_proxy.endpoint)
    record = lake.forget({"id": NUMBER})
    assert "ListObjectVersions" in s3_proxy.operations()
    assert (record["rows"]["final"], record["oldVersions"]) == (1, 0)
    lake.settings = direct
    assert lake.holding() == []
    assert [row["id"] for row in lake.rows()] == [2]


@pytest.mark.parametrize(("mode", "soft"), [("append", False), ("append_dedup", False), ("append_dedup", True)])
def test_nothing_is_wrong_with_a_table_that_has_no_merged_rows_left(lake: Lake, mode: str, soft: bool) -> None:
    lake.options = {"tables": {"raw_tables": False, **({"cdc_deletion_mode": "soft"} if soft else {})}}
    lake.go("append_dedup", [person(1), somebody(1)])
    lake.go("append_dedup", [person(2)], generation=2, minimum=2)
    lake.go("append_dedup", [person(3)], generation=2)
    if mode == "append":
        lake.go("append", [somebody(2)], generation=3)
    lake.forget({"id": NUMBER}, {"id": 1})
    assert [row["id"] for row in lake.rows()] == ([2] if mode == "append" else [])
    lake.verify()
    lake.go(mode, [somebody(3), somebody(3)], generation=3)
    lake.verify()


def test_executors_run_the_tasks_without_pydantic() -> None:
    modules = ("erasure", "log_search", "search")
    imports = "; ".join(f"import destination_s3_spark.tables.forgetting.{name}" for name in modules)
    subprocess.run([sys.executable, "-c", f"import sys; sys.modules['pydantic'] = None; {imports}"], check=True)


class _Died(BaseException):
    """The process ends here."""


@contextmanager
def dying(monkeypatch: pytest.MonkeyPatch, at: int) -> Iterator[list[int]]:
    """Let the process die at the call of S3 with this number, before or after it."""
    calls = [0]
    call = getattr(BaseClient, "_make_api_call")  # noqa: B009 (botocore's one place for all calls is not public)

    def counted(client: BaseClient, *given: Any) -> Any:
        calls[0] += 1
        if calls[0] > at // 2:
            if at % 2 and calls[0] == at // 2 + 1:
                call(client, *given)
            raise _Died
        return call(client, *given)

    with monkeypatch.context() as patched:
        patched.setattr(BaseClient, "_make_api_call", counted)
        yield calls


def dying_everywhere(lake: Lake, monkeypatch: pytest.MonkeyPatch, start: int, again: Callable[[int], None] = lambda _: None) -> None:
    """Forget the person with a command that dies at every seventh call and is run again, `again(at)` in between. Then check that it did."""
    at = start
    while True:
        with dying(monkeypatch, at):
            try:
                lake.forget({"id": NUMBER})
                break
            except _Died:
                at += 7
        again(at)
    lake.forget({"id": NUMBER})
    assert lake.holding() == []
    lake.verify()


@pytest.mark.parametrize("start", one_of(range(7)))
def test_a_command_that_dies_anywhere_ends_when_it_is_run_again(start: int, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.versioned()
    lake.options = {"publish": {"keep_replaced_minutes": 60, "delta": start % 2 == 0}}
    history(lake, "append_dedup")

    def source_still_has_it(at: int) -> None:
        if at % 3 == 0:
            lake.go("append_dedup", [person(at)])

    dying_everywhere(lake, monkeypatch, start, source_still_has_it)
    assert {row["id"] for row in lake.rows()} == {*range(40), 41}
