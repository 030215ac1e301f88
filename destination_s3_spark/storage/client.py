"""boto3 S3 client: retries, timeouts, addressing, checksums, and the parameters shared by all calls on a bucket."""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Any

import botocore
from botocore.awsrequest import AWSHTTPConnectionPool, AWSHTTPSConnectionPool
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError

from destination_s3_spark.errors import ConfigError
from destination_s3_spark.storage import credentials
from destination_s3_spark.storage.endpoint import S3_ENDPOINT, check_endpoint, checked_pools
from destination_s3_spark.storage.failures import explain, require_s3_answers
from destination_s3_spark.storage.patience import Patience
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.storage.signing import hash_beginnings_once

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client


USER_AGENT = f"destination-s3-spark Botocore/{botocore.__version__}"
"""User agent of every request, for the bucket's access log. botocore would assemble a longer one twice per request: a sixth of its work."""
_PIECE_BYTES = 128 * 2**10
"""Bytes of a body sent at a time. Each piece has to be sent within the connect timeout, so larger ones ask for a fast network.

With urllib3's usual 16 KiB, the checksums that AWS gets at the end of a body cost twice as much CPU time as the upload itself.
"""
_BUILDING = Lock()


def s3_client(settings: S3Settings) -> S3Client:
    """Return this process's client for these settings. It is thread-safe.

    Clients are cached, also across threads that start together: a Spark worker lands many slices, and building a client costs tens of
    milliseconds and ten megabytes. Raises ConfigError for a forbidden endpoint and for settings that cannot make a client.
    """
    with _BUILDING:
        return _built(settings)


@functools.lru_cache(maxsize=8)
def _built(settings: S3Settings) -> S3Client:
    if settings.endpoint:
        check_endpoint(settings.endpoint)
    try:
        session = credentials.session(settings)
        require_s3_answers(session._session)
        client = session.client(
            "s3", region_name=settings.signing_region or None, endpoint_url=settings.endpoint or None, config=_config(settings)
        )
    except (BotoCoreError, ClientError) as error:
        raise explain(error, "Preparing the S3 client", settings) from error
    shared = _shared_parameters(settings)

    def add_shared(params: dict[str, Any], model: Any, **_: Any) -> None:
        accepted = model.input_shape.members if model.input_shape else {}
        params |= {name: value for name, value in shared.items() if name in accepted}

    transport = client._endpoint.http_session  # type: ignore[attr-defined]
    transport._manager.connection_pool_kw["blocksize"] = _PIECE_BYTES
    Patience(settings.limits).install(client)
    hash_beginnings_once(client)
    client.meta.events.register("provide-client-params.s3", add_shared)
    client.meta.events.register("before-call.s3", _send_bodies_at_once)
    if settings.endpoint:
        client.meta.events.register("before-call.s3", _stay_at_the_endpoint)
        client.meta.events.register("before-call.s3.DeleteObjects", _add_content_md5)
        client.meta.events.register("before-send.s3", _checked_transport(transport))
    return client


def _config(settings: S3Settings) -> Config:
    limits = settings.limits
    checksums = settings.checksums or ("when_required" if settings.endpoint else "when_supported")
    return Config(
        user_agent=USER_AGENT,
        connect_timeout=limits.connect_timeout_s,
        read_timeout=limits.read_timeout_s,
        max_pool_connections=limits.connections,
        tcp_keepalive=True,
        retries={"mode": "standard", "total_max_attempts": 1},  # `Patience` retries instead
        # MinIO, Ceph and others serve no virtual-hosted buckets unless their DNS is set up for it.
        s3={"addressing_style": settings.addressing} if settings.endpoint else None,
        request_checksum_calculation=checksums,
        response_checksum_validation=checksums,
    )


def _shared_parameters(settings: S3Settings) -> dict[str, str]:
    """Return the encryption and owner parameters. They are added to each call whose API accepts them."""
    shared: dict[str, str] = {}
    if settings.expected_bucket_owner:
        shared |= {"ExpectedBucketOwner": settings.expected_bucket_owner, "ExpectedSourceBucketOwner": settings.expected_bucket_owner}
    if settings.sse:
        shared["ServerSideEncryption"] = settings.sse
        if settings.kms_key_id:
            shared["SSEKMSKeyId"] = settings.kms_key_id
    return shared


def _send_bodies_at_once(params: dict[str, Any], **_: Any) -> None:
    """Send bodies without waiting for the server's consent (`Expect: 100-continue`).

    The largest bodies, parts of files, are sent without it anyway.
    """
    params["headers"].pop("Expect", None)


def _stay_at_the_endpoint(params: dict[str, Any], **_: Any) -> None:
    """Keep botocore from looking up the bucket's region after a redirect.

    An endpoint has one region, and a server that always redirects would cause endless recursion.
    """
    params["context"].setdefault("s3_redirect", {})["redirected"] = True


def _add_content_md5(params: dict[str, Any], **_: Any) -> None:
    """Add Content-MD5, because stores older than the x-amz-checksum headers refuse DeleteObjects without it (MissingContentMD5)."""
    digest = hashlib.md5(params["body"], usedforsecurity=False).digest()
    params["headers"]["Content-MD5"] = base64.b64encode(digest).decode()


def _checked_transport(session: Any) -> Callable[..., Any]:
    """Return a handler that sends requests by botocore's own session, and checks the peer of a connection before it sends the first byte.

    The response of a `before-send` handler replaces that of the client, and an error it raises is not retried.
    """
    session._manager.pool_classes_by_scheme = checked_pools(S3_ENDPOINT, AWSHTTPConnectionPool, AWSHTTPSConnectionPool)

    def send(request: Any, **_: Any) -> Any:
        try:
            return session.send(request)
        except HTTPClientError as error:
            if isinstance(refused := error.kwargs.get("error"), ConfigError):
                raise refused from None
            raise

    return send
