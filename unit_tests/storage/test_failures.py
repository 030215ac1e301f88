from __future__ import annotations

from dataclasses import replace

import pytest
from botocore import exceptions
from botocore.exceptions import ClientError

from destination_s3_spark.errors import ConfigError, TransientError
from destination_s3_spark.storage.failures import explain, no_answer
from destination_s3_spark.storage.settings import AccessKey, S3Settings
from unit_tests.cases import each

SETTINGS = S3Settings("lake", "eu-west-1", "https://s3.example", AccessKey("AKIA", "planted-secret", "planted-token"))


def answer(status: int, code: str, operation: str = "PutObject", **headers: str) -> ClientError:
    response = {
        "Error": {"Code": code, "Message": "planted-message"},
        "ResponseMetadata": {"HTTPStatusCode": status, "RequestId": "r-17", "HTTPHeaders": headers},
    }
    return ClientError(response, operation)  # type: ignore[arg-type]


@each(
    ("status", "code", "text"),
    [
        (404, "NoSuchBucket", "s3_bucket_name"),
        (403, "InvalidAccessKeyId", "access_key_id"),
        (403, "InvalidClientTokenId", "access_key_id"),
        (403, "SignatureDoesNotMatch", "secret_access_key"),
        (400, "ExpiredToken", "expired"),
        (400, "InvalidToken", "expired or is not valid"),
        (403, "RequestExpired", "expired"),
        (403, "RequestTimeTooSkewed", "clock"),
        (301, "PermanentRedirect", "s3.region"),
        (400, "AuthorizationHeaderMalformed", "s3.region"),
        (301, "301", "s3.region"),
        (403, "SignatureDoesNotMatch", "s3.region"),
        (403, "SecondLevelDomainForbidden", "s3.addressing to virtual"),
        (403, "VirtualHostDomainRequired", "s3.addressing to virtual"),
        (403, "PathStyleDomainForbidden", "s3.addressing to virtual"),
        (400, "PathStyleRequestNotAllowed", "s3.addressing to virtual"),
        (403, "AccessDenied", "s3:PutObject"),
        (403, "403", "s3:PutObject"),
        (401, "Unauthorized", "s3:PutObject"),
        (400, "KMS.DisabledException", "kms_key_id"),
        (400, "InvalidArgument", "400 InvalidArgument"),
        (501, "NotImplemented", "501 NotImplemented"),
    ],
)
def test_what_the_user_must_change_is_named(status: int, code: str, text: str) -> None:
    error = explain(answer(status, code), "Writing s3://lake/k", SETTINGS)
    assert isinstance(error, ConfigError)
    assert error.message.startswith("Writing s3://lake/k: ")
    assert text in error.message
    assert "planted" not in error.message


@each(
    ("status", "code"),
    [(503, "SlowDown"), (500, "InternalError"), (429, "TooManyRequests"), (408, "RequestTimeout"), (404, "NoSuchUpload"), (409, "X")],
)
def test_what_passes_is_transient_with_the_request_id(status: int, code: str) -> None:
    error = explain(answer(status, code), "Writing", SETTINGS)
    assert isinstance(error, TransientError)
    assert "r-17" in error.message
    assert "planted" not in error.message


def test_the_right_region_is_named_when_the_store_tells_it() -> None:
    error = explain(answer(301, "PermanentRedirect", **{"x-amz-bucket-region": "ap-south-1"}), "Writing", SETTINGS)
    assert "'ap-south-1'" in error.message
    assert "'eu-west-1'" in error.message


def test_the_region_that_was_signed_for_is_named_and_the_option_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = answer(400, "AuthorizationHeaderMalformed")
    wrong.response["Error"]["Region"] = "garage"  # type: ignore[typeddict-unknown-key]
    blank = S3Settings("lake", endpoint="http://garage:3900")
    assert "not in region 'us-east-1', it is in 'garage'. Correct s3.region." in explain(wrong, "Writing", blank).message
    chosen = replace(blank, region="eu-west-1", endpoint_region="fr-par")
    assert "not in region 'fr-par', it is in 'garage'" in explain(wrong, "Writing", chosen).message
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-north-1")
    unnamed = explain(answer(301, "PermanentRedirect"), "Writing", S3Settings("lake")).message
    assert unnamed.endswith("not in region 'eu-north-1', it is in another one. Correct s3_bucket_region.")


def test_denials_mention_what_the_settings_add_to_the_permissions_needed() -> None:
    settings = S3Settings("lake", sse="aws:kms", expected_bucket_owner="123456789012")
    message = explain(answer(403, "AccessDenied"), "Writing", settings).message
    assert "kms:GenerateDataKey" in message
    assert "123456789012" in message
    assert "s3:ListBucket" in explain(answer(403, "403", "HeadObject"), "Looking", settings).message


def test_what_no_permission_would_change_is_not_called_a_denial() -> None:
    assert "is archived" in explain(answer(403, "InvalidObjectState", "GetObject"), "Reading", SETTINGS).message
    assert "quota" in explain(answer(403, "QuotaExceeded"), "Writing", SETTINGS).message


def test_errors_without_an_answer() -> None:
    url = {"endpoint_url": "https://s3.example", "error": "e"}
    for lost in (exceptions.EndpointConnectionError(**url), exceptions.ReadTimeoutError(**url), exceptions.ConnectionClosedError(**url)):
        assert isinstance(explain(lost, "Writing", SETTINGS), TransientError)
        assert no_answer(lost)
    untrusted = exceptions.SSLError(endpoint_url="https://s3.example", error=OSError("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed"))
    assert "s3.ca_certificate" in explain(untrusted, "Writing", SETTINGS).message
    assert "AWS_CA_BUNDLE" in explain(untrusted, "Writing", SETTINGS).message
    unresolved = exceptions.EndpointConnectionError(**url)
    assert "s3.addressing (virtual)" in explain(unresolved, "Writing", replace(SETTINGS, addressing="virtual")).message
    assert isinstance(explain(untrusted, "Writing", SETTINGS), ConfigError)
    assert not no_answer(untrusted)
    for missing in (exceptions.NoCredentialsError(), exceptions.PartialCredentialsError(provider="env", cred_var="AWS_SECRET_ACCESS_KEY")):
        assert isinstance(explain(missing, "Writing", SETTINGS), ConfigError)
        assert not no_answer(missing)


@each(
    ("status", "code", "unknown"),
    [
        (500, "X", True),
        (503, "SlowDown", True),
        (400, "RequestTimeout", True),
        (501, "X", False),
        (403, "X", False),
        (404, "NoSuchUpload", False),
    ],
)
def test_only_trouble_of_the_store_leaves_the_outcome_open(status: int, code: str, unknown: bool) -> None:
    assert no_answer(answer(status, code)) is unknown
