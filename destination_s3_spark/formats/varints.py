"""Integers of variable length as in Avro and Thrift: groups of seven bits, lowest first, with the eighth bit set in all but the last."""

from __future__ import annotations

from typing import Protocol

_MOST_BITS = 70
"""Bits of the longest number of 64 bits, in groups of seven."""


class ByteStream(Protocol):
    """A file or a stream that is read on."""

    def read(self, size: int, /) -> bytes:
        """Read up to `size` bytes, fewer only at the end."""


def exactly(source: ByteStream, size: int) -> bytes:
    """Read so many bytes. Raises ValueError at the end of the file."""
    data = b"" if size < 0 else source.read(size)
    if len(data) != size:
        raise ValueError("the file ends early")
    return data


def read_unsigned(source: ByteStream, first: bytes = b"") -> int:
    """Read a number, given its first byte if that has been read. Raises ValueError where the data end inside of it.

    So does a number of more than 64 bits.
    """
    value = shift = 0
    while shift < _MOST_BITS:
        byte, first = (first or exactly(source, 1))[0], b""
        value |= (byte & 127) << shift
        if byte < 128:
            return value
        shift += 7
    raise ValueError("a number of more than 64 bits")


def read_integer(source: ByteStream, first: bytes = b"") -> int:
    """Do the same for a zigzag integer."""
    value = read_unsigned(source, first)
    return (value >> 1) ^ -(value & 1)


def unsigned(value: int) -> bytes:
    """Encode a number that is not negative."""
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def integer(value: int) -> bytes:
    """Encode a number as a zigzag integer."""
    return unsigned(value << 1 if value >= 0 else (-value << 1) - 1)
