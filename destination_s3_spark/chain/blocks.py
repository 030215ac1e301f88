"""Blocks: the envelope around an event, and its bytes, hash and key.

A block is canonical JSON (sorted keys, no whitespace, UTF-8, no floats), so that equal blocks have equal bytes and hashes.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Annotated, Any, Generic, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from destination_s3_spark.chain.events import (
    DATA_FIELDS,
    FORMAT_VERSION,
    Event,
    KnownEvent,
    Seed,
    SetDataSchema,
    Snapshot,
    UnknownEvent,
    without_values,
)
from destination_s3_spark.errors import Bug, ConfigError

BLOCK_FORMAT = 1
MOST_BLOCK_BYTES = 2**29
"""Largest block. A Snapshot of a million files is smaller."""


Content = TypeVar("Content")
"""What a block holds: an event, or its JSON before it is decoded."""


class UnreadableBlock(Exception):
    """The bytes are not a block."""


class _Envelope(msgspec.Struct, Generic[Content], frozen=True, rename="camel"):
    """A block. `settled`: the highest data block known to be done when this one was written. `nonce`: unique to this block."""

    sequence_number: int
    prev_block_hash: str | None
    system_time: Annotated[datetime, msgspec.Meta(tz=True)]
    epoch: int
    nonce: str
    settled: int | None
    event: Content
    format: int = BLOCK_FORMAT


Block: TypeAlias = _Envelope[Event]


class _Format(msgspec.Struct):
    format: int


class _Kind(msgspec.Struct):
    kind: str


_ENCODER = msgspec.json.Encoder(order="sorted")
_ENVELOPE = msgspec.json.Decoder(_Envelope[msgspec.Raw])
_FORMAT = msgspec.json.Decoder(_Format)
_KIND = msgspec.json.Decoder(_Kind)
_EVENT: msgspec.json.Decoder[KnownEvent] = msgspec.json.Decoder(KnownEvent)
_KINDS = frozenset(cls.__name__ for cls in KnownEvent.__args__)


def block_name(sequence_number: int) -> str:
    """Return the last part of a block's key. It has 20 digits, so that keys sort by number."""
    return f"{sequence_number:020d}.json"


def block_hash(body: bytes) -> str:
    """Return the multihash of a block's bytes: `f` for base16, `12` for sha2-256, `20` for 32 bytes, then the digest."""
    return "f1220" + hashlib.sha256(body).hexdigest()


def canonical(value: object) -> bytes:
    """Return the canonical JSON of a value that holds no floats."""
    return _ENCODER.encode(value)


def _refuse_float(number: str) -> float:
    raise Bug(f"The schema payload holds the number {number}; numbers in a block must be integers.")


_PAYLOAD = msgspec.json.Decoder(float_hook=_refuse_float)


def as_recorded(payload: dict[str, Any]) -> dict[str, Any]:
    """Return the payload as decoding a block would return it, for comparison with recorded ones.

    Raises Bug when the payload holds a float, which has no canonical form.
    """

    schema: dict[str, Any] = _PAYLOAD.decode(canonical(payload))
    return {name: value for name, value in schema.items() if name != "kind"}


def encode(block: Block) -> bytes:
    payload = {**block.event.schema, "kind": "SetDataSchema"} if isinstance(block.event, SetDataSchema) else block.event
    return canonical(replace(block, event=payload))


def decode(body: bytes) -> Block:
    """Return the block in these bytes. Raises UnreadableBlock, or ConfigError when a newer version of the connector wrote the block."""
    try:
        if (found := _FORMAT.decode(body).format) > BLOCK_FORMAT:
            raise _newer(f"block format {found}")
        block: Any = _ENVELOPE.decode(body)
        decoded: Block = replace(block, event=_decode_event(bytes(block.event)))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableBlock(str(error)) from error
    return decoded


def _decode_event(raw: bytes) -> Event:
    kind = _KIND.decode(raw).kind
    if kind in _KINDS:
        event = without_values(_EVENT.decode(raw))
        version = event.format_version if isinstance(event, Seed) else 1
        version = event.state.identity.format_version if isinstance(event, Snapshot) else version
        if version > FORMAT_VERSION:
            raise _newer(f"chain format {version}")
        return event
    payload: dict[str, Any] = msgspec.json.decode(raw)
    if kind == "SetDataSchema":
        del payload["kind"]
        if not isinstance(payload.get("schemaId"), int):
            raise UnreadableBlock("SetDataSchema without a schemaId")
        return SetDataSchema(payload)
    if not DATA_FIELDS.isdisjoint(payload):
        raise _newer(f"event kind {kind!r}")
    return UnknownEvent(kind)


def _newer(what: str) -> ConfigError:
    return ConfigError(
        f"A table's chain holds {what}, which this version of the connector does not know: a newer version wrote it. "
        "Run the sync with that version or a later one."
    )
