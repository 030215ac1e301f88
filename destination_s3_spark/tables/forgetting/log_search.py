"""Search for the rows to forget in files of a change log, and the files without them. Spark tasks run the four functions.

An event shows the row before and after a change, each as far as its images go. Both are typed by the table's columns of today, as records
are. All events of a key go, so a search says which keys have such rows, as the log has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice

import numpy as np
import orjson
import pyarrow as pa

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.change_log.manifest import Manifest
from destination_s3_spark.change_log.options import ChangeLogFormat
from destination_s3_spark.change_log.parsing import PARQUET_ROWS_AT_ONCE, Values, read_events, text_rows
from destination_s3_spark.change_log.typed import LOG_PARQUET
from destination_s3_spark.decoding.kernel_typer import record_typer
from destination_s3_spark.decoding.plan import RowPlan
from destination_s3_spark.errors import Bug, DataError
from destination_s3_spark.formats.bounded import reading
from destination_s3_spark.formats.file_format import SeekableFile, Sink
from destination_s3_spark.formats.parquet import JoinedParquetFile, ParquetFile
from destination_s3_spark.formats.parquet_pages import PagedFile
from destination_s3_spark.formats.text_file import TextWriter
from destination_s3_spark.schema.airbyte_type import Field
from destination_s3_spark.storage.ranged import RangedFile, opened
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.storage.staging import StagedFileSink
from destination_s3_spark.tables.forgetting.search import add_values
from destination_s3_spark.tables.forgetting.wanted import ByKeys, ByValues, FieldTexts
from destination_s3_spark.tables.runs.keys import key_column
from destination_s3_spark.tables.staged.staged_file import StagedFile
from destination_s3_spark.tables.stored.foreign import record_line

IMAGES_AT_ONCE = 4_096


@dataclass(frozen=True, slots=True)
class LoggedFile:
    """A file of a change log, the manifest that describes it, and the bucket that has it."""

    manifest: Manifest
    key: str
    bytes: int
    s3: S3Settings


@dataclass(frozen=True, slots=True)
class LogHits:
    """Keys of rows that are to be forgotten: as the log has them, and encoded as those of the table, as far as it tells them."""

    in_log: frozenset[bytes]
    of_table: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class LogSearchTask:
    """A file, and what to look for. `plan` types the columns that decide. Either of the last two may be missing."""

    file: LoggedFile
    plan: RowPlan
    values: ByValues | None
    keys: ByKeys | None


@dataclass(frozen=True, slots=True)
class LogPlacesTask:
    """A file, and keys as the log has them whose rows are looked for."""

    file: LoggedFile
    keys: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class LogValuesTask:
    """A file, the positions of the rows to forget, and the columns whose values are collected. `plan` types these columns."""

    file: LoggedFile
    places: frozenset[int]
    columns: Sequence[tuple[Field, ...]]
    plan: RowPlan


@dataclass(frozen=True, slots=True)
class RedactTask:
    """A file, the positions of the rows to forget, and the key of the file without them."""

    file: LoggedFile
    gone: frozenset[int]
    key: str


def search_log(task: LogSearchTask) -> LogHits:
    """Find keys of rows. Raises DataError for a file that is gone or damaged, ConfigError or TransientError."""
    in_log, of_table = set[bytes](), set[bytes]()
    with _opened(task.file) as source:
        images = _images(task.file.manifest, source)
        while some := list(islice(images, IMAGES_AT_ONCE)):
            found, keys = _matches(task, [image for _, _, image in some])
            in_log.update(some[at][1] for at in found)
            of_table.update(keys)
    return LogHits(frozenset(in_log), frozenset(of_table))


def find_places(task: LogPlacesTask) -> frozenset[int]:
    """Return the positions of the rows of the keys in the file. Raises as `search_log`."""
    with _opened(task.file) as source:
        return frozenset(place for place, key, _ in _images(task.file.manifest, source) if key in task.keys)


def collect_from_log(task: LogValuesTask) -> FieldTexts:
    """Collect the values that the rows have before and after each change. Raises as `search_log`."""
    values: FieldTexts = {}
    with _opened(task.file) as source:
        images = (image for place, _, image in _images(task.file.manifest, source) if place in task.places)
        while some := list(islice(images, IMAGES_AT_ONCE)):
            add_values(values, task.columns, _typed(some, task.plan))
    return values


def redact(task: RedactTask) -> FileEntry:
    """Stage the file without the rows. Raises as `search_log`. Nothing stays staged then."""
    sink, manifest = StagedFileSink(task.file.s3, task.key), task.file.manifest
    is_parquet = manifest.format is ChangeLogFormat.PARQUET
    writer = _RedactedParquet(sink, task.gone) if is_parquet else _RedactedText(sink, manifest, task.gone)
    with _opened(task.file) as source, StagedFile(FileKind.CHANGES, sink, writer) as file:
        file.write(source)
        return file.stage()


class _RedactedText(TextWriter[SeekableFile]):
    """A text file of the rows of another one of the group, without those at the positions `gone`. All others keep their bytes."""

    def __init__(self, sink: Sink, manifest: Manifest, gone: frozenset[int]) -> None:
        super().__init__(sink, compressed=True)
        self._manifest = manifest
        self._gone = gone

    def write(self, content: SeekableFile) -> None:
        for position, row in enumerate(text_rows(self._manifest, content), start=-self._manifest.header_rows):
            if position not in self._gone:
                self._put(row)
                self._rows += position >= 0


class _RedactedParquet(JoinedParquetFile):
    def __init__(self, sink: Sink, gone: frozenset[int]) -> None:
        super().__init__(sink, LOG_PARQUET)
        self._gone = gone

    def write(self, content: SeekableFile) -> None:
        start = 0
        source = PagedFile(content)
        file = self._joined = ParquetFile(self._sink, source.schema, LOG_PARQUET)
        for batch in source.batches(PARQUET_ROWS_AT_ONCE):
            kept = np.array([start + position not in self._gone for position in range(batch.num_rows)], np.bool_)
            file.write(batch.filter(pa.array(kept)))
            start += batch.num_rows


@contextmanager
def _opened(file: LoggedFile) -> Iterator[RangedFile]:
    def damaged(fault: str) -> DataError:
        return DataError(f"The file {file.key} of a change log is damaged ({fault}). Nothing was changed.")

    with opened(file.key, file.bytes, file.s3) as source, reading(damaged):
        yield source


def _images(manifest: Manifest, source: RangedFile) -> Iterator[tuple[int, bytes, Values]]:
    """Yield what each event or row shows of the row before and after, with its position in the file and the text of its key."""
    for place, event in enumerate(read_events(manifest, source)):
        of_row = event.of_key(manifest.primary_key)
        key = _text(list(of_row.values()))
        if event.old:
            yield place, key, {**of_row, **event.old}
        if event.new:
            yield place, key, {**event.old, **event.new}


def _typed(images: Sequence[Values], plan: RowPlan) -> pa.RecordBatch:
    """Return the images as rows of the plan's columns, null where an image lacks one."""
    shown = ({field.name: image[field.name] for field in plan.fields if field.name in image} for image in images)
    lines = b"".join(record_line(plan.stream, _text(data)) for data in shown)
    rows = record_typer(plan).type_block(lines).final
    if rows.num_rows != len(images):
        raise Bug("Rows of a change log were lost while they were looked at; nothing was changed.")
    return rows


def _matches(task: LogSearchTask, images: Sequence[Values]) -> tuple[list[int], Iterator[bytes]]:
    """Return the indices of the images to forget, and the keys of theirs that are complete."""
    rows = _typed(images, task.plan)
    hit = np.zeros(len(images), np.bool_)
    if task.values is not None:
        hit |= np.asarray(task.values.mask(rows).fill_null(False))
    if task.keys is None:
        return np.flatnonzero(hit).tolist(), iter(())
    names = [field.name for field in task.keys.spec.key]
    has_key = np.array([all(name in image for name in names) for image in images], np.bool_)
    hit |= np.asarray(task.keys.mask(rows)) & has_key
    of_table = key_column(rows.filter(pa.array(hit & has_key)), task.keys.spec).to_pylist()
    return np.flatnonzero(hit).tolist(), iter(of_table)


def _text(value: object) -> bytes:
    return orjson.dumps(value, default=_number)


def _number(value: Decimal) -> orjson.Fragment:
    """Return a decimal as a JSON number with all of its digits."""
    return orjson.Fragment(f"{value:f}")
