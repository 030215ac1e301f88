"""Arrow file system over the bucket, for Arrow's own readers: they fetch column chunks natively and in parallel."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from pyarrow.fs import S3FileSystem

from destination_s3_spark.storage.ca_bundle import ca_bundle
from destination_s3_spark.storage.credentials import EXTERNAL_ID_VARIABLE, ROLE_SESSION_NAME
from destination_s3_spark.storage.settings import S3Settings


def arrow_filesystem(settings: S3Settings) -> S3FileSystem:
    """Return a file system over the whole store, with paths `bucket/key`.

    It uses the same credentials as `credentials.session`, and its pickled form contains the access keys.
    """
    endpoint = urlsplit(settings.endpoint) if settings.endpoint else None
    where = {} if endpoint is None else {"scheme": endpoint.scheme, "endpoint_override": endpoint.netloc + endpoint.path.rstrip("/")}
    region = {"region": settings.region} if settings.region else {}
    authorities = ca_bundle(settings)
    tls = {"tls_ca_file_path": authorities} if authorities else {}
    keys = settings.credentials
    if keys is not None:
        return S3FileSystem(
            access_key=keys.access_key_id, secret_key=keys.secret_access_key, session_token=keys.session_token, **where, **region, **tls
        )
    if settings.role_arn:
        external_id = os.environ.get(EXTERNAL_ID_VARIABLE)
        return S3FileSystem(role_arn=settings.role_arn, session_name=ROLE_SESSION_NAME, external_id=external_id, **where, **region, **tls)
    return S3FileSystem(**where, **region, **tls)
