"""The `format` part of the configuration. Names, values and defaults are destination-s3's, so that its configurations work unchanged.

The docstrings of the variants and of their options are the descriptions that users read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, field_validator

from destination_s3_spark.config.settings_model import Applies, OpenSettings, documented

Flattening = Literal["No flattening", "Root level flattening"]
ParquetCodec = Literal["UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD"]
TimeEncoding = Literal["time", "int64", "local"]
ExtractedAtEncoding = Literal["millis", "micros"]

FLATTENING: Any = Field(
    "No flattening",
    title="Flattening",
    description="Whether the top-level fields of a record become columns of their own, or the whole record one column of JSON.",
)
TEXT_COMPRESSION = Field(
    title="Compression",
    description='Whether the files are compressed. GZIP, the default, adds ".gz" to their names.',
    discriminator="compression_type",
)
LEVEL = "Compression Level"


class NoCompression(OpenSettings):
    """Files as they are."""

    model_config = ConfigDict(title="No Compression")
    compression_type: Literal["No Compression"] = "No Compression"


class Gzip(OpenSettings):
    """Files compressed as a whole."""

    model_config = ConfigDict(title="GZIP")
    compression_type: Literal["GZIP"] = "GZIP"


TextCompression = Gzip | NoCompression
"""Airbyte's form chooses the first variant, so it is the default."""


class CsvFormat(OpenSettings):
    """Text with a header line, one record per line."""

    model_config = ConfigDict(title="CSV: Comma-Separated Values")
    format_type: Literal["CSV"] = "CSV"
    flattening: Flattening = FLATTENING
    compression: Annotated[TextCompression, TEXT_COMPRESSION] = Field(default_factory=Gzip)


class JsonlFormat(OpenSettings):
    """Text with one JSON object per line."""

    model_config = ConfigDict(title="JSON Lines: Newline-delimited JSON")
    format_type: Literal["JSONL"] = "JSONL"
    flattening: Flattening = FLATTENING
    compression: Annotated[TextCompression, TEXT_COMPRESSION] = Field(default_factory=Gzip)


class AvroUncompressed(OpenSettings):
    """Blocks as they are."""

    model_config = ConfigDict(title="no compression")
    codec: Literal["no compression"] = "no compression"


class AvroDeflate(OpenSettings):
    """Blocks compressed with deflate."""

    model_config = ConfigDict(title="Deflate")
    codec: Literal["Deflate"] = "Deflate"
    compression_level: int = Field(0, ge=0, le=9, title="Deflate Level", examples=[6])
    """0 stores fastest, 9 compresses most."""


class AvroBzip2(OpenSettings):
    """Blocks compressed with bzip2."""

    model_config = ConfigDict(title="bzip2")
    codec: Literal["bzip2"] = "bzip2"


class AvroXz(OpenSettings):
    """Blocks compressed with xz."""

    model_config = ConfigDict(title="xz")
    codec: Literal["xz"] = "xz"
    compression_level: int = Field(6, ge=0, le=9, title=LEVEL, examples=[9])
    """0 is fastest, 9 compresses most."""


class AvroZstandard(OpenSettings):
    """Blocks compressed with zstandard."""

    model_config = ConfigDict(title="zstandard")
    codec: Literal["zstandard"] = "zstandard"
    compression_level: int = Field(3, ge=-5, le=22, title=LEVEL, examples=[9])
    """-5 is fastest, 22 compresses most."""
    include_checksum: bool = Field(False, title="Include Checksum")
    """Whether each block carries a checksum of its content."""


class AvroSnappy(OpenSettings):
    """Blocks compressed with snappy."""

    model_config = ConfigDict(title="snappy")
    codec: Literal["snappy"] = "snappy"


AvroCodec = AvroUncompressed | AvroDeflate | AvroBzip2 | AvroXz | AvroZstandard | AvroSnappy


class AvroFormat(OpenSettings):
    """Rows with their schema, in Avro's object container files."""

    model_config = ConfigDict(title="Avro: Apache Avro")
    format_type: Literal["Avro"] = "Avro"
    compression_codec: Annotated[
        AvroCodec,
        Field(
            title="Compression Codec",
            description="How the blocks of a file are compressed. Not at all by default.",
            discriminator="codec",
            json_schema_extra={"order": 1},
        ),
    ] = Field(default_factory=AvroUncompressed)


class ParquetFormat(OpenSettings):
    """Columns, for Spark, DuckDB, Athena and most other readers."""

    model_config = ConfigDict(title="Parquet: Columnar Storage")
    format_type: Literal["Parquet"] = "Parquet"
    compression_codec: ParquetCodec = Field(
        "UNCOMPRESSED",
        title="Compression Codec",
    )
    """How the pages of a file are compressed. SNAPPY is read everywhere, ZSTD is smaller. LZO cannot be written."""
    block_size_mb: int = Field(128, ge=1, title="Block Size (Row Group Size) (MB)", examples=[64])
    """How much data of a file stands together in one row group. Larger groups read faster and take more memory."""
    max_padding_size_mb: int = Field(8, ge=0, title="Max Padding Size (MB)", examples=[8])
    """No effect: no padding is written."""
    page_size_kb: int = Field(1024, ge=1, title="Page Size (KB)", examples=[256])
    """The smallest piece that a reader decompresses."""
    dictionary_page_size_kb: int = Field(1024, ge=1, title="Dictionary Page Size (KB)", examples=[512])
    """How large the dictionary of a column may grow in a row group."""
    dictionary_encoding: bool = Field(
        True,
        title="Dictionary Encoding",
    )
    """Whether repeated values of a column are stored once and referred to."""
    time_encoding: TimeEncoding = Field(
        "time", title="Time Encoding", json_schema_extra=documented(Applies.NEW_TABLES, page="formats.md#encodings-of-a-table")
    )
    """How times of day are stored: time is Parquet's TIME in UTC, int64 plain microseconds since midnight for readers without TIME, local
    TIME without a time zone.
    """
    extracted_at_encoding: ExtractedAtEncoding | None = Field(
        None, title="Extraction Time Encoding", json_schema_extra=documented(Applies.NEW_TABLES, page="formats.md#encodings-of-a-table")
    )
    """The unit of _airbyte_extracted_at. The default is milliseconds, as in destination-s3, and microseconds with publish.delta or
    publish.iceberg.
    """

    @field_validator("compression_codec")
    @classmethod
    def _codec_can_be_written(cls, codec: ParquetCodec) -> ParquetCodec:
        if codec == "LZO":
            raise ValueError("LZO files cannot be written. Choose UNCOMPRESSED, SNAPPY, GZIP, BROTLI, LZ4 or ZSTD")
        return codec


Format = CsvFormat | JsonlFormat | AvroFormat | ParquetFormat

SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "format_type": ("CSV", "JSONL", "Avro", "Parquet"),
    "compression_type": ("No Compression", "GZIP"),
    "codec": ("no compression", "Deflate", "bzip2", "xz", "zstandard", "snappy"),
    "compression_codec": ("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD"),
}
"""Options whose values older versions of destination-s3 read in any case ("No Compression", "PARQUET")."""


def with_current_spelling(value: Any, option: str = "format") -> Any:
    """Return the value of an option, or the options in it, with those of `SPELLINGS` spelt as in the spec. Others stay unchanged."""
    if isinstance(value, Mapping):
        return {key: with_current_spelling(inner, key) for key, inner in value.items()}
    if isinstance(value, str):
        return next((spelling for spelling in SPELLINGS.get(option, ()) if spelling.casefold() == value.strip().casefold()), value)
    return value
