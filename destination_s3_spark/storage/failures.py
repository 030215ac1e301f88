"""Translation of botocore's exceptions from S3 and STS into errors for the user.

The store's message text is left out: it is a server's free text and may repeat what was sent. Its error code and request id are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import botocore.session
from botocore import exceptions as botocore_exceptions
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    SSLError,
)
from botocore.parsers import ResponseParser, ResponseParserError, ResponseParserFactory

from destination_s3_spark.errors import ConfigError, SyncError, TransientError
from destination_s3_spark.storage.settings import S3Settings

IAM_ACTIONS = {
    "AbortMultipartUpload": "s3:AbortMultipartUpload",
    "AssumeRole": "sts:AssumeRole",
    "CompleteMultipartUpload": "s3:PutObject",
    "CreateMultipartUpload": "s3:PutObject",
    "DeleteObjects": "s3:DeleteObject",
    "GetObject": "s3:GetObject",
    "HeadObject": "s3:GetObject",
    "ListMultipartUploads": "s3:ListBucketMultipartUploads",
    "ListObjectVersions": "s3:ListBucketVersions",
    "ListObjectsV2": "s3:ListBucket",
    "PutObject": "s3:PutObject",
    "UploadPart": "s3:PutObject",
    "UploadPartCopy": "s3:PutObject and s3:GetObject",
}
"""IAM action that each S3 call needs."""

_READS = {"GetObject", "HeadObject"}
_DENIED = {"AccessDenied", "AccessDeniedException", "AllAccessDisabled", "AccountProblem", "UnauthorizedAccess", "403", "401"}
_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"}
_WRONG_REGION = {"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "301", "307"}
_UNKNOWN_KEY = {"InvalidAccessKeyId", "InvalidClientTokenId", "UnrecognizedClientException", "NotSignedUp"}
_PATH_REFUSED = "the store wants the bucket in the host name. Set s3.addressing to virtual."
_PLAIN = {
    "InvalidObjectState": "the object is archived. Restore it, and keep s3_bucket_path out of rules that archive objects.",
    "QuotaExceeded": "the store's quota for the bucket or its owner is used up. Raise it.",
    "RequestTimeTooSkewed": "the clock of this machine differs too much from that of the store. Set the clock right (NTP).",
    "SecondLevelDomainForbidden": _PATH_REFUSED,  # Alibaba OSS
    "VirtualHostDomainRequired": _PATH_REFUSED,  # Huawei OBS
    "PathStyleDomainForbidden": _PATH_REFUSED,  # Tencent COS
    "PathStyleRequestNotAllowed": _PATH_REFUSED,  # CoreWeave, Nebius
}
"""Reasons that no permission would change, in the same words for all requests."""
_PASSING = {
    "BandwidthLimitExceeded",
    "ConditionalRequestConflict",
    "InternalError",
    "NoSuchUpload",
    "OperationAborted",
    "RequestLimitExceeded",
    "RequestTimeout",
    "RequestTimeoutException",
    "ServiceUnavailable",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "TooManyRequests",
    "TooManyRequestsException",
}
_PASSING_STATUS = {408, 409, 429}
_CONNECTION = (botocore_exceptions.ConnectionError, HTTPClientError, IncompleteReadError)
PROMISED: Mapping[str, str] = {
    "CreateMultipartUploadOutput": "UploadId",
    "HeadObjectOutput": "ContentLength",
    "ListMultipartUploadsOutput": "IsTruncated",
    "ListObjectsV2Output": "IsTruncated",
    "PutObjectOutput": "ETag",
    "UploadPartCopyOutput": "CopyPartResult",
    "UploadPartOutput": "ETag",
}
"""For each output shape, a member that every S3 returns and callers rely on."""


def code(error: ClientError) -> str:
    """Return the store's error code, or the HTTP status as text if the response had no body (HEAD)."""
    return str(error.response.get("Error", {}).get("Code", "")) or str(status(error))


def status(error: ClientError) -> int:
    """Return the HTTP status of the store's response, 0 if unknown."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def no_answer(error: BotoCoreError | ClientError) -> bool:
    """Return whether the failed request may have taken effect: there was no response, or only one that reports trouble at the store."""
    if isinstance(error, ClientError):
        return (status(error) >= 500 and status(error) != 501) or code(error) in _PASSING - {"NoSuchUpload"}
    return isinstance(error, _CONNECTION) and not _untrusted_certificate(error)


def refused_for_good(error: ClientError) -> bool:
    """Return whether the response concerns credentials, permission, region or clock rather than the object."""
    return status(error) in {301, 307, 401, 403} or code(error) in _DENIED | _EXPIRED | _WRONG_REGION | _UNKNOWN_KEY


def is_denied(error: BaseException) -> bool:
    """Return whether an AWS service, not only S3, refused the credentials or a permission."""
    return isinstance(error, ClientError) and refused_for_good(error)


def is_unreachable(error: BaseException) -> bool:
    """Return whether an AWS service, not only S3, did not answer or reported trouble."""
    return isinstance(error, BotoCoreError | ClientError) and no_answer(error)


def glue_reason(error: BotoCoreError | ClientError, operation: str) -> str:
    """Return why a call of AWS Glue failed, in the user's words."""
    if is_denied(error):
        return (
            f"AWS Glue refused the call ({_kind(error)}). Allow glue:{operation} to the credentials of the bucket, also in Lake Formation "
            "if it governs the database."
        )
    if is_unreachable(error):
        return f"AWS Glue could not be reached or did not answer {operation} ({_kind(error)}). Check s3_bucket_region and the network."
    return f"AWS Glue could not do {operation} ({_kind(error)})."


def _kind(error: BotoCoreError | ClientError) -> str:
    return code(error) if isinstance(error, ClientError) else type(error).__name__


def explain(error: BotoCoreError | ClientError, doing: str, settings: S3Settings) -> SyncError:
    """Return the error for the user: ConfigError if they must change something, else TransientError. `doing` names call and key."""
    if isinstance(error, ClientError):
        return _explain_answer(error, doing, settings)
    place = _place(settings)
    if isinstance(error, (NoCredentialsError, PartialCredentialsError)):
        return ConfigError(
            "No AWS credentials were found. Set access_key_id and secret_access_key, or give the process a role or environment variables."
        )
    if isinstance(error, CredentialRetrievalError):
        return TransientError(f"{doing}: AWS credentials could not be retrieved. Check the role or profile in use.")
    if isinstance(error, ParamValidationError):
        return ConfigError(f"{doing}: S3 cannot accept a setting. Check s3_bucket_name '{settings.bucket}', role_arn and the external id.")
    if _untrusted_certificate(error):
        return ConfigError(
            f"{doing}: the TLS certificate of {place} is not trusted. Set s3.ca_certificate to the certificate of its authority, or "
            "AWS_CA_BUNDLE to a file with it."
        )
    if isinstance(error, UnreadableAnswer):
        return TransientError(
            f"{doing}: the response from {place} was not an S3 response. Check that s3_endpoint is the address of the S3 API, not of a "
            "console or a proxy's page; if it is, try again."
        )
    if isinstance(error, _CONNECTION):
        second = "s3.addressing (virtual)" if settings.is_virtual else "s3_bucket_region"
        return TransientError(
            f"{doing}: {place} could not be reached or did not answer in time ({type(error).__name__}). "
            f"Check s3_endpoint, {second} and the network; if they are right, try again."
        )
    return ConfigError(f"{doing}: the S3 client refused its settings ({type(error).__name__}). Check the S3 part of the configuration.")


def denied(operation: str, doing: str, settings: S3Settings) -> ConfigError:
    """Return the error for a missing permission, naming the IAM action."""
    action = IAM_ACTIONS.get(operation, operation)
    hints = [f"Allow {action} to the credentials in use."]
    if operation in _READS:
        hints.append("For an object that does not exist S3 also answers so unless s3:ListBucket is allowed on the bucket.")
    if settings.sse in {"aws:kms", "aws:kms:dsse"}:
        hints.append("With KMS encryption kms:GenerateDataKey and kms:Decrypt on the key are needed too.")
    if settings.expected_bucket_owner:
        hints.append(f"Or the bucket is not owned by account {settings.expected_bucket_owner} (s3.expected_bucket_owner).")
    if operation == "AssumeRole":
        hints.append("The role's trust policy must name these credentials and, if it asks for one, the external id.")
    return ConfigError(f"{doing}: access denied. {' '.join(hints)}")


def _explain_answer(error: ClientError, doing: str, settings: S3Settings) -> SyncError:
    name, place = code(error), _place(settings)
    if name == "NoSuchBucket":
        return ConfigError(f"{doing}: there is no bucket '{settings.bucket}' at {place}. Create it or correct s3_bucket_name.")
    if name in _UNKNOWN_KEY:
        return ConfigError(f"{doing}: {place} does not know the access key. Correct access_key_id.")
    if name == "SignatureDoesNotMatch":
        return ConfigError(f"{doing}: {place} did not accept the signature. Correct secret_access_key (and {_option(settings)}).")
    if name in _EXPIRED or name == "InvalidToken":
        return ConfigError(f"{doing}: the session token has expired or is not valid. Renew the credentials.")
    if name in _WRONG_REGION:
        return _elsewhere(error, doing, settings)
    if name in _PLAIN:
        return ConfigError(f"{doing}: {_PLAIN[name]}")
    if name in _DENIED or status(error) in {401, 403}:
        return denied(error.operation_name, doing, settings)
    if name.startswith("KMS."):
        return ConfigError(f"{doing}: the KMS key cannot be used ({name}). Check s3.kms_key_id, its state and its region.")
    if name in _PASSING or status(error) in _PASSING_STATUS or (status(error) >= 500 and status(error) != 501):
        return TransientError(f"{doing}: {place} answered {_answer(error)} after all retries. Try again.")
    asked = "" if settings.sse is None else f", first of all s3.sse '{settings.sse}'"
    return ConfigError(f"{doing}: {place} refused the request with {_answer(error)}. Check that it supports the S3 settings{asked}.")


def _elsewhere(error: ClientError, doing: str, settings: S3Settings) -> ConfigError:
    """Return the error for a region that is not the bucket's."""
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    signed = settings.signing_region or botocore.session.Session().get_config_variable("region") or "us-east-1"
    right = error.response.get("Error", {}).get("Region") or headers.get("x-amz-bucket-region")
    named = f"it is in '{right}'" if right else "it is in another one"
    return ConfigError(f"{doing}: bucket '{settings.bucket}' is not in region '{signed}', {named}. Correct {_option(settings)}.")


def _option(settings: S3Settings) -> str:
    return "s3.region" if settings.endpoint else "s3_bucket_region"


def _answer(error: ClientError) -> str:
    request_id = error.response.get("ResponseMetadata", {}).get("RequestId")
    return f"{status(error)} {code(error)}" + (f", request id {request_id}" if request_id else "")


def _place(settings: S3Settings) -> str:
    return settings.endpoint or "AWS S3"


def _untrusted_certificate(error: BotoCoreError) -> bool:
    return isinstance(error, SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error)


class UnreadableAnswer(HTTPClientError):
    """The request may have taken effect, but the response is not S3's: truncated, or from a proxy or another server at the endpoint."""

    fmt = "the answer is not one of S3"


def require_s3_answers(session: botocore.session.Session) -> None:
    """Make clients of the session raise UnreadableAnswer for unparsable responses and for a success without a guaranteed member."""
    session.register_component("response_parser_factory", _Factory())


class _Factory(ResponseParserFactory):
    def create_parser(self, protocol_name: str) -> Any:
        return _Parser(super().create_parser(protocol_name))


class _Parser:
    def __init__(self, parser: ResponseParser) -> None:
        self._parser = parser

    def parse(self, response: dict[str, Any], shape: Any) -> Any:
        try:
            answer = self._parser.parse(response, shape)
        except ResponseParserError:
            raise UnreadableAnswer from None
        promised = PROMISED.get(shape.name) if shape is not None and response["status_code"] < 300 else None
        if promised is not None and answer.get(promised) in (None, "", {}):
            raise UnreadableAnswer
        return answer
