"""Integers of variable length as in Avro and Thrift: groups of seven bits, lowest first, with the eighth bit set in all but the last."""

from __future__ import annotations


def read_unsigned(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at a place, and the place behind it. Raises IndexError where the data end inside of it."""
    if data[at] < 128:  # most integers are one byte
        return data[at], at + 1
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def read_integer(data: bytes, at: int) -> tuple[int, int]:
    """Do the same for a zigzag integer."""
    value, at = read_unsigned(data, at)
    return (value >> 1) ^ -(value & 1), at


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
