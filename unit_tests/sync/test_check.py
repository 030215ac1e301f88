from __future__ import annotations

import re
import socket
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from destination_s3_spark.errors import ConfigError, SyncError, TransientError
from destination_s3_spark.storage.failures import IAM_ACTIONS
from destination_s3_spark.storage.paths import PathTemplate
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import ClientLimits, S3Settings
from destination_s3_spark.sync.check import check, check_cluster, check_forget
from unit_tests.engine.masters import on
from unit_tests.lake.memory_bucket import MemoryBucket, Refusal, S3Call
from unit_tests.lake.memory_client import bucket_of
from unit_tests.s3_proxy import Reply

ONCE = ClientLimits(attempts=1, connect_timeout_s=2, read_timeout_s=5)
TEMPLATE = PathTemplate("lake/raw", None, None, datetime(2024, 1, 1, tzinfo=UTC), 1)
ACCESS_DENIED = Refusal(403, "AccessDenied")
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
def memory(s3_settings: S3Settings) -> MemoryBucket:
    return bucket_of(s3_settings)


@pytest.fixture
def proxied(s3_settings: S3Settings, s3_proxy: Any) -> S3Settings:
    return replace(s3_settings, endpoint=s3_proxy.endpoint, limits=ONCE)


def left_behind(bucket: MemoryBucket) -> list[str]:
    return [*bucket.objects, *bucket.uploads]


def test_a_good_connection_passes_after_every_action_a_sync_needs_and_nothing_is_left(
    s3_settings: S3Settings, memory: MemoryBucket
) -> None:
    check(s3_settings, TEMPLATE)
    assert set(memory.actions()) == SYNC_OPERATIONS
    assert all(call.key.startswith("lake/raw/airbyte_internal/check/") for call in memory.calls if call.action == "PutObject")
    assert left_behind(memory) == []


def test_a_store_that_lists_the_uploads_of_one_key_alone_passes(proxied: S3Settings, s3_proxy: Any) -> None:
    """As MinIO does."""

    none = Reply(200, b"<ListMultipartUploadsResult><IsTruncated>false</IsTruncated></ListMultipartUploadsResult>")

    def script(call: Any) -> Reply:
        is_of_folder = call.action == "ListMultipartUploads" and call.target.partition("prefix=")[2].partition("&")[0].endswith("%2F")
        return none if is_of_folder else call.forward()

    s3_proxy.script = script
    check(proxied, TEMPLATE)
    assert s3_proxy.actions().count("ListMultipartUploads") == 3


def test_objects_of_others_are_left_alone(s3_settings: S3Settings, memory: MemoryBucket) -> None:
    memory.put("lake/raw/airbyte_internal/check/of-somebody-else/object", b"x")
    check(s3_settings, TEMPLATE)
    assert [*memory.objects] == ["lake/raw/airbyte_internal/check/of-somebody-else/object"]


@pytest.mark.parametrize("operation", sorted(SYNC_OPERATIONS))
def test_a_missing_permission_is_named_and_what_can_be_is_cleaned_up(s3_settings: S3Settings, memory: MemoryBucket, operation: str) -> None:
    memory.fail(operation, ACCESS_DENIED)
    with pytest.raises(ConfigError, match=re.escape(IAM_ACTIONS[operation])):
        check(s3_settings, TEMPLATE)
    if operation not in {"DeleteObjects", "ListObjectsV2", "AbortMultipartUpload", "ListMultipartUploads"}:
        assert left_behind(memory) == []


@pytest.mark.parametrize("keeps_versions", [False, True])
def test_forgetting_is_tried_and_no_version_of_the_probe_is_left(
    s3_settings: S3Settings, memory: MemoryBucket, keeps_versions: bool
) -> None:
    if keeps_versions:
        memory.versioning = "Enabled"
    check_forget(s3_settings, TEMPLATE)
    assert set(memory.actions()) == {"PutObject", "DeleteObjects", "ListObjectVersions", "ListObjectsV2", "ListMultipartUploads"}
    assert memory.versions == {}


def test_rows_can_be_forgotten_in_a_store_that_has_no_versions(s3_settings: S3Settings, memory: MemoryBucket) -> None:
    memory.fail("ListObjectVersions", Refusal(501, "NotImplemented"))
    check_forget(s3_settings, TEMPLATE)
    assert memory.counts()["ListObjectVersions"] == 2
    assert left_behind(memory) == []


@pytest.mark.parametrize(
    ("operation", "versions", "said"),
    [
        ("ListObjectVersions", False, "Allow s3:ListBucketVersions "),
        ("DeleteObjects", False, "Allow s3:DeleteObject "),
        ("DeleteObjects", True, "s3:DeleteObjectVersion"),
    ],
)
def test_what_forget_needs_and_may_not_do_is_named(
    s3_settings: S3Settings, memory: MemoryBucket, operation: str, versions: bool, said: str
) -> None:
    memory.versioning = "Enabled"

    def denied(call: S3Call) -> Refusal | None:
        of_versions = "VersionId" in str(call.parameters.get("Delete"))
        return ACCESS_DENIED if (call.action, of_versions) == (operation, versions) else None

    memory.hook = denied
    with pytest.raises(ConfigError, match=said):
        check_forget(s3_settings, TEMPLATE)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"<Error><Key>k</Key><Code>AccessDenied</Code></Error>", "Allow s3:DeleteObjectVersion .* remove locks"),
        (b"", "still has old versions .*Object Lock"),
    ],
)
def test_versions_that_stay_although_the_request_was_taken_are_noticed(
    proxied: S3Settings, s3_proxy: Any, s3_error: Any, answer: bytes, said: str
) -> None:
    S3Store(proxied).client.put_bucket_versioning(Bucket=proxied.bucket, VersioningConfiguration={"Status": "Enabled"})
    reply = replace(s3_error(200, ""), body=b"<DeleteResult>%b</DeleteResult>" % answer)
    s3_proxy.script = lambda call: reply if call.action == "DeleteObjects" and b"VersionId" in call.body else call.forward()
    with pytest.raises(ConfigError, match=said):
        check_forget(proxied, TEMPLATE)


def test_a_store_that_ignores_conditional_puts_is_refused_and_the_way_out_is_named(s3_settings: S3Settings, memory: MemoryBucket) -> None:
    memory.has_conditions = lambda _: False
    with pytest.raises(ConfigError, match=r"If-None-Match.*Ceph only in a bucket without versioning.*s3\.single_writer"):
        check(s3_settings, TEMPLATE)
    assert left_behind(memory) == []


def test_a_store_that_refuses_conditional_puts_is_told_apart_from_a_missing_permission(
    s3_settings: S3Settings, memory: MemoryBucket
) -> None:
    memory.hook = lambda call: Refusal(501, "NotImplemented") if call.parameters.get("IfNoneMatch") else None
    with pytest.raises(ConfigError, match=r"NotImplemented.*s3\.single_writer"):
        check(s3_settings, TEMPLATE)


def test_a_single_writer_may_use_a_store_without_conditional_puts(s3_settings: S3Settings, memory: MemoryBucket) -> None:
    memory.has_conditions = lambda _: False
    check(replace(s3_settings, single_writer=True), TEMPLATE)


def test_a_bucket_that_does_not_exist(s3_settings: S3Settings) -> None:
    with pytest.raises(ConfigError, match="s3_bucket_name"):
        check(replace(s3_settings, bucket="no-such-bucket"), TEMPLATE)


@pytest.mark.parametrize(("code", "field"), [("InvalidAccessKeyId", "access_key_id"), ("SignatureDoesNotMatch", "secret_access_key")])
def test_wrong_keys(s3_settings: S3Settings, memory: MemoryBucket, code: str, field: str) -> None:
    memory.hook = lambda _: Refusal(403, code)
    with pytest.raises(ConfigError, match=field):
        check(s3_settings, TEMPLATE)


def test_a_store_that_wants_the_bucket_in_the_host_name_does_not_look_like_one_without_permission(
    s3_settings: S3Settings, memory: MemoryBucket
) -> None:
    memory.hook = lambda _: Refusal(403, "VirtualHostDomainRequired")
    with pytest.raises(ConfigError, match=r"Writing .* Set s3\.addressing to virtual"):
        check(s3_settings, TEMPLATE)


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
def test_a_store_in_trouble_is_transient(s3_settings: S3Settings, memory: MemoryBucket, operation: str) -> None:
    memory.fail(operation, Refusal(503, "SlowDown"))
    with pytest.raises(TransientError):
        check(s3_settings, TEMPLATE)


def test_a_store_whose_listing_lags_is_refused(proxied: S3Settings, s3_proxy: Any, s3_error: Any) -> None:
    empty = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"
    s3_proxy.fail("ListObjectsV2", replace(s3_error(200, ""), body=empty))
    with pytest.raises(ConfigError, match="strongly consistent"):
        check(proxied, TEMPLATE)


def test_no_message_holds_a_secret(s3_settings: S3Settings, memory: MemoryBucket) -> None:
    for code in ("AccessDenied", "SignatureDoesNotMatch", "ExpiredToken", "InvalidArgument", "SlowDown"):
        refused = Refusal(503 if code == "SlowDown" else 403, code)
        memory.hook = lambda _, refused=refused: refused
        with pytest.raises(SyncError) as caught:
            check(s3_settings, TEMPLATE)
        assert "test-secret" not in str(caught.value)


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
