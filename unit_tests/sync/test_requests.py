"""What the requests to S3 carry: encryption, the credentials of a role, and nothing of the keys that are not for this bucket."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unit_tests.lake.buckets import REGION
from unit_tests.lake.inline_connector import InlineConnector
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import catalog
from unit_tests.lake.shop import complete, state, stream, users
from unit_tests.s3_proxy import S3Proxy

CATALOG = catalog(stream())
MESSAGES = [*users([1, 2]), state(2), complete()]
ROLE = "arn:aws:iam::123456789012:role/lake-writer"


def proxied(lake: Lake, proxy: S3Proxy, environment: Mapping[str, str] | None = None, **options: Any) -> InlineConnector:
    """A connector whose requests the proxy sees."""
    return lake.through(replace(lake.settings, endpoint=proxy.endpoint)).connector(environment, **options)


def test_every_object_is_written_with_the_encryption_asked_for(lake: Lake, s3_proxy: S3Proxy) -> None:
    proxied(lake, s3_proxy, s3={"sse": "AES256"}).write(CATALOG, MESSAGES).expect_success()
    creating = [call for call in s3_proxy.calls if call.action in ("PutObject", "CreateMultipartUpload")]
    assert creating
    assert {call.headers.get("x-amz-server-side-encryption") for call in creating} == {"AES256"}
    client = lake.bucket.server.client()
    for key in lake.bucket.list_keys():
        assert client.head_object(Bucket=lake.bucket.name, Key=key)["ServerSideEncryption"] == "AES256", key
    lake.verify_at_rest()


def test_without_the_option_the_bucket_decides_about_encryption(lake: Lake, s3_proxy: S3Proxy) -> None:
    assert proxied(lake, s3_proxy).check().connection_status["status"] == "SUCCEEDED"
    assert s3_proxy.calls
    assert not [call for call in s3_proxy.calls if "x-amz-server-side-encryption" in call.headers]


def test_a_role_is_assumed_with_the_external_id_and_its_keys_sign_every_request(lake: Lake, s3_proxy: S3Proxy) -> None:
    access_key = "AKIAOFTHEBOOTSTRAP"
    environment = {
        "AWS_ACCESS_KEY_ID": access_key,
        "AWS_SECRET_ACCESS_KEY": "any-secret",
        "AWS_ASSUME_ROLE_EXTERNAL_ID": "workspace-42",
        "AWS_ENDPOINT_URL_STS": s3_proxy.endpoint,
        "AWS_REGION": REGION,
    }
    connector = proxied(lake, s3_proxy, environment, access_key_id=None, secret_access_key=None, role_arn=ROLE)
    connector.write(CATALOG, MESSAGES).expect_success()

    assumed = [call for call in s3_proxy.calls if call.action == "STS"]
    assert assumed
    assert all(b"ExternalId=workspace-42" in call.body for call in assumed)
    assert all(b"lake-writer" in call.body for call in assumed)
    signed = [call for call in s3_proxy.calls if call.action != "STS"]
    assert signed
    assert all("x-amz-security-token" in call.headers for call in signed)
    assert not [call for call in signed if access_key in call.headers["authorization"]], "the bootstrap key signed a request to S3"
    assert lake.ids() == [1, 2]


def test_the_expected_bucket_owner_is_sent_with_every_request(lake: Lake, s3_proxy: S3Proxy) -> None:
    outcome = proxied(lake, s3_proxy, s3={"expected_bucket_owner": "111122223333"}).check()
    assert outcome.connection_status["status"] == "SUCCEEDED", outcome.describe()
    assert s3_proxy.calls
    assert {call.headers.get("x-amz-expected-bucket-owner") for call in s3_proxy.calls} == {"111122223333"}
