from __future__ import annotations

import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.awsrequest import AWSHTTPConnection

from destination_s3_spark.errors import ConfigError
from destination_s3_spark.storage.credentials import arrow_filesystem, forwardable
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import AccessKey, ClientLimits, S3Settings
from destination_s3_spark.storage.staging import StagedFileSink
from unit_tests.cases import each
from unit_tests.s3_proxy import Reply

ONCE = ClientLimits(attempts=1, connect_timeout_s=2, read_timeout_s=5)
ROLE = "arn:aws:iam::123456789012:role/airbyte"
ROLE_PATH = "/latest/meta-data/iam/security-credentials/airbyte"


@pytest.fixture
def proxied(s3_settings: S3Settings, s3_proxy: Any) -> S3Settings:
    return replace(s3_settings, endpoint=s3_proxy.endpoint)


@pytest.fixture
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """An environment that has none: no variables, files or instance metadata."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def base_credentials(no_credentials: None, monkeypatch: pytest.MonkeyPatch, s3_proxy: Any) -> None:
    """Base keys in the environment, and STS behind the proxy."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIABASE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "base-secret")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", s3_proxy.endpoint)


def use_every_call(settings: S3Settings) -> None:
    store = S3Store(replace(settings, limits=ONCE))
    store.put("a", b"x")
    store.create("b", b"x")
    store.get("a")
    with StagedFileSink(replace(settings, limits=ONCE), "c") as sink:
        sink.write(b"x")
        store.complete_upload(sink.stage())
    copy = store.stage_copy("a", "d")
    list(store.list_uploads(""))
    store.abort_upload(copy.key, copy.upload_id)
    store.delete([info.key for info in store.list("")])


def test_cloudflare_wants_parts_of_one_size() -> None:
    hosts = ["https://0123.r2.cloudflarestorage.com", "https://0123.eu.r2.cloudflarestorage.com:443/", "https://r2.example.com", None]
    assert [S3Settings("lake", endpoint=host).equal_parts for host in hosts] == [True, True, False, False]


def test_threads_that_begin_together_share_one_client(s3_settings: S3Settings) -> None:
    together = Barrier(8)

    def client(_: int) -> int:
        together.wait()
        return id(S3Store(replace(s3_settings, limits=ClientLimits(read_timeout_s=77))).client)

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(client, range(8)))) == 1


def test_secrets_show_neither_in_repr_nor_in_str_and_settings_travel_by_pickle() -> None:
    settings = S3Settings("b", credentials=AccessKey("AKIAVISIBLE", "planted-secret", "planted-token"))
    for text in (repr(settings), str(settings), repr(settings.credentials), str(settings.credentials), f"{settings}"):
        assert not {"AKIAVISIBLE", "planted-secret", "planted-token"} & set(text.replace("'", " ").replace(")", " ").split())
        assert "planted" not in text
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_an_endpoint_is_addressed_by_path_and_without_newer_checksums(proxied: S3Settings, s3_proxy: Any) -> None:
    use_every_call(proxied)
    assert all(call.target.startswith(f"/{proxied.bucket}") for call in s3_proxy.calls)
    written = [call for call in s3_proxy.calls if call.action in {"PutObject", "UploadPart"}]
    assert len(written) == 3
    assert not any(name.startswith(("x-amz-checksum", "x-amz-sdk-checksum")) for call in written for name in call.headers)


def test_an_endpoint_gets_the_bucket_in_the_host_name_if_it_wants_so(
    s3_settings: S3Settings, s3_proxy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def script(call: Any) -> Reply:
        """Answer as a store does that serves a bucket at its host name alone, to a client that reaches it through a proxy."""
        url = urlsplit(call.target)
        if url.hostname != f"{s3_settings.bucket}.store.example":
            return Reply.error(403, "SecondLevelDomainForbidden")
        call.target = f"{url.path}?{url.query}"
        return call.forward()

    monkeypatch.setenv("http_proxy", s3_proxy.endpoint)
    s3_proxy.script = script
    of_store = replace(s3_settings, endpoint="http://store.example", limits=ONCE)
    use_every_call(replace(of_store, addressing="virtual"))
    assert {call.headers["host"] for call in s3_proxy.calls} == {f"{s3_settings.bucket}.store.example"}
    with pytest.raises(ConfigError, match=r"s3\.addressing to virtual"):
        S3Store(of_store).put("k", b"x")


@pytest.mark.parametrize(
    ("region", "endpoint_region", "signed"), [("", None, "us-east-1"), ("eu-west-1", None, "eu-west-1"), ("eu-west-1", "gra", "gra")]
)
def test_requests_are_signed_for_the_region_of_the_store(
    proxied: S3Settings, s3_proxy: Any, region: str, endpoint_region: str | None, signed: str
) -> None:
    S3Store(replace(proxied, region=region, endpoint_region=endpoint_region, limits=ONCE)).put("k", b"x")
    assert f"/{signed}/s3/aws4_request" in s3_proxy.calls[0].headers["authorization"]


@each(("addressing", "virtual"), [("path", False), ("virtual", True)])
def test_arrow_asks_the_store_as_the_connector_does(s3_settings: S3Settings, addressing: Any, virtual: bool) -> None:
    made: Any = arrow_filesystem(replace(s3_settings, addressing=addressing, endpoint_region="fr-par")).__reduce__()
    assert (made[1][0]["region"], made[1][0]["force_virtual_addressing"]) == ("fr-par", virtual)


def test_no_body_waits_until_the_server_asks_for_it(proxied: S3Settings, s3_proxy: Any) -> None:
    use_every_call(proxied)
    assert not [call.action for call in s3_proxy.calls if "expect" in call.headers]


def test_a_body_is_sent_in_few_pieces(s3_settings: S3Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    send = AWSHTTPConnection.send

    def note(connection: AWSHTTPConnection, data: Any) -> None:
        sent.append(len(data))
        send(connection, data)

    monkeypatch.setattr(AWSHTTPConnection, "send", note)
    S3Store(s3_settings).put("a", bytes(300 * 2**10))
    assert [size for size in sent if size > 2**10] == [128 * 2**10, 128 * 2**10, 44 * 2**10]


def test_every_request_says_whose_it_is(proxied: S3Settings, s3_proxy: Any) -> None:
    use_every_call(proxied)
    assert {call.headers["user-agent"].split()[0] for call in s3_proxy.calls} == {"destination-s3-spark"}


def test_checksums_can_be_asked_for(proxied: S3Settings, s3_proxy: Any) -> None:
    S3Store(replace(proxied, checksums="when_supported", limits=ONCE)).put("a", b"x")
    assert any(name.startswith("x-amz-checksum") for name in s3_proxy.calls[0].headers)


def test_encryption_is_asked_for_where_an_object_begins_and_nowhere_else(proxied: S3Settings, s3_proxy: Any) -> None:
    use_every_call(replace(proxied, sse="aws:kms", kms_key_id="key-1"))
    encrypted = {call.action for call in s3_proxy.calls if call.headers.get("x-amz-server-side-encryption") == "aws:kms"}
    assert encrypted == {"PutObject", "CreateMultipartUpload"}
    assert {call.action for call in s3_proxy.calls if call.headers.get("x-amz-server-side-encryption-aws-kms-key-id")} == encrypted


def test_the_expected_owner_goes_with_every_call(proxied: S3Settings, s3_proxy: Any) -> None:
    use_every_call(replace(proxied, expected_bucket_owner="123456789012"))
    assert len({call.action for call in s3_proxy.calls}) == 11
    assert all(call.headers.get("x-amz-expected-bucket-owner") == "123456789012" for call in s3_proxy.calls)


def test_without_any_credentials_the_error_says_what_to_set(proxied: S3Settings, no_credentials: None) -> None:
    with pytest.raises(ConfigError, match="access_key_id"):
        S3Store(replace(proxied, credentials=None, region="eu-west-1", limits=ONCE)).get("k")
    with pytest.raises(ConfigError, match="access_key_id"):
        forwardable(replace(proxied, credentials=None))


@pytest.mark.parametrize("lost", ["/latest/api/token", "/latest/meta-data/iam/security-credentials/", ROLE_PATH])
def test_a_lost_answer_of_the_instances_metadata_is_asked_for_again(
    s3_settings: S3Settings, s3_proxy: Any, no_credentials: None, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    keys = {"Code": "Success", "AccessKeyId": "AKIA", "SecretAccessKey": "s", "Token": "t", "Expiration": "2099-01-01T00:00:00Z"}
    answers = {ROLE_PATH: json.dumps(keys), ROLE_PATH.rpartition("/")[0] + "/": "airbyte", "/latest/api/token": "token"}
    losses = iter([lost])

    def script(call: Any) -> Reply | None:
        return None if call.target == lost and next(losses, None) else Reply(200, answers[call.target].encode())

    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", s3_proxy.endpoint)
    s3_proxy.script = script
    found = forwardable(replace(s3_settings, credentials=None)).credentials
    assert found == AccessKey("AKIA", "s", "t")


def test_a_role_without_credentials_to_assume_it_with_is_a_config_error(proxied: S3Settings, no_credentials: None) -> None:
    with pytest.raises(ConfigError, match="access_key_id"):
        S3Store(replace(proxied, credentials=None, role_arn=ROLE, limits=ONCE))


def test_settings_that_cannot_make_a_client_are_a_config_error(proxied: S3Settings) -> None:
    with pytest.raises(ConfigError, match="Region"):
        S3Store(replace(proxied, region="not a region", limits=ONCE))


def test_without_endpoint_and_region_the_client_is_one_of_aws(no_credentials: None) -> None:
    store = S3Store(S3Settings("b", credentials=AccessKey("k", "s"), limits=ONCE))
    assert store.client.meta.endpoint_url.endswith("amazonaws.com")
    settings: Any = store.client.meta.config
    assert settings.request_checksum_calculation == "when_supported"
    client: Any = store.client
    assert client._endpoint.http_session._manager.connection_from_url("http://localhost").conn_kw["blocksize"] == 128 * 2**10


def test_a_role_is_assumed_with_the_external_id_and_signs_the_calls(
    proxied: S3Settings, s3_proxy: Any, base_credentials: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ASSUME_ROLE_EXTERNAL_ID", "workspace-1")
    S3Store(replace(proxied, credentials=None, role_arn=ROLE, limits=ONCE)).put("k", b"x")
    assume, put = s3_proxy.calls
    assert "Credential=AKIABASE/" in assume.headers["authorization"]
    for field in (b"RoleSessionName=airbyte-sts-session", b"ExternalId=workspace-1", b"role%2Fairbyte"):
        assert field in assume.body
    assert "Credential=AKIABASE/" not in put.headers["authorization"]
    assert put.headers["x-amz-security-token"]


@pytest.mark.parametrize("role_arn", [None, ROLE])
def test_the_identity_of_a_pod_signs_the_calls_or_assumes_the_role_of_another_account(
    proxied: S3Settings, s3_proxy: Any, no_credentials: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, role_arn: str | None
) -> None:
    (tmp_path / "token").write_text("a-token-of-the-cluster")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::999999999999:role/pod")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", s3_proxy.endpoint)
    S3Store(replace(proxied, credentials=None, role_arn=role_arn, region="eu-west-3", limits=ONCE)).put("k", b"x")  # a client of its own
    pod, *assumed, put = s3_proxy.calls
    assert b"Action=AssumeRoleWithWebIdentity" in pod.body
    assert b"a-token-of-the-cluster" in pod.body
    assert [b"Action=AssumeRole&" in call.body for call in assumed] == ([True] if role_arn else [])
    assert put.headers["x-amz-security-token"]


def test_access_keys_of_the_configuration_go_before_a_role(proxied: S3Settings, s3_proxy: Any, base_credentials: None) -> None:
    S3Store(replace(proxied, role_arn=ROLE, limits=ONCE)).put("k", b"x")
    assert s3_proxy.actions() == ["PutObject"]
    assert "Credential=test-key/" in s3_proxy.calls[0].headers["authorization"]


def test_a_role_that_may_not_be_assumed_is_named_as_the_reason(proxied: S3Settings, s3_proxy: Any, base_credentials: None) -> None:
    body = b"<ErrorResponse><Error><Code>AccessDenied</Code><Message>m</Message></Error></ErrorResponse>"
    s3_proxy.script = lambda call: replace(call.forward(), status=403, body=body, headers={}) if call.action == "STS" else call.forward()
    with pytest.raises(ConfigError, match=r"sts:AssumeRole.*trust policy"):
        S3Store(replace(proxied, credentials=None, role_arn=ROLE, region="eu-west-2", limits=ONCE)).put("k", b"x")


def test_what_is_forwarded_are_the_credentials_of_now(proxied: S3Settings, base_credentials: None) -> None:
    own = forwardable(replace(proxied, credentials=None))
    assert own.credentials == AccessKey("AKIABASE", "base-secret", None)
    assumed = forwardable(replace(proxied, credentials=None, role_arn=ROLE))
    assert assumed.role_arn is None
    assert assumed.credentials is not None
    assert assumed.credentials.session_token
    S3Store(replace(assumed, limits=ONCE)).put("k", b"x")
    assert forwardable(proxied) is proxied
