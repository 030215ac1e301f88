"""What the connector asks of a store's objects and listings, of the S3 in memory and of real servers.

`test_contract_of_uploads.py` has uploads, versions and reading through Arrow.
"""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from destination_s3_spark.errors import ConfigError, DataError
from destination_s3_spark.storage.object_store import ObjectChanged, ObjectExists, ObjectInfo, ObjectNotFound, ObjectTooLarge
from destination_s3_spark.storage.probes import UploadProbe, ask, try_upload
from destination_s3_spark.storage.ranged import TAIL_BYTES, RangedFile
from destination_s3_spark.storage.s3 import DELETE_BATCH, S3Store
from unit_tests.lake.memory_client import bucket_of
from unit_tests.storage.contract import Place

KEYS = [
    "a/plain.json",
    "a/é x+y&z.json",
    "a/plus+and 100% %20 %2F percent",
    "a/(brackets) 'quotes' \"double\" ~*!$,;:@=",
    "a/question?mark=1#fragment",
    "a/漢字/🌿/é",
    "a/day=2026-01-01/part=%5B1%5D/x.parquet",
    "a/" + "long/" * 190 + "end",
]
DISTINCT = ["p", "p-", "p/x", "pA", "p_", "pa", "pé", "p\uff5e", "p\U0001f33f"]
"""In the order of their UTF-8 bytes, which is that of code points, and not of UTF-16."""


def test_an_object_comes_back_under_any_key(place: Place) -> None:
    for number, key in enumerate(KEYS):
        place.store.put(key, b"first", {"kept": "no"})
        place.store.put(key, b"%d bytes" % number, {"Ab-Generation-Id": str(number)})
    for number, key in enumerate(KEYS):
        assert place.store.get(key) == b"%d bytes" % number
        info = place.store.head(key)
        assert info == ObjectInfo(key, 7)
        assert info.metadata == {"ab-generation-id": str(number)}
    assert [info.key for info in place.store.list("a/")] == sorted(KEYS)
    place.store.delete(KEYS)
    assert [*place.store.list("")] == []


def test_an_empty_object_is_an_object(place: Place) -> None:
    place.store.put("empty", b"")
    assert place.store.get("empty") == b""
    assert place.store.head("empty") == ObjectInfo("empty", 0)
    assert [(info.key, info.size) for info in place.store.list("")] == [("empty", 0)]
    assert RangedFile(place.store, "empty", 0).read() == b""
    with pytest.raises(DataError, match="not as long"):
        place.store.get_range("empty", 0, 1, 1)


def test_what_is_not_there_is_said_to_be_not_there(place: Place) -> None:
    store = place.store
    assert store.head("nothing") is None
    assert [*store.list("nothing"), *store.folders("nothing"), *store.list_uploads("nothing")] == []
    store.delete(["nothing"])
    for read in (lambda: store.get("nothing"), lambda: store.get_range("nothing", 0, 1, 2), lambda: store.stage_copy("nothing", "copy")):
        with pytest.raises(ObjectNotFound):
            read()
    assert place.refusal("get_object", Key="nothing") == (404, "NoSuchKey")
    assert place.refusal("head_object", Key="nothing") == (404, "404")


def test_a_range_is_read_of_an_object_of_the_expected_size_alone(place: Place) -> None:
    body = random.Random(1).randbytes(5 * TAIL_BYTES)
    place.store.put("k", body)
    for start, end in ((0, 1), (10, 100), (len(body) - 1, len(body)), (0, len(body))):
        assert place.store.get_range("k", start, end, len(body)) == body[start:end]
    for start, end, size in ((0, 10, 11), (len(body) - 5, len(body) + 5, len(body) + 5), (len(body), len(body) + 1, len(body) + 1)):
        with pytest.raises(DataError, match="not as long"):
            place.store.get_range("k", start, end, size)
    file = RangedFile(place.store, "k", len(body))
    file.seek(-8, 2)
    assert file.read() == body[-8:]
    file.seek(3)
    assert file.read(5) == body[3:8]
    assert place.store.get("k", most_bytes=len(body)) == body
    with pytest.raises(ObjectTooLarge):
        place.store.get("k", most_bytes=len(body) - 1)
    assert place.refusal("get_object", Key="k", Range=f"bytes={len(body)}-{len(body)}") == (416, "InvalidRange")
    part = place.client.get_object(Bucket=place.bucket, Key="k", Range=f"bytes={len(body) - 2}-{len(body) + 9}")
    assert (part["ContentLength"], part["ContentRange"]) == (2, f"bytes {len(body) - 2}-{len(body) - 1}/{len(body)}")


def test_an_etag_is_the_md5_and_the_same_in_all_answers(place: Place) -> None:
    body = b"contents"
    written = place.store.replace("k", body, {}, None)
    info = place.store.head("k")
    assert info is not None
    quoted = f'"{hashlib.md5(body).hexdigest()}"'
    assert f'"{written}"' == f'"{info.etag}"' == quoted
    listed = place.client.list_objects_v2(Bucket=place.bucket)["Contents"]
    assert [one["ETag"] for one in listed] == [place.client.get_object(Bucket=place.bucket, Key="k")["ETag"]] == [quoted]
    assert place.client.get_object(Bucket=place.bucket, Key="k", IfMatch=quoted)["ETag"] == quoted
    assert place.refusal("get_object", Key="k", IfMatch='"0"') == (412, "PreconditionFailed")


def test_a_create_writes_once(place: Place) -> None:
    place.store.create("block", b"first")
    with pytest.raises(ObjectExists):
        place.store.create("block", b"second")
    assert place.store.get("block") == b"first"
    assert place.refusal("put_object", Key="block", Body=b"", IfNoneMatch="*") == (412, "PreconditionFailed")
    place.store.delete(["block"])
    place.store.create("block", b"third")
    assert place.store.get("block") == b"third"
    place.store.complete_upload(place.staged("large"))
    with pytest.raises(ObjectExists):
        place.store.create("large", b"small")


def test_of_many_concurrent_creates_one_wins(place: Place) -> None:
    start = threading.Barrier(8)

    def create(number: int) -> bool:
        start.wait()
        try:
            place.store.create("raced", str(number).encode())
        except ObjectExists:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = [*pool.map(create, range(8))]
    assert sum(won) == 1
    assert place.store.get("raced") == str(won.index(True)).encode()


def test_a_replace_writes_over_what_was_expected_and_nothing_else(place: Place) -> None:
    store = place.store
    first = store.replace("k", b"1", {"n": "1"}, None)
    second = store.replace("k", b"2", {"n": "2"}, first)
    for expected in (None, first):
        with pytest.raises(ObjectChanged) as changed:
            store.replace("k", b"3", {}, expected)
        assert changed.value.now is not None
        assert (changed.value.now.etag, changed.value.now.metadata) == (second, {"n": "2"})
    assert (store.get("k"), place.refusal("put_object", Key="k", Body=b"", IfMatch=first)) == (b"2", (412, "PreconditionFailed"))
    store.delete(["k"])
    with pytest.raises(ObjectChanged) as changed:
        store.replace("k", b"3", {}, second)
    assert changed.value.now is None
    assert place.refusal("put_object", Key="k", Body=b"", IfMatch=second) in {(404, "NoSuchKey"), (412, "PreconditionFailed")}
    assert store.head("k") is None


def test_a_listing_is_in_the_order_of_utf8_and_folders_are_those_of_a_prefix(place: Place) -> None:
    ordered = place.traits.lists_in_order_of_keys
    for key in reversed(DISTINCT):
        place.store.put(key, b"x")
    found = [info.key for info in place.store.list("")]
    assert found == DISTINCT if ordered else sorted(found) == DISTINCT
    for key in ("q/b/2", "q/a/1", "q/b/1/deeper", "q/z", "q/é/1", "qq/1"):
        place.store.put(key, b"x")
    assert [*place.store.folders("q/")] == ["q/a/", "q/b/", "q/é/"]
    assert [*place.store.folders("q")] == ["q/", "qq/"]
    assert [info.key for info in place.store.list("q/b")] == ["q/b/1/deeper", "q/b/2"]
    assert [info.size for info in place.store.list("q/a/1")] == [1]
    assert all(
        abs((info.modified or datetime.min.replace(tzinfo=UTC)) - datetime.now(UTC)) < timedelta(minutes=5)
        for info in place.store.list("q")
    )


def test_pages_of_a_listing_are_parts_of_it(place: Place) -> None:
    keys = ["p/a", "p/b/1", "p/b/2", "p/b/3", "p/c", "p/d/1", "p/é"]
    for key in (*keys, "q"):
        place.store.put(key, b"x")
    pages = [*place.client.get_paginator("list_objects_v2").paginate(Bucket=place.bucket, Prefix="p/", MaxKeys=2)]
    assert [one["Key"] for page in pages for one in page["Contents"]] == keys
    assert [page["KeyCount"] for page in pages] == [2, 2, 2, 1]
    assert [page["IsTruncated"] for page in pages] == [True, True, True, False]
    pages = [*place.client.get_paginator("list_objects_v2").paginate(Bucket=place.bucket, Prefix="p/", MaxKeys=2, Delimiter="/")]
    assert [one["Key"] for page in pages for one in page.get("Contents", [])] == ["p/a", "p/c", "p/é"]
    assert [one["Prefix"] for page in pages for one in page.get("CommonPrefixes", [])] == ["p/b/", "p/d/"]


@pytest.mark.parametrize("name", ["memory", *(pytest.param(name, marks=pytest.mark.slow) for name in ("moto", "ceph", "seaweedfs"))])
def test_more_than_a_page_of_objects_is_listed_and_deleted(make_place: Callable[[str], Place], name: str) -> None:
    place = make_place(name)
    keys = [f"many/{number:05}" for number in range(DELETE_BATCH + 5)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: place.store.put(key, b"x"), [*keys, "other/1"]))
    assert [info.key for info in place.store.list("many/")] == keys
    assert [*place.store.folders("")] == ["many/", "other/"]
    place.store.delete([*(f"missing/{number}" for number in range(3)), *keys])
    assert [info.key for info in place.store.list("")] == ["other/1"]
    refused = place.refusal("delete_objects", Delete={"Objects": [{"Key": key} for key in keys]})
    assert refused[0] == (400 if place.traits.limits_deletions else 0)


def test_a_deletion_tells_what_was_deleted_unless_it_is_quiet(place: Place) -> None:
    place.store.put("there", b"x")
    named = [{"Key": "there"}, {"Key": "missing"}]
    answer = place.client.delete_objects(Bucket=place.bucket, Delete={"Objects": named})
    assert sorted(one["Key"] for one in answer["Deleted"]) == ["missing", "there"]
    assert "Errors" not in answer
    answer = place.client.delete_objects(Bucket=place.bucket, Delete={"Objects": named, "Quiet": True})
    assert ("Deleted" in answer, "Errors" in answer) == (not place.traits.is_quiet, False)
    place.client.delete_object(Bucket=place.bucket, Key="missing")


CALLS: dict[str, Callable[[S3Store], object]] = {
    "PutObject": lambda store: store.put("k", b"x"),
    "a create": lambda store: store.create("k", b"x"),
    "a replace": lambda store: store.replace("k", b"x", {}, "etag"),
    "GetObject": lambda store: store.get("k"),
    "DeleteObjects": lambda store: store.delete(["k"]),
    "ListObjectsV2": lambda store: list(store.list("")),
    "ListMultipartUploads": lambda store: list(store.list_uploads("")),
    "CreateMultipartUpload": lambda store: store.stage_joined([], b"x", "k", {}),
    "AbortMultipartUpload": lambda store: store.abort_upload("k", "id"),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_bucket_that_does_not_exist_is_a_config_error(place: Place, call: str) -> None:
    if not place.traits.refuses_unknown_buckets:
        return
    with pytest.raises(ConfigError, match=r"no-such-bucket.*s3_bucket_name"):
        CALLS[call](S3Store(replace(place.store.settings, bucket="no-such-bucket")))


def test_probes_leave_nothing_and_learn_the_time(place: Place) -> None:
    try_upload(UploadProbe("lake/check", place.store.settings))
    assert [*place.store.list(""), *place.store.list_uploads("")] == []
    answer = ask(place.store.settings)
    assert answer.ahead_s is not None
    assert abs(answer.ahead_s) < 60


def test_a_store_in_memory_that_knows_no_conditions_overwrites(make_place: Callable[[str], Place]) -> None:
    place = make_place("memory")
    bucket_of(place.store.settings).has_conditions = lambda key: key != "overwritten"
    for key in ("overwritten", "kept"):
        place.store.put(key, b"1")
    place.store.create("overwritten", b"2")
    place.store.replace("overwritten", b"3", {}, "other")
    assert place.store.get("overwritten") == b"3"
    with pytest.raises(ObjectExists):
        place.store.create("kept", b"2")
