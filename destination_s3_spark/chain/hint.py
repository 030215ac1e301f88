"""The hint: a copy of a table's state beside its chain, which saves most of the reading.

It may be missing or old, and says nothing about where the chain ends; a checksum tells a damaged one.
"""

from __future__ import annotations

import hashlib

import msgspec

from destination_s3_spark.chain.blocks import canonical
from destination_s3_spark.chain.state import TableState

HINT_NAME = "hint.json"


class BadHint(Exception):
    """The object is not a hint, or not as it was written."""


class _Hint(msgspec.Struct, rename="camel"):
    sequence_number: int
    block_hash: str
    state: msgspec.Raw
    checksum: str


_HINT = msgspec.json.Decoder(_Hint)
_STATE = msgspec.json.Decoder(TableState)


def encode_hint(state: TableState) -> bytes:
    """The bytes of the hint object."""
    body = canonical(state)
    return canonical(_Hint(state.sequence_number, state.block_hash, msgspec.Raw(body), hashlib.sha256(body).hexdigest()))


def decode_hint(body: bytes) -> TableState:
    """The state in a hint. Raises BadHint when it is damaged."""
    try:
        hint = _HINT.decode(body)
        if hashlib.sha256(hint.state).hexdigest() != hint.checksum:
            raise BadHint
        return _STATE.decode(hint.state)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise BadHint from None
