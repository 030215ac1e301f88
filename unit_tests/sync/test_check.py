from __future__ import annotations

import re
import socket
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from destination_s3_spark.config.config import Config
from destination_s3_spark.errors import ConfigError, SyncError, TransientError
from destination_s3_spark.storage.failures import IAM_ACTIONS
from destination_s3_spark.storage.paths import PathTemplate
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import ClientLimits, S3Settings
from destination_s3_spark.sync.check import check, check_cluster, check_forget
from unit_tests.conftest import Reply

ONCE = ClientLimits(attempts=1, connect_timeout_s=2, read_timeout_s=5)
TEMPLATE = PathTemplate("lake/raw", None, None, datetime(2024, 1, 1, tzinfo=UTC), 1)
SYNC_OPERATIONS = {
    "PutObject",
    "GetObject",
    "HeadObject",
    "ListObjectsV2",
    "DeleteObjects",
    "CreateMultipartUpload",
    "UploadPart",
    "UploadPartCopy",
    "CompleteMultipartUpload",
    "AbortMultipartUpload",
    "ListMultipartUploads",
}


@pytest.fixture
def proxied(s3_settings: S3Settings, s3_proxy: Any) -> S3Settings:
    return replace(s3_settings, endpoint=s3_proxy.endpoint, limits=ONCE)


def left_behind(settings: S3Settings) -> list[Any]:
    store = S3Store(replace(settings, limits=ONCE))
    return [*store.list(""), *store.list_uploads("")]


def test_a_good_connection_passes_after_every_action_a_sync_needs_and_nothing_is_left(proxied: S3Settings, s3_proxy: Any) -> None:
    check(proxied, TEMPLATE)
    assert set(s3_proxy.operations()) == SYNC_OPERATIONS
    keys = [call.target for call in s3_proxy.calls if call.operation == "PutObject"]
    assert all(key.startswith(f"/{proxied.bucket}/lake/raw/airbyte_internal/check/") for key in keys)
    assert left_behind(proxied) == []


def test_a_store_that_lists_the_uploads_of_one_key_alone_passes(proxied: S3Settings, s3_proxy: Any) -> None:
    """As MinIO does."""

    none = Reply(200, b"<ListMultipartUploadsResult><IsTruncated>false</IsTruncated></ListMultipartUploadsResult>")

    def script(call: Any) -> Reply:
        is_of_folder = call.operation == "ListMultipartUploads" and call.target.partition("prefix=")[2].partition("&")[0].endswith("%2F")
        return none if is_of_folder else call.forward()

    s3_proxy.script = script
    check(proxied, TEMPLATE)
    assert s3_proxy.operations().count("ListMultipartUploads") == 3


def test_objects_of_others_are_left_alone(s3_settings: S3Settings) -> None:
    store = S3Store(replace(s3_settings, limits=ONCE))
    store.put("lake/raw/airbyte_internal/check/of-somebody-else/object", b"x")
    check(replace(s3_settings, limits=ONCE), TEMPLATE)
    assert [info.key for info in store.list("")] == ["lake/raw/airbyte_internal/check/of-somebody-else/object"]


@pytest.mark.parametrize("operation", sorted(SYNC_OPERATIONS))
def test_a_missing_permission_is_named_and_what_can_be_is_cleaned_up(
    proxied: S3Settings, s3_proxy: Any, s3_error: Any, operation: str
) -> None:
    s3_proxy.fail(operation, s3_error(403, "AccessDenied"))
    with pytest.raises(ConfigError, match=re.escape(IAM_ACTIONS[operation])):
        check(proxied, TEMPLATE)
    s3_proxy.script = lambda call: call.forward()
    if operation not in {"DeleteObjects", "ListObjectsV2", "AbortMultipartUpload", "ListMultipartUploads"}:
        assert left_behind(proxied) == []


def versioned(settings: S3Settings) -> None:
    S3Store(settings).client.put_bucket_versioning(Bucket=settings.bucket, VersioningConfiguration={"Status": "Enabled"})


@pytest.mark.parametrize("keeps_versions", [False, True])
def test_forgetting_is_tried_and_no_version_of_the_probe_is_left(proxied: S3Settings, s3_proxy: Any, keeps_versions: bool) -> None:
    if keeps_versions:
        versioned(proxied)
    check_forget(proxied, TEMPLATE)
    assert set(s3_proxy.operations()) == {"PutObject", "DeleteObjects", "ListObjectVersions", "ListObjectsV2", "ListMultipartUploads"}
    answer = S3Store(proxied).client.list_object_versions(Bucket=proxied.bucket)
    assert not answer.keys() & {"Versions", "DeleteMarkers"}


def test_rows_can_be_forgotten_in_a_store_that_has_no_versions(proxied: S3Settings, s3_proxy: Any, s3_error: Any) -> None:
    s3_proxy.fail("ListObjectVersions", s3_error(501, "NotImplemented"))
    check_forget(proxied, TEMPLATE)
    assert s3_proxy.operations().count("ListObjectVersions") == 2
    assert left_behind(proxied) == []


DENIED = b"<Error><Key>k</Key><Code>AccessDenied</Code></Error>"


@pytest.mark.parametrize(
    ("operation", "versions", "answer", "said"),
    [
        ("ListObjectVersions", False, (403, DENIED), "Allow s3:ListBucketVersions "),
        ("DeleteObjects", False, (403, DENIED), "Allow s3:DeleteObject "),
        ("DeleteObjects", True, (403, DENIED), "s3:DeleteObjectVersion"),
        ("DeleteObjects", True, (200, b"<DeleteResult>%b</DeleteResult>" % DENIED), "Allow s3:DeleteObjectVersion .* remove locks"),
        ("DeleteObjects", True, (200, b"<DeleteResult/>"), "still has old versions .*Object Lock"),
    ],
)
def test_what_forget_needs_and_may_not_do_is_named(
    proxied: S3Settings, s3_proxy: Any, s3_error: Any, operation: str, versions: bool, answer: tuple[int, bytes], said: str
) -> None:
    versioned(proxied)
    reply = replace(s3_error(answer[0], ""), body=answer[1])
    s3_proxy.script = lambda call: reply if (call.operation, b"VersionId" in call.body) == (operation, versions) else call.forward()
    with pytest.raises(ConfigError, match=said):
        check_forget(proxied, TEMPLATE)


def ignore_conditions(call: Any) -> Any:
    call.headers.pop("if-none-match", None)
    return call.forward()


def test_a_store_that_ignores_conditional_puts_is_refused_and_the_way_out_is_named(proxied: S3Settings, s3_proxy: Any) -> None:
    s3_proxy.script = ignore_conditions
    with pytest.raises(ConfigError, match=r"If-None-Match.*Ceph only in a bucket without versioning.*s3\.single_writer"):
        check(proxied, TEMPLATE)
    assert left_behind(proxied) == []


def test_a_store_that_refuses_conditional_puts_is_told_apart_from_a_missing_permission(
    proxied: S3Settings, s3_proxy: Any, s3_error: Any
) -> None:
    refused = s3_error(501, "NotImplemented")
    s3_proxy.script = lambda call: refused if "if-none-match" in call.headers else call.forward()
    with pytest.raises(ConfigError, match=r"NotImplemented.*s3\.single_writer"):
        check(proxied, TEMPLATE)


def test_a_single_writer_may_use_a_store_without_conditional_puts(proxied: S3Settings, s3_proxy: Any) -> None:
    s3_proxy.script = ignore_conditions
    check(replace(proxied, single_writer=True, limits=ONCE), TEMPLATE)


def test_a_bucket_that_does_not_exist(s3_settings: S3Settings) -> None:
    with pytest.raises(ConfigError, match="s3_bucket_name"):
        check(replace(s3_settings, bucket="no-such-bucket", limits=ONCE), TEMPLATE)


@pytest.mark.parametrize(("code", "field"), [("InvalidAccessKeyId", "access_key_id"), ("SignatureDoesNotMatch", "secret_access_key")])
def test_wrong_keys(proxied: S3Settings, s3_proxy: Any, s3_error: Any, code: str, field: str) -> None:
    s3_proxy.script = lambda _: s3_error(403, code)
    with pytest.raises(ConfigError, match=field):
        check(proxied, TEMPLATE)


def test_a_store_that_wants_the_bucket_in_the_host_name_does_not_look_like_one_without_permission(
    proxied: S3Settings, s3_proxy: Any, s3_error: Any
) -> None:
    s3_proxy.script = lambda _: s3_error(403, "VirtualHostDomainRequired")
    with pytest.raises(ConfigError, match=r"Writing .* Set s3\.addressing to virtual"):
        check(proxied, TEMPLATE)


def test_the_region_that_a_store_tells_is_passed_on(proxied: S3Settings, s3_proxy: Any) -> None:
    s3_proxy.script = lambda _: Reply(400, b"<Error><Code>AuthorizationHeaderMalformed</Code><Region>garage</Region></Error>")
    with pytest.raises(ConfigError, match=r"not in region 'us-east-1', it is in 'garage'\. Correct s3\.region\."):
        check(replace(proxied, region=""), TEMPLATE)


def test_an_endpoint_that_cannot_be_reached(s3_settings: S3Settings) -> None:
    with pytest.raises(TransientError, match="s3_endpoint") as caught:
        check(replace(s3_settings, endpoint="http://127.0.0.1:9", limits=ONCE), TEMPLATE)
    assert "http://127.0.0.1:9" in str(caught.value)


def test_an_endpoint_that_must_not_be_reached(s3_settings: S3Settings) -> None:
    with pytest.raises(ConfigError, match="metadata"):
        check(replace(s3_settings, endpoint="http://169.254.169.254", limits=ONCE), TEMPLATE)


@pytest.mark.parametrize("operation", ["PutObject", "CompleteMultipartUpload", "UploadPart"])
def test_a_store_in_trouble_is_transient(proxied: S3Settings, s3_proxy: Any, s3_error: Any, operation: str) -> None:
    s3_proxy.fail(operation, s3_error(503, "SlowDown"))
    with pytest.raises(TransientError):
        check(proxied, TEMPLATE)


def test_a_store_whose_listing_lags_is_refused(proxied: S3Settings, s3_proxy: Any, s3_error: Any) -> None:
    empty = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"
    s3_proxy.fail("ListObjectsV2", replace(s3_error(200, ""), body=empty))
    with pytest.raises(ConfigError, match="strongly consistent"):
        check(proxied, TEMPLATE)


def test_no_message_holds_a_secret(proxied: S3Settings, s3_proxy: Any, s3_error: Any) -> None:
    for code in ("AccessDenied", "SignatureDoesNotMatch", "ExpiredToken", "InvalidArgument", "SlowDown"):
        s3_proxy.script = lambda _, code=code: s3_error(503 if code == "SlowDown" else 403, code)
        with pytest.raises(SyncError) as caught:
            check(proxied, TEMPLATE)
        assert "test-secret" not in str(caught.value)


def on(master: str, **spark: Any) -> Config:
    options = {"s3_bucket_name": "lake", "s3_bucket_path": "", "s3_bucket_region": "", "format": {"format_type": "Parquet"}}
    return Config.parse({**options, "spark": {"master": master, **spark}})


def test_inside_the_connector_there_is_nothing_to_check() -> None:
    check_cluster(on("local[*]"), TEMPLATE)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "no-such-host.invalid"])
def test_masters_that_do_not_answer_are_named(host: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        master = f"spark://{host}:{unused.getsockname()[1]}"
        with pytest.raises(TransientError, match="No Spark master answers at") as caught:
            check_cluster(on(master), TEMPLATE)
    assert master.removeprefix("spark://").translate(str.maketrans("", "", "[]")) in caught.value.message


def test_a_port_that_is_none_is_an_address_where_nobody_answers() -> None:
    with pytest.raises(TransientError, match=r"No Spark master answers at 127\.0\.0\.1:99999"):
        check_cluster(on("spark://127.0.0.1:99999"), TEMPLATE)


def test_a_master_at_an_address_of_the_host_itself_is_not_even_contacted() -> None:
    with pytest.raises(ConfigError, match=r"spark\.master '169\.254\.169\.254' leads to 169\.254\.169\.254"):
        check_cluster(on("spark://169.254.169.254:80"), TEMPLATE)
