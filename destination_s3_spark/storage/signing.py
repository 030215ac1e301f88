"""Bodies of requests that begin with the same bytes, which are hashed once for the signatures of all.

Without TLS or without a checksum, a signature holds the SHA-256 of the whole body. That takes as much CPU time as the rest of an upload.
"""

from __future__ import annotations

from hashlib import sha256
from io import BytesIO
from threading import Lock
from typing import Any

from botocore.auth import AUTH_TYPE_MAPS, S3SigV4Auth

_SIGNATURE_VERSION = "s3v4-shared-beginnings"


class SharedBeginning:
    """The first `size` bytes of several bodies."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._lock = Lock()
        self._hash: Any = None

    def sha256_of(self, body: memoryview) -> str:
        """Return the SHA-256 of a body that begins with these bytes, in hex."""
        with self._lock:
            if self._hash is None:
                self._hash = sha256(body[: self._size])
        found = self._hash.copy()
        found.update(body[self._size :])
        return str(found.hexdigest())


class SharedBody(BytesIO):
    """The body of an UploadPart that has its beginning in common with others."""

    def __init__(self, body: bytes, beginning: SharedBeginning) -> None:
        super().__init__(body)
        self._body = body  # not getbuffer(), which copies it
        self._beginning = beginning

    def sha256(self) -> str:
        return self._beginning.sha256_of(memoryview(self._body))


class _Signer(S3SigV4Auth):
    def payload(self, request: Any) -> str:
        body = request.body
        return body.sha256() if isinstance(body, SharedBody) else str(super().payload(request))


AUTH_TYPE_MAPS[_SIGNATURE_VERSION] = _Signer


def hash_beginnings_once(client: Any) -> None:
    """Sign parts of uploads with this client by what is known of their bodies, if it signs them by Signature Version 4."""
    client.meta.events.register_first("choose-signer.s3.UploadPart", _chosen)


def _chosen(context: dict[str, Any], **_: Any) -> str | None:
    return _SIGNATURE_VERSION if context.get("auth_type") == "v4" else None
