"""What the connector asks of a store's uploads, versions and of reading through Arrow, of the S3 in memory and of real servers."""

from __future__ import annotations

import hashlib
import io
import random
from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import dataset as ds

from destination_s3_spark.errors import ConfigError
from destination_s3_spark.storage import credentials
from destination_s3_spark.storage.object_store import ObjectExists, ObjectNotFound, ObjectRange, StagedUpload, UploadFailed
from destination_s3_spark.storage.old_versions import delete_versions, old_versions
from destination_s3_spark.storage.ranged import RangedFile
from destination_s3_spark.storage.staging import FIRST_PART_BYTES, StagedFileSink
from unit_tests.cases import each
from unit_tests.lake.memory_client import bucket_of
from unit_tests.storage.contract import LEAST_PART_BYTES, Place

KEY = "t/é x+y&z/f.parquet"


def test_a_staged_upload_is_invisible_listed_and_then_complete_or_gone(place: Place) -> None:
    store = place.store
    one, other = place.staged(KEY), place.staged("t/other")
    assert [*store.list("")] == []
    assert sorted(store.list_uploads("t/")) == sorted([(one.key, one.upload_id), (other.key, other.upload_id)])
    assert [*store.list_uploads("elsewhere/")] == []
    store.complete_upload(one)
    for _ in range(2):
        store.abort_upload(other.key, other.upload_id)
    assert [(info.key, info.size) for info in store.list("t/")] == [(KEY, 6)]
    assert [*store.list_uploads("")] == []
    with pytest.raises(UploadFailed):
        store.complete_upload(other)
    assert store.head("t/other") is None


@each("completes_again", [True, False])
def test_an_upload_in_memory_completes_twice_or_once_and_its_object_stays(
    make_place: Callable[[str], Place], completes_again: bool
) -> None:
    place = make_place("memory")
    bucket_of(place.store.settings).completes_again = completes_again
    upload = place.staged("k")
    place.store.complete_upload(upload)
    if completes_again:
        place.store.complete_upload(upload)
    else:
        with pytest.raises(UploadFailed):
            place.store.complete_upload(upload)
    assert place.store.get("k") == b"staged"


def test_an_upload_that_completes_twice_leaves_its_object(place: Place) -> None:
    upload = place.staged("k")
    place.store.complete_upload(upload)
    with suppress(UploadFailed):
        place.store.complete_upload(upload)
    place.store.abort_upload(upload.key, upload.upload_id)
    assert place.store.get("k") == b"staged"
    assert [*place.store.list_uploads("")] == []


def test_parts_make_one_object_in_the_order_of_their_numbers(place: Place) -> None:
    body = random.Random(1).randbytes(2 * FIRST_PART_BYTES + 3)
    with StagedFileSink(place.store.settings, "k", {"Ab-Generation-Id": "3"}) as sink:
        for start in range(0, len(body), 700_001):
            sink.write(body[start : start + 700_001])
        upload = sink.stage()
    assert (upload.size, len(upload.part_etags)) == (len(body), 3)
    place.store.put("k", b"what was there before", {"other": "1"})
    place.store.complete_upload(upload)
    info = place.store.head("k")
    assert info is not None
    assert (info.size, info.metadata) == (len(body), {"ab-generation-id": "3"})
    digests = b"".join(hashlib.md5(body[start : start + FIRST_PART_BYTES]).digest() for start in range(0, len(body), FIRST_PART_BYTES))
    assert info.etag == f"{hashlib.md5(digests).hexdigest()}-3"
    assert place.store.get("k") == body
    assert place.store.get_range("k", FIRST_PART_BYTES - 5, FIRST_PART_BYTES + 5, len(body)) == body[FIRST_PART_BYTES - 5 :][:10]


def test_a_part_that_is_sent_again_takes_the_place_of_the_first(place: Place) -> None:
    upload_id = place.begun("k")
    old, new = place.part("k", upload_id, 1, b"old"), place.part("k", upload_id, 1, b"new")
    assert old != new
    if not place.traits.refuses_replaced_parts:
        place.store.complete_upload(StagedUpload("k", upload_id, (old,), 3))
        assert place.store.get("k") == b"old"
        return
    with pytest.raises(UploadFailed):
        place.store.complete_upload(StagedUpload("k", upload_id, (old,), 3))
    assert place.store.head("k") is None
    place.store.complete_upload(StagedUpload("k", upload_id, (new,), 3))
    assert place.store.get("k") == b"new"


def test_an_upload_is_completed_with_the_parts_that_it_has_in_their_order(place: Place) -> None:
    upload_id = place.begun("k")
    large = bytes(LEAST_PART_BYTES)
    etags = [place.part("k", upload_id, number, body) for number, body in ((1, large), (2, b"small"), (3, b"last"))]

    def refusal(*parts: tuple[int, str]) -> tuple[int, str]:
        named = {"Parts": [{"PartNumber": number, "ETag": etag} for number, etag in parts]}
        return place.refusal("complete_multipart_upload", Key="k", UploadId=upload_id, MultipartUpload=named)

    one, two, three = ((number, etag) for number, etag in enumerate(etags, 1))
    assert refusal(one, (2, etags[2])) == (400, "InvalidPart")
    assert refusal(one, (4, etags[0])) == (400, "InvalidPart")
    assert refusal(two, one) == (400, "InvalidPartOrder") or not place.traits.checks_order_of_parts
    assert refusal(one, two, three) == (400, "EntityTooSmall")
    assert place.store.head("k") is None
    assert refusal(one, (2, place.part("k", upload_id, 2, large)), three) == (0, "")
    assert place.store.get("k") == large + large + b"last"


def test_a_part_of_an_upload_that_has_gone_is_refused(place: Place) -> None:
    upload = place.staged("k")
    place.store.abort_upload(upload.key, upload.upload_id)
    for upload_id in (upload.upload_id, "no-such-upload"):
        parts = {"Parts": [{"PartNumber": 1, "ETag": upload.part_etags[0]}]}
        late = place.refusal("upload_part", Key="k", UploadId=upload_id, PartNumber=2, Body=b"late")
        completed = place.refusal("complete_multipart_upload", Key="k", UploadId=upload_id, MultipartUpload=parts)
        if place.traits.says_that_uploads_are_gone:
            assert late == completed == (404, "NoSuchUpload")
        assert {late[0], completed[0]} <= {404, 500}
    assert [*place.store.list(""), *place.store.list_uploads("")] == []


def test_uploads_are_listed_in_pages(place: Place) -> None:
    begun = sorted((key, place.begun(key)) for key in ("t/a", "t/a", "t/a", "t/b", "t/c", "u"))
    pages = [*place.client.get_paginator("list_multipart_uploads").paginate(Bucket=place.bucket, Prefix="t/", MaxUploads=2)]
    assert len(pages) == (3 if place.traits.pages_uploads else 1)
    assert sorted((one["Key"], one["UploadId"]) for page in pages for one in page.get("Uploads", [])) == begun[:-1]
    if place.traits.lists_in_order_of_keys:
        assert [one["Key"] for page in pages for one in page.get("Uploads", [])] == ["t/a", "t/a", "t/a", "t/b", "t/c"]
    assert sorted(place.store.list_uploads("")) == begun


def test_a_copy_of_several_parts_is_staged_and_has_its_own_metadata(place: Place) -> None:
    body = random.Random(2).randbytes(2 * LEAST_PART_BYTES + 7)
    place.store.put(KEY, body, {"ab-generation-id": "1"})
    upload = place.store.stage_copy(KEY, KEY + ".copy", {"ab-generation-id": "2"})
    assert (len(upload.part_etags), upload.size, place.store.head(upload.key)) == (3, len(body), None)
    place.store.complete_upload(upload)
    info = place.store.head(upload.key)
    assert info is not None
    assert (place.store.get(upload.key), info.metadata) == (body, {"ab-generation-id": "2"})


def test_ranges_are_joined_with_a_tail(place: Place) -> None:
    body = random.Random(3).randbytes(LEAST_PART_BYTES + 100)
    for key in ("a", KEY):
        place.store.put(key, body)
    ranges = [ObjectRange("a", 100, len(body)), ObjectRange(KEY, 1, LEAST_PART_BYTES + 1)]
    upload = place.store.stage_joined(ranges, b"tail", "joined", {"n": "1"})
    place.store.complete_upload(upload)
    assert place.store.get("joined") == body[100:] + body[1 : LEAST_PART_BYTES + 1] + b"tail"
    with pytest.raises(ObjectNotFound if place.traits.names_missing_sources else ConfigError):
        place.store.stage_joined([ObjectRange("missing", 0, LEAST_PART_BYTES)], b"tail", "joined", {})
    assert [*place.store.list_uploads("")] == []


def test_a_range_beyond_the_end_is_not_copied(place: Place) -> None:
    place.store.put("a", b"0123456789")
    upload_id = place.begun("k")
    source = {"Bucket": place.bucket, "Key": "a"}
    refused = place.refusal("upload_part_copy", Key="k", UploadId=upload_id, PartNumber=1, CopySource=source, CopySourceRange="bytes=5-10")
    assert refused in ({(400, "InvalidArgument"), (416, "InvalidRange")} if place.traits.checks_copied_ranges else {(0, "")})


def test_the_source_of_a_copy_may_have_a_percent_sign(place: Place) -> None:
    place.store.put("part=%5B1%5D/k", b"body")
    if place.traits.decodes_sources_once:
        place.store.complete_upload(place.store.stage_copy("part=%5B1%5D/k", "copy"))
        assert place.store.get("copy") == b"body"
    else:
        with pytest.raises(ObjectNotFound):
            place.store.stage_copy("part=%5B1%5D/k", "copy")


def test_what_is_not_current_is_listed_and_deleted_for_good(place: Place) -> None:
    place.store.put("t/never versioned", b"0")
    assert old_versions(place.again(), ["t/"]) == ([], [])
    place.keep_versions()
    for body in (b"1", b"2", b"3"):
        place.store.put("t/k", body)
    place.store.put("t/never versioned", b"1")
    place.store.put("t/deleted", b"1")
    place.store.delete(["t/deleted"])
    place.store.put("u/k", b"1")
    place.store.put("u/k", b"2")

    assert [info.key for info in place.store.list("t/")] == ["t/k", "t/never versioned"]
    with pytest.raises(ObjectNotFound):
        place.store.get("t/deleted")
    old = old_versions(place.again(), ["t/"])
    assert sorted(key for key, _ in old.versions) == ["t/deleted", "t/k", "t/k", "t/never versioned"]
    assert [key for key, _ in old.markers] == ["t/deleted"]
    assert ("t/never versioned", "null") in old.versions
    bodies = [
        place.client.get_object(Bucket=place.bucket, Key="t/k", VersionId=one)["Body"].read() for key, one in old.versions if key == "t/k"
    ]
    assert bodies == [b"2", b"1"], "the newest one comes first"
    pages = [*place.client.get_paginator("list_object_versions").paginate(Bucket=place.bucket, Prefix="t/", MaxKeys=2)]
    assert len(pages) == 4
    assert [one["Key"] for page in pages for one in page.get("Versions", [])] == ["t/deleted", *["t/k"] * 3, *["t/never versioned"] * 2]
    delete_versions(place.store, old)
    assert old_versions(place.again(), ["t/"]) == ([], [])
    assert {info.key: place.store.get(info.key) for info in place.store.list("t/")} == {"t/k": b"3", "t/never versioned": b"1"}
    assert len(old_versions(place.again(), ["u/"]).versions) == 1


def test_a_bucket_without_new_versions_keeps_the_old_ones(place: Place) -> None:
    place.keep_versions()
    place.store.put("k", b"1")
    place.keep_versions("Suspended")
    place.store.put("k", b"2")
    place.store.put("k", b"3")
    assert place.store.get("k") == b"3"
    old = old_versions(place.again(), [""]).versions
    kept = [b"1"] if place.traits.keeps_old_versions_when_suspended else []
    assert [version_of(place, key, version) for key, version in old] == kept


def version_of(place: Place, key: str, version: str) -> bytes:
    body: bytes = place.client.get_object(Bucket=place.bucket, Key=key, VersionId=version)["Body"].read()
    return body


def test_a_store_that_keeps_versions_says_so_and_brings_one_back(place: Place) -> None:
    store = place.again()
    store.put("k", b"0")
    store.get("k")
    assert not store.may_overwrite
    place.keep_versions()
    for body in (b"1", b"2", b"3"):
        store.put("k", body)
    store.put("k2", b"of another object")
    store.get("k")
    assert store.may_overwrite
    store.restore("k", lambda body: body == b"1")
    assert store.get("k") == b"1"
    store.put("k", b"4")
    store.restore("k", lambda body: body == b"none has these bytes")
    assert store.get("k") == b"1"
    assert store.get("k2") == b"of another object"


def test_an_object_is_created_over_the_mark_of_a_deleted_one(place: Place) -> None:
    place.keep_versions()
    place.store.create("k", b"1")
    place.store.delete(["k"])
    place.store.create("k", b"2")
    assert place.store.get("k") == b"2"
    if place.traits.creates_once_among_versions:
        with pytest.raises(ObjectExists):
            place.store.create("k", b"3")
        assert place.store.get("k") == b"2"
    else:
        place.store.create("k", b"3")
        assert place.store.may_overwrite


def parquet(rows: int) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": range(rows)}), sink, row_group_size=1000)
    return sink.getvalue()


def test_arrow_reads_objects_by_their_path_and_says_which_one_is_missing(place: Place) -> None:
    keys = [KEY, "t/second.parquet"]
    for key in keys:
        place.store.put(key, parquet(5000))
    files = credentials.arrow_filesystem(place.store.settings)
    assert files.get_file_info(f"{place.bucket}/{KEY}").size == len(parquet(5000))
    format_ = ds.ParquetFileFormat()
    fragments = [format_.make_fragment(f"{place.bucket}/{key}", files, file_size=len(parquet(5000))) for key in keys]
    table = ds.FileSystemDataset(fragments, fragments[0].physical_schema, format_, files)
    assert table.to_table(filter=ds.field("id") < 3)["id"].to_pylist() == [0, 1, 2, 0, 1, 2]
    assert pq.ParquetFile(RangedFile(place.store, KEY, len(parquet(5000)))).read_row_group(1)["id"].to_pylist() == [*range(1000, 2000)]
    place.store.delete([KEY])
    with pytest.raises(OSError, match=r"(?i)no_such_key|resource_not_found|not exist"):
        table.to_table()
