"""From JSON texts to the bytes of a file, through the same steps as a sync."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from destination_s3_spark.decoding.kernel_typer import record_typer
from destination_s3_spark.decoding.record_typer import TypedBlock
from destination_s3_spark.formats.file_format import FileColumns, FileOptions
from destination_s3_spark.protocol.catalog import DestinationSyncMode, Stream
from destination_s3_spark.schema.json_schema import Decimals, stream_fields
from destination_s3_spark.schema.placement import SchemaPolicy
from destination_s3_spark.schema.table_schema import evolve
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.tables.columns.row_plan import file_columns, row_plan


@dataclass
class Landing:
    """A stream with these properties, whose records become files of a format."""

    options: FileOptions
    properties: dict[str, Any] = field(default_factory=dict)
    stream: StreamId = field(default_factory=lambda: StreamId("shop", "users"))
    required: Sequence[str] = ()

    @property
    def columns(self) -> FileColumns:
        return file_columns(self._schema(), self._plan())

    def typed(self, data: Iterable[str], rest: str = "") -> TypedBlock:
        """The rows of records with these texts as `data`; `rest` goes behind it."""
        lines = "".join(
            f'{{"type":"RECORD","record":{{"namespace":"{self.stream.namespace}","stream":"{self.stream.name}","emitted_at":1700000000123,"data":{text}{rest}}}}}\n'
            for text in data
        )
        return record_typer(self._plan()).type_block(lines.encode())

    def file(self, data: Iterable[str], rest: str = "") -> bytes:
        """The bytes of a file with these records."""
        block = self.typed(data, rest)
        self.options.require_fitting(self.columns)
        sink = io.BytesIO()
        file = self.options.open(sink, self.columns)
        file.write(block.final)
        assert file.close().rows == block.records
        return sink.getvalue()

    def _schema(self) -> Any:
        return evolve(None, self._declared(), self.stream, SchemaPolicy()).schema

    def _declared(self) -> Any:
        untyped = self.options.extension not in {".avro", ".parquet"}
        schema = {"type": "object", "properties": self.properties, "required": list(self.required)}
        return stream_fields(schema, self.stream, decimals=Decimals(declared=True), unfit_as_text=untyped)

    def _plan(self) -> Any:
        stream = Stream(
            id=self.stream,
            json_schema={},
            sync_mode="full_refresh",
            destination_sync_mode=DestinationSyncMode.APPEND,
            primary_key=(),
            cursor_field=(),
            generation_id=3,
            minimum_generation_id=0,
            sync_id=7,
        )
        return row_plan(stream, self._schema(), self._declared().fields, self.options)


@pytest.fixture(scope="session")
def landing() -> Callable[..., Landing]:
    """`landing(options, properties)`: see Landing."""
    return Landing


@pytest.fixture(scope="session")
def as_integers() -> Callable[[pa.DataType], pa.DataType]:
    """An Arrow type with every date, time and timestamp as the integer that is stored."""

    def of(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_date32(kind):
            return pa.int32()
        if pa.types.is_temporal(kind):
            return pa.int64()
        if pa.types.is_list(kind):
            return pa.list_(of(kind.value_type))
        if pa.types.is_struct(kind):
            return pa.struct([(member.name, of(member.type)) for member in kind])
        return kind

    return of
