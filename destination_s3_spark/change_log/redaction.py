"""Files of a change log without some of their events or rows. All others keep their bytes, and so their sequence numbers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from destination_s3_spark.change_log.manifest import Manifest
from destination_s3_spark.change_log.options import ChangeLogFormat
from destination_s3_spark.change_log.parsing import PARQUET_ROWS_AT_ONCE, text_rows
from destination_s3_spark.change_log.typed import LOG_PARQUET
from destination_s3_spark.formats.file_format import FileWriter, SeekableFile, Sink
from destination_s3_spark.formats.parquet import JoinedParquetFile, ParquetFile
from destination_s3_spark.formats.text_file import Compression, TextWriter


def open_redacted(sink: Sink, manifest: Manifest, gone: frozenset[int]) -> FileWriter[SeekableFile]:
    """Start a file of the rows of another one of the group, without those at the positions `gone`, counted from 0."""
    if manifest.format is ChangeLogFormat.PARQUET:
        return _RedactedParquet(sink, gone)
    return _RedactedText(sink, manifest, gone)


class _RedactedText(TextWriter[SeekableFile]):
    def __init__(self, sink: Sink, manifest: Manifest, gone: frozenset[int]) -> None:
        super().__init__(sink, Compression.GZIP)
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
        with pq.ParquetFile(content) as source:
            file = self._joined = ParquetFile(self._sink, source.schema_arrow, LOG_PARQUET)
            for batch in source.iter_batches(PARQUET_ROWS_AT_ONCE):
                kept = np.array([start + position not in self._gone for position in range(batch.num_rows)], np.bool_)
                file.write(batch.filter(pa.array(kept)))
                start += batch.num_rows
