"""The certificate authorities that requests trust, for S3, catalogs and every other server alike."""

from __future__ import annotations

import os

import botocore.session

from destination_s3_spark.storage.settings import S3Settings


def ca_bundle(settings: S3Settings) -> str | None:  # noqa: ARG001 - the one place where a setting of the user will decide
    """Return the path of a PEM file of authorities, or None for those that the client library brings along.

    The path is AWS_CA_BUNDLE, else `ca_bundle` of the AWS profile in use, else REQUESTS_CA_BUNDLE.
    """
    found: str | None = botocore.session.get_session().get_config_variable("ca_bundle")
    return found or os.environ.get("REQUESTS_CA_BUNDLE") or None
