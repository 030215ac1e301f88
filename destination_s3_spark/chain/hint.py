"""The hint: a copy of a table's state beside its chain, which saves reading most blocks.

It may be missing or out of date and does not tell where the chain ends. A checksum detects a damaged hint.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Annotated

import msgspec
from msgspec.structs import replace

from destination_s3_spark.chain.blocks import canonical
from destination_s3_spark.chain.events import FORMAT_VERSION
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.chain.state import TableState
from destination_s3_spark.chain.territory import Table, keys_of_live, keys_of_state
from destination_s3_spark.storage.object_store import ObjectNotFound, ObjectStore, ObjectTooLarge

HINT_NAME = "hint.json"
HINT_FORMAT = 1
PLAIN_FILES = 500
"""Largest number of files that the hint lists as plain JSON. The list of a larger table is compressed."""
PLAIN_BYTES = 2**20
"""Largest size of a hint with a plain list. Statistics of wide tables can make a short list large."""
MAX_BYTES = 4 * 2**20
"""Largest compressed list. A larger one is read from the blocks when needed, because every sync reads and writes the hint."""
MOST_HINT_BYTES = 64 * 2**20
"""Largest hint that is read or written. The list is at most MAX_BYTES of it; columns and checkpoints take the rest."""
MOST_LIST_BYTES = 256 * 2**20
"""Largest list after decompression. Keys are compressed to a twentieth at best."""

_DAMAGED = "is damaged"
_FOREIGN = "does not agree with its chain"
_LEVEL = 1
"""Level of compression. The keys of a table's files are so similar that higher levels save little."""


class BadHint(Exception):
    """The object is not a hint of this format, or it is damaged. The message ends a sentence about it."""


@dataclass(frozen=True, slots=True)
class PublishedMark:
    """A state of the table that a publisher showed readers: its mark, and the live files of that state if they are known.

    Both are only hints. A mark may be out of date, and the live files may belong to another state.
    """

    mark: str
    live: LiveFiles | None = None


class Known(msgspec.Struct, frozen=True, omit_defaults=True):
    """The contents of a hint: the state, the live files unless there are too many, and each publisher's mark of what it last showed.

    `merge_rate`: bytes per second and core of the table's merges so far, if one has been measured.
    `compressed`: the live files in the object if a plain list would be too large: base64 of zlib of their JSON.
    """

    state: TableState
    live: LiveFiles | None
    shown: dict[str, str] = {}
    merge_rate: Annotated[float, msgspec.Meta(ge=1, le=2**60)] | None = None
    compressed: str | None = None


class _Hint(msgspec.Struct, rename="camel"):
    format: int
    sequence_number: int
    block_hash: str
    known: msgspec.Raw
    checksum: str


_HINT = msgspec.json.Decoder(_Hint)
_KNOWN = msgspec.json.Decoder(Known)
_LIVE = msgspec.json.Decoder(LiveFiles)


def encode_hint(state: TableState, live: LiveFiles | None, shown: Mapping[str, str], merge_rate: float | None = None) -> bytes:
    """Return the bytes of the hint object.

    A long list of live files is compressed. While it exceeds MAX_BYTES even so, first the statistics of the files are left out, then the
    bounds of their keys, then the list.
    """
    count = 0 if live is None else len(live.files) + len(live.adopted) + len(live.dropped)
    body = canonical(Known(state, live if count <= PLAIN_FILES else None, dict(shown), merge_rate))
    if live is not None and (count > PLAIN_FILES or len(body) > PLAIN_BYTES):
        fitting = (text for text in map(_compressed, _with_less_and_less(live)) if len(text) <= MAX_BYTES)
        body = canonical(Known(state, None, dict(shown), merge_rate, next(fitting, None)))
    return canonical(_Hint(HINT_FORMAT, state.sequence_number, state.block_hash, msgspec.Raw(body), hashlib.sha256(body).hexdigest()))


def _with_less_and_less(live: LiveFiles) -> Iterator[LiveFiles]:
    yield live
    yield replace(live, files=tuple(replace(file, statistics=None) for file in live.files))
    yield live.without_values()


def _compressed(live: LiveFiles) -> str:
    return base64.b64encode(zlib.compress(canonical(live), _LEVEL)).decode()


def read_hint(store: ObjectStore, prefix: str) -> Known | None:
    """Return the contents of the hint under a chain's prefix, or None if there is none. Raises BadHint."""
    try:
        return decode_hint(store.get(prefix + HINT_NAME, MOST_HINT_BYTES))
    except ObjectNotFound:
        return None
    except ObjectTooLarge:
        raise BadHint("is too large") from None


def decode_hint(body: bytes) -> Known:
    """Return the contents of a hint. Raises BadHint when it is damaged or of another format."""
    try:
        hint = _HINT.decode(body)
        if hint.format != HINT_FORMAT:
            raise BadHint(f"has format {hint.format} and this version of the connector knows format {HINT_FORMAT}")
        if hashlib.sha256(hint.known).hexdigest() != hint.checksum:
            raise BadHint(_DAMAGED)
        known = _KNOWN.decode(hint.known)
        if known.state.identity.format_version > FORMAT_VERSION:
            raise BadHint("is of a table that a newer version of the connector wrote")
        if known.compressed is None:
            return known
        live = _LIVE.decode(_decompressed(base64.b64decode(known.compressed)))
        return replace(known, live=live, compressed=None)
    except (msgspec.DecodeError, UnicodeDecodeError, zlib.error, ValueError, RecursionError):
        raise BadHint(_DAMAGED) from None


def _decompressed(body: bytes) -> bytes:
    decompressor = zlib.decompressobj()
    text = decompressor.decompress(body, MOST_LIST_BYTES)
    if not decompressor.eof:
        raise BadHint(_DAMAGED)
    return text


def require_plausible(known: Known, table: Table) -> None:
    """Raise BadHint unless a session of the table may have written the hint.

    A session writes it after its Close, when everything is settled, and names only objects of its own table. What this cannot detect is
    confirmed from blocks before anything is deleted.
    """
    state, live = known.state, known.live or LiveFiles()
    contents = state.contents
    named = chain(keys_of_state(state), keys_of_live(live))
    if table.flaw(state.identity) or table.territory(state.identity.final_root).foreign_key(named) is not None:
        raise BadHint(_FOREIGN)
    ends = [file.offset + file.rows for file in live.files if file.offset is not None and not file.in_partition]
    if not 0 <= (state.snapshot or 0) <= state.sequence_number:
        raise BadHint(_FOREIGN)
    if state.unsettled is not None or max(contents.landed + contents.pending_rows, *ends, 0) > contents.next_offset:
        raise BadHint(_FOREIGN)
