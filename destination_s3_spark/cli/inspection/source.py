"""A table's files as engines find them: where they lie, and which columns they have."""

from __future__ import annotations

from dataclasses import dataclass

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.cli.inspection.table import InspectedTable
from destination_s3_spark.config.config import Config
from destination_s3_spark.config.format_options import ParquetFormat
from destination_s3_spark.formats.parquet import ParquetOptions
from destination_s3_spark.formats.registry import format_of
from destination_s3_spark.schema.airbyte_type import Field
from destination_s3_spark.schema.encodings import DESTINATION_S3
from destination_s3_spark.schema.schema_event import from_event
from destination_s3_spark.schema.table_schema import stored_fields
from destination_s3_spark.tables.configured import final_options


@dataclass(frozen=True, slots=True)
class ConfiguredTable:
    """A table and the configuration that it is written with."""

    table: InspectedTable
    config: Config

    @property
    def names(self) -> list[str]:
        """The namespace, if the stream has one, and the name."""
        stream = self.table.stream
        return [name for name in (stream.namespace, stream.name) if name]

    @property
    def has_delta_log(self) -> bool:
        """Whether the table is a Delta table, too."""
        return self.config.publish.delta and isinstance(self.config.format, ParquetFormat)

    @property
    def depths(self) -> set[int]:
        """The numbers of folders between the final root and the live files."""
        return {key.removeprefix(self.root).count("/") for key in self._keys()}

    @property
    def root(self) -> str:
        """The key prefix of the files."""
        return self.table.state.identity.final_root

    @property
    def extension(self) -> str:
        """The extension of all files, or nothing if they have several."""
        extension = final_options(self.config).extension
        return extension if all(key.endswith(extension) for key in self._keys() if format_of(key) is not None) else ""

    def uri(self, scheme: str) -> str:
        """Return the URI of the folder of the files."""
        return f"{scheme}://{self.config.s3_bucket_name}/{self.root}"

    def fields(self) -> tuple[Field, ...]:
        """Return the columns as they are stored."""
        recorded = from_event(self.table.state.schema or {})
        options = final_options(self.config)
        return stored_fields(recorded, recorded.encodings or (options.encodings if isinstance(options, ParquetOptions) else DESTINATION_S3))

    def _keys(self) -> list[str]:
        return [*(file.key for file in self.table.files_of(FileKind.FINAL)), *self.table.readable.live.adopted]
