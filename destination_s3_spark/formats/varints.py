"""Integers of variable length as in Avro and Thrift: groups of seven bits, lowest first, with the eighth bit set in all but the last."""

from __future__ import annotations

from destination_s3_spark.formats.file_format import SeekableFile


def exactly(source: SeekableFile, size: int) -> bytes:
    """Read so many bytes. Raises ValueError at the end of the file."""
    data = source.read(size)
    if len(data) != size:
        raise ValueError("the file ends early")
    return data


def read_unsigned(source: SeekableFile) -> int:
    """Read a number. Raises ValueError where the data end inside of it."""
    value = shift = 0
    while True:
        byte = exactly(source, 1)[0]
        value |= (byte & 127) << shift
        if byte < 128:
            return value
        shift += 7


def read_integer(source: SeekableFile) -> int:
    """Read a zigzag integer. Raises ValueError where the data end inside of it."""
    value = read_unsigned(source)
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
