"""What the requests to S3 carry: encryption, the credentials of a role, and nothing of the keys that are not for this bucket."""

from __future__ import annotations

from integration_tests.lake import ProcessLake
from integration_tests.s3_proxy import S3Proxy
from unit_tests.lake.buckets import REGION, S3Server
from unit_tests.lake.messages import catalog
from unit_tests.lake.shop import complete, state, stream, users

CATALOG = catalog(stream())
MESSAGES = [*users([1, 2]), state(2), complete()]
ROLE = "arn:aws:iam::123456789012:role/lake-writer"


def test_every_object_is_written_with_the_encryption_asked_for(moto_lake: ProcessLake, proxy: S3Proxy) -> None:
    moto_lake.connector(proxy.endpoint, s3={"sse": "AES256"}).write(CATALOG, MESSAGES).expect_success()
    creating = [call for call in proxy.calls if call.action in ("PutObject", "CreateMultipartUpload")]
    assert creating
    assert {call.headers.get("x-amz-server-side-encryption") for call in creating} == {"AES256"}
    client = moto_lake.bucket.server.client()
    for key in moto_lake.bucket.list_keys():
        assert client.head_object(Bucket=moto_lake.bucket.name, Key=key)["ServerSideEncryption"] == "AES256", key
    moto_lake.verify_at_rest()


def test_without_the_option_the_bucket_decides_about_encryption(moto_lake: ProcessLake, proxy: S3Proxy) -> None:
    moto_lake.connector(proxy.endpoint).check()
    assert not [call for call in proxy.calls if "x-amz-server-side-encryption" in call.headers]


def test_a_role_is_assumed_with_the_external_id_and_its_keys_sign_every_request(
    moto_lake: ProcessLake, proxy: S3Proxy, moto: S3Server
) -> None:
    environment = {
        "AWS_ACCESS_KEY_ID": moto.access_key,
        "AWS_SECRET_ACCESS_KEY": moto.secret_key,
        "AWS_ASSUME_ROLE_EXTERNAL_ID": "workspace-42",
        "AWS_ENDPOINT_URL_STS": proxy.endpoint,
        "AWS_REGION": REGION,
    }
    connector = moto_lake.connector(proxy.endpoint, environment, access_key_id=None, secret_access_key=None, role_arn=ROLE)
    connector.write(CATALOG, MESSAGES).expect_success()

    assumed = [call for call in proxy.calls if call.action == "STS"]
    assert assumed
    assert all("ExternalId=workspace-42" in call.form for call in assumed)
    assert all("lake-writer" in call.form for call in assumed)
    signed = [call for call in proxy.calls if call.action != "STS"]
    assert signed
    assert all("x-amz-security-token" in call.headers for call in signed)
    assert not [call for call in signed if moto.access_key in call.headers["authorization"]], "the bootstrap key signed a request to S3"
    assert moto_lake.ids() == [1, 2]


def test_the_expected_bucket_owner_is_sent_with_every_request(moto_lake: ProcessLake, proxy: S3Proxy) -> None:
    outcome = moto_lake.connector(proxy.endpoint, s3={"expected_bucket_owner": "111122223333"}).check()
    assert outcome.exit_code == 0
    assert proxy.calls
    assert {call.headers.get("x-amz-expected-bucket-owner") for call in proxy.calls} == {"111122223333"}
