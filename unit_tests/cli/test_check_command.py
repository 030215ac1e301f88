"""`check`: succeeds where a sync would, and otherwise says what is wrong and what to do, each case in words of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from unit_tests.lake.inline_connector import InlineConnector
from unit_tests.lake.lake import Lake
from unit_tests.lake.memory_bucket import Refusal
from unit_tests.lake.messages import catalog
from unit_tests.lake.shop import complete, state, stream, users
from unit_tests.s3_proxy import Reply, S3Proxy


def deny(lake: Lake, *actions: str) -> None:
    lake.memory.hook = lambda call: Refusal(403, "AccessDenied") if call.action in actions else None


def failure(connector: InlineConnector, **options: Any) -> str:
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


def test_what_a_configuration_may_not_mean_is_told_by_check_and_by_the_sync(lake: Lake) -> None:
    outcome = lake.connector().check(**DOUBTFUL)
    assert outcome.connection_status["status"] == "SUCCEEDED", outcome.describe()
    assert [doubt for doubt in DOUBTS if doubt not in outcome.connection_status["message"]] == []
    assert [doubt for doubt in DOUBTS if doubt not in outcome.warnings] == []

    synced = lake.connector(**DOUBTFUL).write(catalog(stream()), [*users([1]), state(1), complete()]).expect_success()
    assert [doubt for doubt in DOUBTS if doubt not in synced.warnings] == []
    assert "planted-4711-marker" not in outcome.describe() + synced.describe()


def test_a_good_configuration_is_not_doubted(lake: Lake) -> None:
    outcome = lake.connector().check(format={"format_type": "Parquet", "part_size_mb": 5})
    assert "message" not in outcome.connection_status, outcome.describe()
    assert outcome.warnings == ""


def test_a_path_that_would_mix_the_streams_is_refused(lake: Lake) -> None:
    assert "${STREAM_NAME}" in failure(lake.connector(), s3_path_format="${NAMESPACE}/${STREAM}/")


def test_a_spool_directory_that_cannot_be_made_is_named(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for unusable in (tmp_path / "missing", tmp_path / "file"):
        message = failure(lake.connector(), batching={"spool_dir": str(unusable)})
        assert str(unusable) in message
        assert "batching.spool_dir" in message


def test_a_bucket_that_does_not_exist_is_named(lake: Lake) -> None:
    message = failure(lake.connector(), s3_bucket_name="no-such-bucket-here")
    assert "no-such-bucket-here" in message
    assert "s3_bucket_name" in message


def test_a_store_that_ignores_if_none_match_is_accepted_with_a_single_writer(lake: Lake) -> None:
    lake.memory.has_conditions = lambda _: False
    outcome = lake.connector().check(s3={"single_writer": True})
    assert outcome.connection_status["status"] == "SUCCEEDED", outcome.describe()


def test_a_missing_delete_permission_is_named(lake: Lake) -> None:
    deny(lake, "DeleteObjects", "DeleteObject")
    assert "Allow s3:DeleteObject " in failure(lake.connector())


def test_what_forget_needs_is_tried_if_asked_for(lake: Lake) -> None:
    deny(lake, "ListObjectVersions")
    connector = lake.connector()
    assert connector.check().connection_status["status"] == "SUCCEEDED"
    status = connector.check(forgets=True).connection_status
    assert (status["status"], "Allow s3:ListBucketVersions " in status["message"]) == ("FAILED", True)


def test_a_store_that_asks_for_patience_gets_it(lake: Lake, s3_proxy: S3Proxy, s3_error: Callable[..., Reply]) -> None:
    s3_proxy.fail("PutObject", s3_error(503, "SlowDown"), times=1)
    outcome = lake.through(replace(lake.settings, endpoint=s3_proxy.endpoint)).connector().check()
    assert outcome.connection_status["status"] == "SUCCEEDED", outcome.describe()
    assert s3_proxy.actions().count("PutObject") > 1
