"""Conversion of whole columns of plain dates and timestamps by Arrow's own cast, the fastest way to parse them.

The cast is used only where it is known to read texts as `temporal.temporal` does, and for all texts of a column or none. One text that
the cast refuses, or might read differently, leaves the column to `plain_temporal`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.schema.airbyte_type import Scalar

_SECONDS_LENGTH = len("yyyy-MM-ddTHH:mm:ss")
"""Length of the shortest timestamp that is cast. Arrow also accepts shorter texts, such as a date alone, which is no timestamp here."""
_OFFSET_LENGTH = len("+HH:mm")
_YEAR_ONE_DAY = -719_162
"""0001-01-01 as days since 1970-01-01. Arrow accepts a year 0, which `temporal.temporal` refuses."""
_YEAR_ONE_US = (_YEAR_ONE_DAY + 2) * 86_400_000_000
"""A timestamp later than any in the year 0, whatever the offset."""
_LONGEST = 2**31 - 1
_CASTS: Mapping[Scalar, pc.CastOptions] = MappingProxyType(
    {
        Scalar.DATE: pc.CastOptions.safe(pa.date32()),
        Scalar.TIMESTAMP_WITH_TIMEZONE: pc.CastOptions.safe(pa.timestamp("us", "UTC")),  # Arrow requires an offset in every text
        Scalar.TIMESTAMP_WITHOUT_TIMEZONE: pc.CastOptions.safe(pa.timestamp("us")),  # Arrow refuses a text with an offset
    }
)

Ints = np.ndarray[Any, np.dtype[np.int32]]


def cast_temporals(kind: Scalar, texts: pa.StringArray, arrow_type: pa.DataType) -> pa.Array[Any] | None:
    """Cast the texts of a column to its stored type. Return None unless all of them are plain. The array must not be a slice."""
    options = _CASTS.get(kind)
    if options is None or (kind is not Scalar.DATE and not _plain_timestamps(texts, zoned=kind is Scalar.TIMESTAMP_WITH_TIMEZONE)):
        return None
    try:
        values = pc.call_function("cast", [texts], options)
    except pa.ArrowInvalid:
        return None
    stored, first = (np.int32, _YEAR_ONE_DAY) if kind is Scalar.DATE else (np.int64, _YEAR_ONE_US)
    # Arrow writes nulls as zero. If it wrote another value, the column would at worst be parsed the slower way.
    earliest = np.frombuffer(values.buffers()[1], stored, len(texts)).min(initial=0)
    return values.view(arrow_type) if earliest >= first else None


def _plain_timestamps(texts: pa.StringArray, *, zoned: bool) -> bool:
    """Return whether every text is at least as long as a timestamp with seconds.

    If `zoned`, every text must also end in `Z` or in an offset `+HH:mm` or `-HH:mm` of at most 17:59.
    """
    _, offsets_buffer, data_buffer = texts.buffers()
    if data_buffer is None or not len(texts):
        return False
    offsets: Ints = np.frombuffer(offsets_buffer, np.int32, len(texts) + 1)
    ends = offsets[1:]
    lengths = ends - offsets[:-1]
    if texts.null_count:  # a null has length 0, and so has an empty text, but the cast refuses the latter
        present = lengths > 0
        ends, lengths = ends[present], lengths[present]
    if int(lengths.min(initial=_LONGEST)) < _SECONDS_LENGTH + zoned:
        return False
    if not zoned:
        return True
    data = np.frombuffer(data_buffer, np.uint8)
    others = data[ends - 1] != ord("Z")
    return not others.any() or _plain_offsets(data, ends[others], lengths[others])


def _plain_offsets(data: np.ndarray[Any, np.dtype[np.uint8]], ends: Ints, lengths: Ints) -> bool:
    sign, tens, ones = data[ends - 6], data[ends - 5], data[ends - 4]
    small = (tens == ord("0")) | ((tens == ord("1")) & (ones <= ord("7")))
    signed = (sign == ord("+")) | (sign == ord("-"))
    return int(lengths.min()) >= _SECONDS_LENGTH + _OFFSET_LENGTH and bool((small & signed).all())
