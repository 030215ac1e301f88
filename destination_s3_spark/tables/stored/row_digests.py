"""Comparison of two states of a table by row digests, regardless of the order of rows and their distribution over files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from xxhash import xxh3_128_digest

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.errors import DataError
from destination_s3_spark.formats.parquet import ParquetOptions
from destination_s3_spark.formats.registry import format_of
from destination_s3_spark.schema.encodings import ExtractedAtEncoding, mapped, with_unit
from destination_s3_spark.storage.object_store import ObjectNotFound
from destination_s3_spark.storage.ranged import RangedFile
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.runs.keys import CURSOR, KEY

DIGEST_BYTES = 16
DIGESTED_AT_ONCE = 16_384


class DigestedFiles(NamedTuple):
    """The Parquet files with the rows of a final table, and whether these are typed, or text, or both."""

    files: tuple[FileEntry, ...]
    typed: frozenset[bool]

    def comparable_with(self, other: DigestedFiles) -> bool:
        """Tell whether equal rows of both have equal digests."""
        return len(self.typed | other.typed) < 2


def digested_files(live: LiveFiles) -> DigestedFiles | None:
    """Find the files to digest: the final files, or the merge states of those in another format. None if some are in no Parquet file."""
    states = {file.copy_of: file for file in live.of(FileKind.STATE)}
    files, typed = [], set()
    for final in live.settled(FileKind.FINAL):
        known, file = format_of(final.key), final if final.key.endswith(ParquetOptions.extension) else states.get(final.key)
        if known is None or file is None:
            return None
        files.append(file)
        typed.add(known.typed)
    return DigestedFiles(tuple(files), frozenset(typed))


def row_digests(file: FileEntry, s3: S3Settings) -> bytes | None:
    """Return the concatenated digests of a Parquet file's rows, or None if it is gone or damaged. Raises ConfigError and TransientError.

    An absent column counts as null, so rows of two schemas can be equal.
    """
    digests = bytearray()
    try:
        with RangedFile(s3, file.key, file.bytes) as source:
            for batch in pq.ParquetFile(source).iter_batches(DIGESTED_AT_ONCE):
                rows = batch.drop_columns([name for name in (KEY, CURSOR) if name in batch.schema.names])
                rows = rows.cast(with_unit(rows.schema, ExtractedAtEncoding.MICROS))
                for row in rows.cast(pa.schema([mapped(field, _as_number) for field in rows.schema])).to_pylist():
                    present = {name: value for name, value in row.items() if value is not None}
                    digests += xxh3_128_digest(msgspec.json.encode(present, order="sorted"))
    except (ObjectNotFound, DataError, pa.ArrowException, OSError):
        return None
    return bytes(digests)


def _as_number(kind: pa.DataType) -> pa.DataType:
    """Return a number's type for dates and times, because Python has no years before 1 and after 9999."""
    if not pa.types.is_temporal(kind):
        return kind
    return pa.int32() if kind.bit_width == 32 else pa.int64()


def digests_counted(files: Iterable[bytes | None]) -> Counter[bytes]:
    """Count the rows of a state with each digest, given the digests per file. A file without digests has no row that is known."""
    known = [file for file in files if file is not None]
    return Counter(file[start : start + DIGEST_BYTES] for file in known for start in range(0, len(file), DIGEST_BYTES))
