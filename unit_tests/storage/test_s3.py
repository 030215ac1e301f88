from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest

from destination_s3_spark.errors import Bug, ConfigError, TransientError
from destination_s3_spark.storage.failures import IAM_ACTIONS
from destination_s3_spark.storage.object_store import (
    ObjectExists,
    ObjectTooLarge,
    OutcomeUnknown,
    StagedUpload,
    UploadFailed,
    doubtful_uploads,
)
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import ClientLimits, S3Settings
from destination_s3_spark.storage.staging import StagedFileSink
from unit_tests.s3_proxy import Call, Reply, S3Proxy
from unit_tests.storage.limits import ONCE, TWICE

Refuse = Callable[..., Any]


def stage(store: S3Store, key: str, body: bytes = b"staged", limits: ClientLimits = ONCE) -> StagedUpload:
    with StagedFileSink(replace(store.settings, limits=limits), key) as sink:
        sink.write(body)
        return sink.stage()


def test_a_store_that_keeps_versions_may_overwrite(store: S3Store) -> None:
    store.put("one", b"1")
    store.get("one")
    assert not store.may_overwrite
    store.client.put_bucket_versioning(Bucket=store.settings.bucket, VersioningConfiguration={"Status": "Enabled"})
    store.put("one", b"2")
    store.get("one")
    assert store.may_overwrite
    of_aws = S3Store(replace(store.settings, endpoint=None))
    of_aws.client = store.client
    assert of_aws.get("one") == b"2"
    assert not of_aws.may_overwrite


def test_names_of_metadata_are_in_small_letters_behind_a_proxy_that_capitalizes_headers(behind_proxy: S3Store, s3_proxy: S3Proxy) -> None:
    def capitalized(call: Call) -> Reply:
        answer = call.forward()
        return replace(answer, headers={name.title(): value for name, value in answer.headers.items()})

    s3_proxy.script = capitalized
    behind_proxy.put("k", b"one", {"ab-generation-id": "Seven"})
    info = behind_proxy.head("k")
    assert info is not None
    assert info.metadata == {"ab-generation-id": "Seven"}


def test_an_object_that_is_too_large_is_not_read(store: S3Store) -> None:
    store.put("large", b"x" * 100)
    assert store.get("large", most_bytes=100) == b"x" * 100
    with pytest.raises(ObjectTooLarge, match=r"'large' has 100 bytes, and such an object may have 99 at most, so it was not read"):
        store.get("large", most_bytes=99)


def test_listing_follows_pages_in_key_order(behind_proxy: S3Store, s3_proxy: Any) -> None:
    def small_pages(call: Any) -> Any:
        if call.action == "ListObjectsV2":
            call.target += "&max-keys=2"
        return call.forward()

    s3_proxy.script = small_pages
    for name in ("p/b", "p/a", "p/d", "p/c", "p/e", "q"):
        behind_proxy.put(name, b"x")
    assert [info.key for info in behind_proxy.list("p/")] == ["p/a", "p/b", "p/c", "p/d", "p/e"]
    assert s3_proxy.actions().count("ListObjectsV2") == 3


def test_delete_goes_in_batches_of_a_thousand_and_absent_keys_are_fine(behind_proxy: S3Store, s3_proxy: Any) -> None:
    behind_proxy.put("k7", b"x")
    behind_proxy.delete([f"k{number}" for number in range(2100)])
    assert behind_proxy.head("k7") is None
    assert s3_proxy.actions().count("DeleteObjects") == 3
    assert all("content-md5" in call.headers for call in s3_proxy.calls if call.action == "DeleteObjects")
    behind_proxy.delete([])
    assert s3_proxy.actions().count("DeleteObjects") == 3


def deletion_error(key: str, code: str) -> bytes:
    return f"<DeleteResult><Error><Key>{key}</Key><Code>{code}</Code></Error></DeleteResult>".encode()


def test_a_key_that_could_not_be_deleted_is_tried_again(behind_proxy: S3Store, s3_proxy: Any, s3_error: Refuse) -> None:
    behind_proxy.put("a", b"x")
    behind_proxy.put("b", b"x")
    reply = replace(s3_error(200, ""), body=deletion_error("b", "InternalError"))
    s3_proxy.fail("DeleteObjects", reply, times=1)
    behind_proxy.delete(["a", "b"])
    second = s3_proxy.calls[-1]
    assert b"<Key>b</Key>" in second.body
    assert b"<Key>a</Key>" not in second.body
    assert behind_proxy.head("b") is None


@pytest.mark.parametrize(
    ("code", "error", "text"), [("AccessDenied", ConfigError, "s3:DeleteObject"), ("InternalError", TransientError, "'b'")]
)
def test_a_key_that_stays_is_an_error(behind_proxy: S3Store, s3_proxy: Any, s3_error: Refuse, code: str, error: type, text: str) -> None:
    s3_proxy.fail("DeleteObjects", replace(s3_error(200, ""), body=deletion_error("b", code)))
    with pytest.raises(error, match=text):
        behind_proxy.delete(["a", "b"])


def test_a_copy_that_fails_leaves_no_upload(behind_proxy: S3Store, s3_proxy: Any, s3_error: Refuse) -> None:
    behind_proxy.put("source", b"x")
    s3_proxy.fail("UploadPartCopy", s3_error(503, "SlowDown"))
    with pytest.raises(TransientError):
        behind_proxy.stage_copy("source", "copy")
    assert list(behind_proxy.list_uploads("")) == []


def test_an_empty_object_cannot_be_copied_as_an_upload(store: S3Store) -> None:
    store.put("empty", b"")
    with pytest.raises(Bug):
        store.stage_copy("empty", "copy")


CALLS: dict[str, Callable[[S3Store], object]] = {
    "PutObject": lambda store: store.put("k", b"x"),
    "GetObject": lambda store: store.get("k"),
    "HeadObject": lambda store: store.head("k"),
    "DeleteObjects": lambda store: store.delete(["k"]),
    "ListObjectsV2": lambda store: list(store.list("")),
    "ListMultipartUploads": lambda store: list(store.list_uploads("")),
    "AbortMultipartUpload": lambda store: store.abort_upload("k", "id"),
    "CompleteMultipartUpload": lambda store: store.complete_upload(StagedUpload("k", "id", ('"e"',), 1)),
    "CreateMultipartUpload": lambda store: stage(store, "k"),
    "UploadPart": lambda store: stage(store, "k"),
    "UploadPartCopy": lambda store: store.stage_copy("present", "k"),
}


@pytest.mark.parametrize("operation", CALLS)
def test_a_missing_permission_is_named_by_its_iam_action(behind_proxy: S3Store, s3_proxy: Any, s3_error: Refuse, operation: str) -> None:
    behind_proxy.put("present", b"x")
    s3_proxy.fail(operation, s3_error(403, "AccessDenied"))
    with pytest.raises(ConfigError, match=f"denied.*{IAM_ACTIONS[operation]}"):
        CALLS[operation](behind_proxy)


@pytest.mark.parametrize("operation", [name for name in CALLS if name != "CompleteMultipartUpload"])
def test_a_store_in_trouble_is_a_transient_error(behind_proxy: S3Store, s3_proxy: Any, s3_error: Refuse, operation: str) -> None:
    behind_proxy.put("present", b"x")
    s3_proxy.fail(operation, s3_error(503, "SlowDown"))
    with pytest.raises(TransientError, match="again"):
        CALLS[operation](behind_proxy)


ANSWERED_WITH_NOTHING = {"AbortMultipartUpload", "CompleteMultipartUpload", "DeleteObjects", "GetObject", "HeadObject"}


@pytest.mark.parametrize("page", [b"<html><body>Console</body></html>", b"<ListBucketResult><Na", b'{"login": true}', b""])
@pytest.mark.parametrize("operation", sorted(CALLS.keys() - ANSWERED_WITH_NOTHING))
def test_success_without_what_s3_answers_is_a_transient_error(
    behind_proxy: S3Store, s3_proxy: Any, s3_error: Refuse, operation: str, page: bytes
) -> None:
    behind_proxy.put("present", b"x")
    s3_proxy.fail(operation, replace(s3_error(200, ""), body=page, headers={"Content-Type": "text/html"}))
    with pytest.raises(TransientError, match=r"was not an S3 response|answered 500"):
        CALLS[operation](behind_proxy)


def test_a_create_with_an_answer_that_is_none_leaves_open_what_was_done(behind_proxy: S3Store, s3_proxy: Any, s3_error: Refuse) -> None:
    s3_proxy.fail("PutObject", replace(s3_error(200, ""), body=b"<html></html>"))
    with pytest.raises(OutcomeUnknown):
        behind_proxy.create("k", b"x")


@pytest.mark.parametrize("operation", ["PutObject", "GetObject", "UploadPart"])
def test_a_passing_fault_is_retried(s3_settings: S3Settings, s3_proxy: Any, s3_error: Refuse, operation: str) -> None:
    store = S3Store(replace(s3_settings, endpoint=s3_proxy.endpoint, limits=TWICE))
    store.put("k", b"x")
    s3_proxy.fail(operation, s3_error(503, "SlowDown"), times=1)
    if operation == "UploadPart":
        store.complete_upload(stage(store, "k", limits=TWICE))
    else:
        CALLS[operation](store)
    assert s3_proxy.actions().count(operation) >= 2


def test_a_body_cut_short_is_read_again(behind_proxy: S3Store, s3_proxy: Any, s3_error: Refuse) -> None:
    behind_proxy.put("k", b"whole body")
    s3_proxy.fail("GetObject", replace(s3_error(200, ""), body=b"whole", headers={"Content-Length": "10", "Connection": "close"}), times=1)
    assert behind_proxy.get("k") == b"whole body"


@pytest.mark.parametrize("reply", [None, (503, "SlowDown"), (500, "InternalError")])
def test_a_create_without_an_answer_is_of_unknown_outcome(behind_proxy: S3Store, s3_proxy: Any, s3_error: Refuse, reply: Any) -> None:
    s3_proxy.fail("PutObject", s3_error(*reply) if reply else None)
    with pytest.raises(OutcomeUnknown):
        behind_proxy.create("k", b"x")


def test_a_create_whose_answer_is_lost_finds_its_own_object_when_sent_again(s3_settings: S3Settings, s3_proxy: Any) -> None:
    def lose_first(call: Any) -> Any:
        reply = call.forward()
        return reply if len(s3_proxy.calls) > 1 else None

    s3_proxy.script = lose_first
    store = S3Store(replace(s3_settings, endpoint=s3_proxy.endpoint, limits=TWICE))
    with pytest.raises(ObjectExists):
        store.create("k", b"mine")
    assert store.get("k") == b"mine"


def test_a_conflict_with_a_write_in_flight_is_tried_again_and_at_last_counts_as_taken(
    behind_proxy: S3Store, s3_proxy: Any, s3_error: Refuse
) -> None:
    conflict = s3_error(409, "ConditionalRequestConflict")
    s3_proxy.fail("PutObject", conflict, times=2)
    behind_proxy.create("k", b"x")
    assert behind_proxy.get("k") == b"x"
    s3_proxy.fail("PutObject", conflict)
    with pytest.raises(ObjectExists):
        behind_proxy.create("other", b"x")


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (None, OutcomeUnknown),
        ((503, "ServiceUnavailable"), OutcomeUnknown),
        ((504, "GatewayTimeout"), OutcomeUnknown),
        ((500, "InternalError"), UploadFailed),
        ((404, "NoSuchUpload"), UploadFailed),
        ((400, "InvalidPart"), UploadFailed),
        ((200, "InternalError"), UploadFailed),
        ((403, "AccessDenied"), ConfigError),
        ((400, "ExpiredToken"), ConfigError),
    ],
)
def test_a_complete_that_fails(behind_proxy: S3Store, s3_proxy: Any, s3_error: Refuse, reply: Any, error: type[Exception]) -> None:
    upload = stage(behind_proxy, "k")
    s3_proxy.fail("CompleteMultipartUpload", s3_error(*reply) if reply else None)
    with pytest.raises(error):
        behind_proxy.complete_upload(upload)
    assert behind_proxy.head("k") is None


def test_a_complete_that_fails_inside_a_200_is_sent_again(s3_settings: S3Settings, s3_proxy: Any, s3_error: Refuse) -> None:
    store = S3Store(replace(s3_settings, endpoint=s3_proxy.endpoint, limits=TWICE))
    upload = stage(store, "k", b"body")
    s3_proxy.fail("CompleteMultipartUpload", s3_error(200, "InternalError"), times=1)
    store.complete_upload(upload)
    assert store.get("k") == b"body"


def test_a_single_writer_creates_without_a_condition(s3_settings: S3Settings, s3_proxy: Any) -> None:
    store = S3Store(replace(s3_settings, endpoint=s3_proxy.endpoint, single_writer=True, limits=ONCE))
    store.create("k", b"first")
    with pytest.raises(ObjectExists):
        store.create("k", b"second")
    assert s3_proxy.actions() == ["HeadObject", "PutObject", "HeadObject"]
    assert not any("if-none-match" in call.headers for call in s3_proxy.calls)


def test_an_endpoint_nobody_listens_on(s3_settings: S3Settings) -> None:
    store = S3Store(replace(s3_settings, endpoint="http://127.0.0.1:9", limits=ONCE))
    with pytest.raises(TransientError, match=r"127\.0\.0\.1:9"):
        store.put("k", b"x")
    with pytest.raises(OutcomeUnknown):
        store.create("k", b"x")


def test_a_server_that_does_not_answer_in_time(s3_settings: S3Settings, s3_proxy: Any) -> None:
    released = threading.Event()
    s3_proxy.script = lambda _: released.wait(10) and None
    store = S3Store(replace(s3_settings, endpoint=s3_proxy.endpoint, limits=replace(ONCE, read_timeout_s=0.3)))
    with pytest.raises(TransientError, match="time"):
        store.get("k")
    released.set()


def test_an_upload_that_may_have_begun_or_cannot_be_aborted_is_counted(s3_settings: S3Settings, moto_endpoint: str, s3_error: Any) -> None:
    proxy = S3Proxy(urlsplit(moto_endpoint).netloc)  # its own, because a store is remembered to be in trouble
    store = S3Store(replace(s3_settings, endpoint=proxy.endpoint, limits=TWICE))
    store.put("source", b"x")

    def refusing(operations: Sequence[str], call: Call) -> Any:
        return s3_error(503, "SlowDown") if call.action in operations else call.forward()

    before = doubtful_uploads()
    for failing in (["CreateMultipartUpload"], ["UploadPart", "UploadPartCopy", "AbortMultipartUpload"]):
        proxy.script = partial(refusing, failing)
        with pytest.raises(TransientError):
            store.stage_copy("source", "k")
        with pytest.raises(TransientError):
            stage(store, "k", limits=TWICE)
    assert doubtful_uploads() == before + 4
    proxy.close()


@pytest.mark.parametrize("begin", ["StagedFileSink", "stage_copy"])
def test_an_upload_that_was_begun_twice_is_counted(s3_settings: S3Settings, s3_proxy: Any, begin: str) -> None:
    store = S3Store(replace(s3_settings, endpoint=s3_proxy.endpoint, limits=TWICE))
    store.put("source", b"x")

    def lose_first(call: Any) -> Any:
        reply = call.forward()
        return None if call.action == "CreateMultipartUpload" and s3_proxy.actions().count(call.action) == 1 else reply

    s3_proxy.script = lose_first
    before = doubtful_uploads()
    for _ in range(2):
        upload = store.stage_copy("source", "k") if begin == "stage_copy" else stage(store, "k", limits=TWICE)
        store.abort_upload("k", upload.upload_id)
    assert doubtful_uploads() == before + 1
    assert len(list(store.list_uploads(""))) == 1, "nobody knows of it"
