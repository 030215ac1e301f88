"""`check`: succeeds where a sync would, and otherwise says what is wrong and what to do, each case in words of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from integration_tests.connector import Connector
from integration_tests.lake import ProcessLake
from integration_tests.s3_proxy import Fault, S3Proxy
from unit_tests.lake.buckets import S3Server, new_bucket
from unit_tests.lake.messages import catalog
from unit_tests.lake.shop import complete, state, stream, users


def denied(action: str) -> Fault:
    return Fault(action, status=403, code="AccessDenied")


def failure(connector: Connector, **options: Any) -> str:
    """What a failing check says."""
    outcome = connector.check(**options)
    status = outcome.connection_status
    assert status["status"] == "FAILED", outcome.describe()
    return str(status["message"])


DOUBTFUL: dict[str, Any] = {
    "format": {"format_type": "Parquet", "compresion_codec": "ZSTD"},
    "file_name_pattern": "{foo}_{date}",
    "no_such_option": "planted-4711-marker",
}
DOUBTS = ["format.compression_codec", "{foo}", "no_such_option"]


def test_what_a_configuration_may_not_mean_is_told_by_check_and_by_the_sync(moto_lake: ProcessLake) -> None:
    outcome = moto_lake.connector().check(**DOUBTFUL)
    assert outcome.connection_status["status"] == "SUCCEEDED", outcome.describe()
    assert [doubt for doubt in DOUBTS if doubt not in outcome.connection_status["message"]] == []
    assert [doubt for doubt in DOUBTS if doubt not in outcome.warnings] == []

    synced = moto_lake.connector(**DOUBTFUL).write(catalog(stream()), [*users([1]), state(1), complete()]).expect_success()
    assert [doubt for doubt in DOUBTS if doubt not in synced.warnings] == []
    assert "planted-4711-marker" not in outcome.describe() + synced.describe()


def test_a_good_configuration_is_not_doubted(moto_lake: ProcessLake) -> None:
    outcome = moto_lake.connector().check(format={"format_type": "Parquet", "part_size_mb": 5})
    assert "message" not in outcome.connection_status, outcome.describe()
    assert outcome.warnings == ""


def test_a_path_that_would_mix_the_streams_is_refused(moto_lake: ProcessLake) -> None:
    assert "${STREAM_NAME}" in failure(moto_lake.connector(), s3_path_format="${NAMESPACE}/${STREAM}/")


def test_a_spool_directory_that_cannot_be_made_is_named(moto_lake: ProcessLake, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for unusable in (tmp_path / "missing", tmp_path / "file"):
        message = failure(moto_lake.connector(), batching={"spool_dir": str(unusable)})
        assert str(unusable) in message
        assert "batching.spool_dir" in message


def test_a_bucket_that_does_not_exist_is_named(strict_lake: ProcessLake) -> None:
    message = failure(strict_lake.connector(), s3_bucket_name="no-such-bucket-here")
    assert "no-such-bucket-here" in message
    assert "s3_bucket_name" in message


def test_a_wrong_secret_key_is_told_from_a_missing_permission(ceph: S3Server, tmp_path: Path) -> None:
    lake = ProcessLake.of(new_bucket(ceph), tmp_path)
    message = failure(lake.connector(), secret_access_key="a-secret-that-is-wrong")
    assert "secret_access_key" in message
    assert "a-secret-that-is-wrong" not in message


def test_an_unknown_access_key_is_named_as_such(ceph: S3Server, tmp_path: Path) -> None:
    lake = ProcessLake.of(new_bucket(ceph), tmp_path)
    assert "access_key_id" in failure(lake.connector(), access_key_id="AKIANOBODYKNOWSTHIS")


def test_a_store_that_ignores_if_none_match_is_accepted_with_a_single_writer(moto_lake: ProcessLake, proxy: S3Proxy) -> None:
    proxy.hide_headers("If-None-Match")
    outcome = moto_lake.connector(proxy.endpoint).check(s3={"single_writer": True})
    assert outcome.connection_status["status"] == "SUCCEEDED", outcome.describe()


def test_a_missing_delete_permission_is_named(moto_lake: ProcessLake, proxy: S3Proxy) -> None:
    proxy.inject(denied("DeleteObjects"))
    proxy.inject(denied("DeleteObject"))
    assert "Allow s3:DeleteObject " in failure(moto_lake.connector(proxy.endpoint))


def test_what_forget_needs_is_tried_if_asked_for(moto_lake: ProcessLake, proxy: S3Proxy) -> None:
    proxy.inject(denied("ListObjectVersions"))
    connector = moto_lake.connector(proxy.endpoint)
    assert connector.check().connection_status["status"] == "SUCCEEDED"
    with connector.run("check", "--forget", config=connector.config()) as running:
        status = running.end_input().finish().connection_status
    assert (status["status"], "Allow s3:ListBucketVersions " in status["message"]) == ("FAILED", True)


def test_a_store_that_asks_for_patience_gets_it(moto_lake: ProcessLake, proxy: S3Proxy) -> None:
    proxy.inject(Fault("PutObject", times=1))
    outcome = moto_lake.connector(proxy.endpoint).check()
    assert outcome.connection_status["status"] == "SUCCEEDED", outcome.describe()
