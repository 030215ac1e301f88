from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from destination_s3_spark.cli import diagnosis, operator_command
from destination_s3_spark.cli.configuration import read_config
from destination_s3_spark.cli.diagnosis import (
    Finding,
    Verdict,
    find_java,
    look_at_bucket,
    look_at_catalogs,
    look_at_options,
    look_at_streams,
)
from destination_s3_spark.config.config import GIB, Config
from destination_s3_spark.storage import probes
from destination_s3_spark.storage.paths import PathTemplate
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.sync.check import CHECK_LIMITS
from destination_s3_spark.tables.factory import table_factory
from unit_tests.cases import each
from unit_tests.lake.memory_bucket import MemoryBucket, Refusal
from unit_tests.lake.memory_client import bucket_of

TEMPLATE = PathTemplate("lake", None, None, datetime(2026, 1, 1, tzinfo=UTC), 1)
OPTIONS: dict[str, Any] = {"s3_bucket_name": "lake", "s3_bucket_path": "a", "s3_bucket_region": "", "format": {"format_type": "Parquet"}}


def verdicts(findings: list[Finding]) -> dict[str, Verdict]:
    return {finding.check: finding.verdict for finding in findings}


@pytest.fixture
def memory(s3_settings: S3Settings) -> MemoryBucket:
    return bucket_of(s3_settings)


def test_a_good_bucket_gets_a_tick_for_everything(s3_settings: S3Settings, memory: MemoryBucket) -> None:
    findings = list(look_at_bucket(s3_settings, TEMPLATE))

    assert set(verdicts(findings).values()) == {Verdict.GOOD}
    assert list(verdicts(findings))[:3] == ["endpoint", "clock", "write objects (s3:PutObject)"]
    assert len(findings) == 12
    assert (memory.objects, memory.uploads) == ({}, {})


@pytest.mark.parametrize(
    ("operation", "bad", "skipped"),
    [
        ("DeleteObjects", "delete objects (s3:DeleteObject)", 0),
        ("GetObject", "read objects (s3:GetObject)", 0),
        ("AbortMultipartUpload", "abort uploads (s3:AbortMultipartUpload)", 0),
        ("ListMultipartUploads", "list uploads (s3:ListBucketMultipartUploads)", 0),
        ("CreateMultipartUpload", "multipart uploads (s3:PutObject)", 4),
        ("ListObjectsV2", "list objects (s3:ListBucket)", 0),
        ("UploadPartCopy", "copy objects (s3:PutObject, s3:GetObject)", 1),
    ],
)
def test_a_missing_permission_is_one_cross_and_the_rest_is_tried(
    s3_settings: S3Settings, memory: MemoryBucket, operation: str, bad: str, skipped: int
) -> None:
    memory.fail(operation, Refusal(403, "AccessDenied"))

    findings = list(look_at_bucket(s3_settings, TEMPLATE))

    (cross,) = [finding for finding in findings if finding.verdict is Verdict.BAD]
    assert cross.check == bad
    assert "access denied" in cross.detail
    assert sum(finding.verdict is Verdict.SKIPPED for finding in findings) == skipped
    assert len(findings) == 12


def test_what_needs_an_object_is_left_out_where_none_can_be_written(s3_settings: S3Settings, memory: MemoryBucket) -> None:
    memory.fail("PutObject", Refusal(403, "AccessDenied"))

    found = verdicts(list(look_at_bucket(s3_settings, TEMPLATE)))

    assert found["write objects (s3:PutObject)"] is Verdict.BAD
    assert found["read objects (s3:GetObject)"] is found["conditional writes (If-None-Match)"] is Verdict.SKIPPED
    assert found["multipart uploads (s3:PutObject)"] is Verdict.GOOD


def test_a_store_without_conditional_writes_is_a_cross(s3_settings: S3Settings, memory: MemoryBucket) -> None:
    memory.has_conditions = lambda _: False

    (cross,) = [finding for finding in look_at_bucket(s3_settings, TEMPLATE) if finding.verdict is Verdict.BAD]

    assert cross.check == "conditional writes (If-None-Match)"
    assert "s3.single_writer" in cross.detail


@pytest.mark.parametrize(
    ("ahead_s", "verdict", "words"),
    [(0, Verdict.GOOD, "agree"), (300, Verdict.DOUBTFUL, "ahead of the store"), (-5_000, Verdict.BAD, "behind the store")],
)
def test_the_clock_is_compared_with_that_of_the_store(
    s3_settings: S3Settings, monkeypatch: pytest.MonkeyPatch, ahead_s: int, verdict: Verdict, words: str
) -> None:
    class Shifted(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Shifted:
            return cls.fromtimestamp(datetime.now(UTC).timestamp() + ahead_s, tz)

    monkeypatch.setattr(probes, "datetime", Shifted)

    found = next(finding for finding in look_at_bucket(s3_settings, TEMPLATE) if finding.check == "clock")

    assert (found.verdict, words in found.detail) == (verdict, True)


def test_an_endpoint_that_does_not_answer_is_one_cross(s3_settings: S3Settings) -> None:
    (finding,) = look_at_bucket(replace(s3_settings, endpoint="http://127.0.0.1:9", limits=CHECK_LIMITS), TEMPLATE)

    assert (finding.check, finding.verdict) == ("endpoint", Verdict.BAD)
    assert "s3_endpoint" in finding.detail


@pytest.mark.parametrize(("reachable", "verdict"), [(True, Verdict.GOOD), (False, Verdict.BAD)])
def test_each_catalog_of_a_publisher_is_tried(
    config: Path, moto_endpoint: str, monkeypatch: pytest.MonkeyPatch, reachable: bool, verdict: Verdict
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", moto_endpoint if reachable else "http://127.0.0.1:9")
    options = json.loads(config.read_text())
    database = f"lake_{uuid4().hex}"

    (finding,) = look_at_catalogs(Config.parse({**options, "publish": {"glue": {"database": database}}}), TEMPLATE)

    assert (finding.check, finding.verdict) == ("publish.glue", verdict)
    assert list(look_at_catalogs(Config.parse(options), TEMPLATE)) == []


def test_options_are_good_doubtful_or_bad() -> None:
    (good,) = look_at_options(OPTIONS)
    doubtful = list(look_at_options({**OPTIONS, "s3_bukcet_name": "x", "file_name_pattern": "{dat}{format_extension}"}))
    (bad,) = look_at_options({**OPTIONS, "batchin": {}})

    assert (good.verdict, bad.verdict) == (Verdict.GOOD, Verdict.BAD)
    assert "did you mean batching?" in bad.detail
    assert {finding.verdict for finding in doubtful} == {Verdict.DOUBTFUL}
    assert ["s3_bucket_name" in doubtful[0].detail, "{date}" in doubtful[1].detail] == [True, True]


@each(
    ("endpoint", "uri", "in_the_open"),
    [
        ("http://minio:9000", "http://catalog.lan/api", ["s3_endpoint", "publish.iceberg.uri"]),
        ("https://minio:9000", "https://catalog.lan/api", []),
        ("http://127.0.0.1:9000", "http://localhost:8181", []),
        (None, "http://10.0.0.7:8181", ["publish.iceberg.uri"]),
    ],
)
def test_servers_of_other_machines_without_tls_are_named(endpoint: str | None, uri: str, in_the_open: list[str]) -> None:
    iceberg = {"type": "rest", "uri": uri, "warehouse": "w"}
    found = list(look_at_options({**OPTIONS, "s3_endpoint": endpoint, "publish": {"iceberg": iceberg}}))

    assert [finding.check for finding in found if "plain http" in finding.detail] == in_the_open
    assert {finding.verdict for finding in found if finding.check in in_the_open} <= {Verdict.DOUBTFUL}


def java(directory: Path, said: str) -> Path:
    """A JAVA_HOME whose java says this."""
    (directory / "bin").mkdir()
    script = directory / "bin" / "java"
    script.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    script.chmod(0o755)
    return directory


@pytest.mark.parametrize(
    ("said", "verdict"),
    [('openjdk version "17.0.15" 2026-04-15', Verdict.GOOD), ('java version "1.8.0_392"', Verdict.BAD), ("no java", Verdict.BAD)],
)
def test_the_java_that_spark_would_run_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, verdict: Verdict) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path, said)))

    finding = find_java()

    assert finding.verdict is verdict
    assert str(tmp_path) in finding.detail


def test_without_java_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_java().verdict is Verdict.BAD

    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "cannot be run" in find_java().detail


def look_at_spool_and_memory(monkeypatch: pytest.MonkeyPatch, container_bytes: int = 64 * GIB, **options: Any) -> dict[str, Finding]:
    """Without Spark, whose start takes seconds: Java is not there."""
    monkeypatch.setattr(diagnosis, "container_memory_bytes", lambda: container_bytes)
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    return {finding.check: finding for finding in diagnosis.look_at_machine(Config.parse({**OPTIONS, **options}), TEMPLATE)}


def test_the_spool_directory_is_written_and_its_room_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = look_at_spool_and_memory(monkeypatch, batching={"spool_dir": str(tmp_path), "max_spool_gb": 0.001})
    full = look_at_spool_and_memory(monkeypatch, batching={"spool_dir": str(tmp_path), "max_spool_gb": 10**6})
    none = look_at_spool_and_memory(monkeypatch, batching={"spool_dir": str(tmp_path / "none")})

    assert [found["spool directory"].verdict for found in (good, full, none)] == [Verdict.GOOD, Verdict.DOUBTFUL, Verdict.BAD]
    assert "batching.max_spool_gb" in full["spool directory"].detail
    assert "batching.spool_dir" in none["spool directory"].detail
    assert none["Spark"].verdict is Verdict.SKIPPED
    assert list(tmp_path.iterdir()) == []


def test_memory_is_compared_with_what_the_settings_take(monkeypatch: pytest.MonkeyPatch) -> None:
    enough = look_at_spool_and_memory(monkeypatch, 4 * GIB, spark={"master": "local[2]"})["memory"]
    short = look_at_spool_and_memory(monkeypatch, 2 * GIB, spark={"master": "local[32]"})["memory"]

    assert (enough.verdict, short.verdict) == (Verdict.GOOD, Verdict.BAD)
    fitting = short.detail.partition("local[")[2].partition("]")[0]
    assert look_at_spool_and_memory(monkeypatch, 2 * GIB, spark={"master": f"local[{fitting}]"})["memory"].verdict is Verdict.GOOD


def catalog_of(*streams: tuple[str, str], mode: str = "append", generations: bool = True) -> bytes:
    ids = {"generation_id": 0, "minimum_generation_id": 0, "sync_id": 1} if generations else {}
    described = [
        {
            "stream": {"name": name, "namespace": namespace, "json_schema": {"type": "object", "properties": {"id": {"type": "integer"}}}},
            "sync_mode": "full_refresh",
            "destination_sync_mode": mode,
            **ids,
        }
        for namespace, name in streams
    ]
    return json.dumps({"streams": described}).encode()


def test_each_stream_of_a_catalog_has_its_path(config: Path, s3_settings: S3Settings) -> None:
    _, *findings = look_at_streams(table_factory(read_config(config)), catalog_of(("shop", "orders"), ("shop", "a/b")))

    assert [finding.verdict for finding in findings] == [Verdict.GOOD, Verdict.GOOD]
    assert findings[0].check == "shop.orders"
    assert f"append into s3://{s3_settings.bucket}/lake/shop/orders/ (files such as " in findings[0].detail


@each(
    ("generations", "words"),
    [
        (True, "As a connector of the registry: generations and stream statuses"),
        (False, "As a custom connector: no generations, no stream statuses"),
    ],
)
def test_the_catalog_shows_how_the_connector_is_installed(config: Path, generations: bool, words: str) -> None:
    found = next(look_at_streams(table_factory(read_config(config)), catalog_of(("shop", "orders"), generations=generations)))

    assert (found.check, found.verdict, found.detail) == ("installation", Verdict.GOOD, words)


@each(("catalog", "words"), [(b"{", "catalog"), (catalog_of(("shop", "orders"), mode="append_dedup"), "primary_key")])
def test_a_catalog_that_cannot_be_synced_is_a_cross(config: Path, catalog: bytes, words: str) -> None:
    (finding,) = look_at_streams(table_factory(read_config(config)), catalog)

    assert finding.verdict is Verdict.BAD
    assert words in finding.detail


def test_a_bad_configuration_ends_with_exit_code_1_in_words_and_as_json(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text(json.dumps({**json.loads(config.read_text()), "s3_bucket_region": "us-esat-1"}))

    assert operator_command(["doctor", "--config", str(config)]) == 1
    words = capsys.readouterr().out
    assert operator_command(["doctor", "--config", str(config), "--output", "json"]) == 1
    found = json.loads(capsys.readouterr().out)

    assert "✗ options" in words
    assert "a sync would not work" in words
    assert "hidden-secret" not in words
    assert (found[0]["part"], found[0]["check"], found[0]["verdict"]) == ("configuration", "options", "bad")


def test_a_configuration_that_is_not_there_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert operator_command(["doctor", "--config", str(tmp_path / "none.json")]) == 1
    assert "cannot be read" in capsys.readouterr().err


@each("publish", [{"delta": True}, {"glue": {"database": "lake"}}])
def test_a_publication_that_no_table_can_have_is_a_cross(publish: dict[str, Any]) -> None:
    (refused,) = look_at_options({**OPTIONS, "format": {"format_type": "CSV"}, "publish": publish})
    assert refused.verdict is Verdict.BAD
    assert f"publish.{next(iter(publish))}" in refused.detail


def test_misspelt_options_are_named_although_another_is_refused() -> None:
    misspelt = {"s3_pth_format": "x", "format": {"format_type": "Parquet", "blok_size_mb": 3}, "batchng": {}}
    refused, *doubts = look_at_options({**OPTIONS, **misspelt, "batching": {"max_batch_mb": "many"}})
    assert refused.verdict is Verdict.BAD
    assert "batching.max_batch_mb" in refused.detail
    assert "batchng: there is no such option (did you mean batching?)" in refused.detail
    assert {doubt.verdict for doubt in doubts} == {Verdict.DOUBTFUL}
    assert {doubt.detail.split(":")[0] for doubt in doubts} == {"s3_pth_format", "format.blok_size_mb"}


@each("kind", ["Excel", None, 5])
def test_a_refused_format_does_not_hide_what_is_misspelt(kind: Any) -> None:
    refused, doubt = look_at_options({**OPTIONS, "format": {"format_type": kind, "odd": 1}, "s3_pth_format": "x"})
    assert (refused.verdict, doubt.verdict) == (Verdict.BAD, Verdict.DOUBTFUL)
    assert doubt.detail.startswith("s3_pth_format: ")
