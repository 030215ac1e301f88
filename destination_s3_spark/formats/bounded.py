"""Bounds of what is read from objects that somebody else may have written or damaged.

A number in an object says nothing until it is compared with the bytes that are there: no count makes a loop, and no size takes memory,
that these bytes do not account for. Every reader of stored data takes its bounds from here, and all that is wrong raises one of `DAMAGE`.
"""

from __future__ import annotations

import bz2
import io
import lzma
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import zstandard

from destination_s3_spark.errors import lack_error
from destination_s3_spark.formats.varints import read_unsigned

MOST_UNPACKED_BYTES = 512 * 2**20
"""Most bytes that one row, or one block of a file, may have after decompression. A record has at most half of that by default."""

DAMAGE = (
    ValueError,
    EOFError,
    OSError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    MemoryError,
    struct.error,
    zlib.error,
    lzma.LZMAError,
    zstandard.ZstdError,
    pa.ArrowException,
)
"""What decoders raise for bytes that are not what they should be."""

_STEP = 2**20
_SNAPPY_FACTOR = 32
"""More than Snappy can compress anything: 64 bytes take 3."""
_XZ_MEMORY = 256 * 2**20


@contextmanager
def reading(damaged: Callable[[str], Exception]) -> Iterator[None]:
    """Raise what `damaged` makes of a word for the fault, in place of any of DAMAGE. A lack of files or threads is no damage."""
    try:
        yield
    except DAMAGE as error:
        if isinstance(error, OSError) and lack_error(error) is not None:
            raise
        raise damaged(type(error).__name__) from error


def require_count(count: int, left: int) -> int:
    """Return a count of items that follow in so many bytes. Raises ValueError unless each can have one."""
    if not 0 <= count <= left:
        raise ValueError("more items than there are bytes")
    return count


def unpacked(stored: bytes, codec: str, most_bytes: int = MOST_UNPACKED_BYTES) -> bytes:
    """Decompress a block. `codec` is one of Avro's names.

    Raises ValueError for one that would be larger, and DAMAGE for one that cannot be read.
    """
    match codec:
        case "null":
            return stored
        case "deflate":
            return _ended(zlib.decompressobj(-zlib.MAX_WBITS), stored, most_bytes)
        case "bzip2":
            return _ended(bz2.BZ2Decompressor(), stored, most_bytes)
        case "xz":
            return _ended(lzma.LZMADecompressor(memlimit=_XZ_MEMORY), stored, most_bytes)
        case "zstandard":
            with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(stored)) as stream:
                return b"".join(_pieces(stream, most_bytes))
        case "snappy":
            size = read_unsigned(io.BytesIO(stored))
            if size > min(most_bytes, _SNAPPY_FACTOR * len(stored)):
                raise _too_large()
            found: bytes = pa.Codec("snappy").decompress(stored, size, asbytes=True)
            return found
        case _:
            raise ValueError("an unknown compression")


def _ended(decompressor: zlib._Decompress | bz2.BZ2Decompressor | lzma.LZMADecompressor, stored: bytes, most_bytes: int) -> bytes:
    text = decompressor.decompress(stored, most_bytes + 1)
    if len(text) > most_bytes:
        raise _too_large()
    if not decompressor.eof:
        raise EOFError("the block ends early")
    return text


def _pieces(stream: zstandard.ZstdDecompressionReader, most_bytes: int) -> Iterator[bytes]:
    left = most_bytes
    while piece := stream.read(_STEP):
        left -= len(piece)
        if left < 0:
            raise _too_large()
        yield piece


def _too_large() -> ValueError:
    return ValueError("it unpacks to more bytes than any such block has")


def lines_of(stream: pa.NativeFile) -> Iterator[bytes]:
    """Yield lines that end in a line feed alone, whatever else the text has.

    Raises ValueError for a line that is too long or has no end.
    """
    rest: list[bytes] = []
    length = 0
    while block := stream.read(_STEP):
        *lines, last = block.split(b"\n")
        for line in lines:
            yield b"".join([*rest, line, b"\n"])
            rest, length = [], 0
        rest.append(last)
        length += len(last)
        if length > MOST_UNPACKED_BYTES:
            raise ValueError("a line is longer than any row")
    if length:
        raise ValueError("the file ends inside of a line")


def portions(rows: Iterator[tuple[bytes, bytes | None]], most_rows: int, most_bytes: int) -> Iterator[Sequence[tuple[bytes, bytes | None]]]:
    """Yield rows in lists of at most `most_rows`. A list ends as soon as its rows have `most_bytes`."""
    some: list[tuple[bytes, bytes | None]] = []
    size = 0
    for row in rows:
        some.append(row)
        size += len(row[0])
        if len(some) == most_rows or size >= most_bytes:
            yield some
            some, size = [], 0
    if some:
        yield some
