"""The hint: a copy of a table's state beside its chain, which saves reading most blocks.

It may be missing or out of date and does not tell where the chain ends. A checksum detects a damaged hint.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from destination_s3_spark.chain.blocks import canonical
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.chain.state import TableState

HINT_NAME = "hint.json"
MAX_FILES = 500
"""Largest number of files that the hint lists. For a larger table, the list is read from the blocks when needed."""
MAX_BYTES = 2**20
"""Largest size of a hint that lists files. Statistics of wide tables can make a short list large, and every sync reads the hint."""


class BadHint(Exception):
    """The object is not a hint, or it is damaged."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A state of the table that a publisher showed readers: its mark, and the live files of that state if they are known.

    Both are only hints. A mark may be out of date, and the live files may belong to another state.
    """

    mark: str
    live: LiveFiles | None = None


class Known(msgspec.Struct, frozen=True):
    """The contents of a hint: the state, the live files unless there are too many, and each publisher's mark of what it last showed."""

    state: TableState
    live: LiveFiles | None
    shown: dict[str, str] = {}


class _Hint(msgspec.Struct, rename="camel"):
    sequence_number: int
    block_hash: str
    known: msgspec.Raw
    checksum: str


_HINT = msgspec.json.Decoder(_Hint)
_KNOWN = msgspec.json.Decoder(Known)


def encode_hint(state: TableState, live: LiveFiles | None, shown: Mapping[str, str]) -> bytes:
    """Return the bytes of the hint object, without the live files if they exceed MAX_FILES or make it larger than MAX_BYTES."""
    if live is not None and len(live.files) + len(live.adopted) + len(live.dropped) > MAX_FILES:
        live = None
    body = canonical(Known(state, live, dict(shown)))
    if live is not None and len(body) > MAX_BYTES:
        body = canonical(Known(state, None, dict(shown)))
    return canonical(_Hint(state.sequence_number, state.block_hash, msgspec.Raw(body), hashlib.sha256(body).hexdigest()))


def decode_hint(body: bytes) -> Known:
    """Return the contents of a hint. Raises BadHint when it is damaged."""
    try:
        hint = _HINT.decode(body)
        if hashlib.sha256(hint.known).hexdigest() != hint.checksum:
            raise BadHint
        return _KNOWN.decode(hint.known)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise BadHint from None
