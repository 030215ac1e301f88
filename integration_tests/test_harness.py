"""The test kit itself: the proxy knows what a request is and fails it as told."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

from integration_tests.fault_proxy import Fault, FaultProxy, When
from unit_tests.cases import each
from unit_tests.lake.buckets import S3Server, new_bucket
from unit_tests.s3_proxy import s3_action

REQUESTS = [
    ("PUT", "/b/k%20/x", {}, ("PutObject", "k /x")),
    ("PUT", "/b/k?partNumber=1&uploadId=u", {}, ("UploadPart", "k")),
    ("PUT", "/b/k?partNumber=1&uploadId=u", {"x-amz-copy-source": "b/s"}, ("UploadPartCopy", "k")),
    ("POST", "/b/k?uploads", {}, ("CreateMultipartUpload", "k")),
    ("POST", "/b/k?uploadId=u", {}, ("CompleteMultipartUpload", "k")),
    ("DELETE", "/b/k?uploadId=u", {}, ("AbortMultipartUpload", "k")),
    ("DELETE", "/b/k", {}, ("DeleteObject", "k")),
    ("POST", "/b?delete", {}, ("DeleteObjects", "")),
    ("GET", "/b?list-type=2&prefix=p%2F", {}, ("ListObjectsV2", "p/")),
    ("GET", "/b?prefix=p", {}, ("ListObjects", "p")),
    ("GET", "/b?uploads&prefix=p", {}, ("ListMultipartUploads", "p")),
    ("GET", "/b/k", {}, ("GetObject", "k")),
    ("HEAD", "/b/k", {}, ("HeadObject", "k")),
    ("HEAD", "/b", {}, ("HeadBucket", "")),
    ("POST", "/", {}, ("STS", "")),
]


@each(("method", "path", "headers", "expected"), REQUESTS)
def test_the_proxy_knows_the_action_of_a_request(method: str, path: str, headers: dict[str, str], expected: tuple[str, str]) -> None:
    assert s3_action(method, path, headers) == expected


def test_the_proxy_fails_the_calls_it_was_told_to_fail(moto: S3Server, proxy: FaultProxy) -> None:
    bucket = new_bucket(moto).through(proxy.endpoint)
    client = bucket.server.client()
    proxy.inject(Fault("PutObject", skip=1, times=1))
    proxy.inject(Fault("PutObject", key_contains="lost", status=0, when=When.AFTER))
    client.put_object(Bucket=bucket.name, Key="first", Body=b"1")
    with pytest.raises(ClientError, match="SlowDown"):
        client.put_object(Bucket=bucket.name, Key="second", Body=b"2")
    with pytest.raises(ConnectionClosedError):
        client.put_object(Bucket=bucket.name, Key="lost-answer", Body=b"3")
    assert bucket.list_keys() == ["first", "lost-answer"]
    assert [call.status for call in proxy.calls if call.action == "PutObject"] == [200, 503, 0]
