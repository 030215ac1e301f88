"""The hint: a copy of a table's state beside its chain, which saves reading most blocks.

It may be missing or out of date and does not tell where the chain ends. A checksum detects a damaged hint.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from destination_s3_spark.chain.blocks import canonical
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.chain.state import TableState

HINT_NAME = "hint.json"
PLAIN_FILES = 500
"""Largest number of files that the hint lists as plain JSON. The list of a larger table is compressed."""
PLAIN_BYTES = 2**20
"""Largest size of a hint with a plain list. Statistics of wide tables can make a short list large."""
MAX_BYTES = 4 * 2**20
"""Largest compressed list. A larger one is read from the blocks when needed, because every sync reads and writes the hint."""

_LEVEL = 1
"""Level of compression. The keys of a table's files are so similar that higher levels save little."""


class BadHint(Exception):
    """The object is not a hint, or it is damaged."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A state of the table that a publisher showed readers: its mark, and the live files of that state if they are known.

    Both are only hints. A mark may be out of date, and the live files may belong to another state.
    """

    mark: str
    live: LiveFiles | None = None


class Known(msgspec.Struct, frozen=True, omit_defaults=True):
    """The contents of a hint: the state, the live files unless there are too many, and each publisher's mark of what it last showed.

    `compressed`: the live files in the object if a plain list would be too large: base64 of zlib of their JSON.
    """

    state: TableState
    live: LiveFiles | None
    shown: dict[str, str] = {}
    compressed: str | None = None


class _Hint(msgspec.Struct, rename="camel"):
    sequence_number: int
    block_hash: str
    known: msgspec.Raw
    checksum: str


_HINT = msgspec.json.Decoder(_Hint)
_KNOWN = msgspec.json.Decoder(Known)
_LIVE = msgspec.json.Decoder(LiveFiles)


def encode_hint(state: TableState, live: LiveFiles | None, shown: Mapping[str, str]) -> bytes:
    """Return the bytes of the hint object. A long list of live files is compressed, and left out if it exceeds MAX_BYTES even so."""
    count = 0 if live is None else len(live.files) + len(live.adopted) + len(live.dropped)
    body = canonical(Known(state, live if count <= PLAIN_FILES else None, dict(shown)))
    if live is not None and (count > PLAIN_FILES or len(body) > PLAIN_BYTES):
        compressed = base64.b64encode(zlib.compress(canonical(live), _LEVEL)).decode()
        body = canonical(Known(state, None, dict(shown), compressed if len(compressed) <= MAX_BYTES else None))
    return canonical(_Hint(state.sequence_number, state.block_hash, msgspec.Raw(body), hashlib.sha256(body).hexdigest()))


def decode_hint(body: bytes) -> Known:
    """Return the contents of a hint. Raises BadHint when it is damaged."""
    try:
        hint = _HINT.decode(body)
        if hashlib.sha256(hint.known).hexdigest() != hint.checksum:
            raise BadHint
        known = _KNOWN.decode(hint.known)
        if known.compressed is None:
            return known
        live = _LIVE.decode(zlib.decompress(base64.b64decode(known.compressed)))
        return msgspec.structs.replace(known, live=live, compressed=None)
    except (msgspec.DecodeError, UnicodeDecodeError, zlib.error, ValueError):
        raise BadHint from None
