"""The certificate authorities that requests trust, for S3, catalogs and every other server alike."""

from __future__ import annotations

import functools
import os
import sys
import tempfile

import botocore.session
from botocore.httpsession import get_cert_path

from destination_s3_spark.errors import ConfigError
from destination_s3_spark.storage.settings import S3Settings


def ca_bundle(settings: S3Settings) -> str | None:
    """Return the path of a PEM file of authorities for this process, or None for those that the client library brings along.

    The file is that of AWS_CA_BUNDLE, else `ca_bundle` of the AWS profile in use, else REQUESTS_CA_BUNDLE. The authorities of the settings
    come in addition, also to those that the library brings along. Raises ConfigError for a file that cannot be read.
    """
    if settings.ca_certificate is None:
        return _of_environment()
    return _with_certificate(settings.ca_certificate, _of_environment() or get_cert_path(True), os.getpid())


def certificates(settings: S3Settings) -> str | None:
    """Return the authorities of this process's environment and of the settings as PEM text, None if there are neither.

    A machine without this environment trusts the same servers by it. Raises ConfigError for a file that cannot be read.
    """
    path = _of_environment()
    texts = [text for text in (_read(path) if path else None, settings.ca_certificate) if text is not None]
    return "\n".join(texts) or None


def _of_environment() -> str | None:
    found: str | None = botocore.session.get_session().get_config_variable("ca_bundle")
    return found or os.environ.get("REQUESTS_CA_BUNDLE") or None


@functools.lru_cache(maxsize=8)
def _with_certificate(certificate: str, path: str, _process: int) -> str:
    """Return the path of both. A forked process makes a file of its own, because it may have closed its parent's."""
    return _file(f"{_read(path)}\n{certificate}\n".encode())


def _file(content: bytes) -> str:
    """Return the path of a file that ends with the process: libraries take authorities from a file only."""
    if sys.platform == "linux":
        file = os.memfd_create("authorities")
        path = f"/proc/self/fd/{file}"
    else:
        file, path = tempfile.mkstemp(prefix="destination-s3-spark-authorities-")
    with open(file, "wb", closefd=sys.platform != "linux") as opened:
        opened.write(content)
    return path


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 (it may be relative to the process)
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"The certificate authorities in {path} cannot be read ({type(error).__name__}). Correct AWS_CA_BUNDLE, which names a file of "
            "PEM certificates, or remove it."
        ) from error
