"""From the user's configuration to the settings of each part; those of the bucket are in `storage.configured`."""

from __future__ import annotations

from destination_s3_spark.change_log.events import AfterImage, BeforeImage
from destination_s3_spark.change_log.options import ChangeLogFormat, ChangeLogOptions
from destination_s3_spark.config.config import MIB, Config
from destination_s3_spark.config.format_options import (
    AvroCodec,
    AvroDeflate,
    AvroFormat,
    AvroUncompressed,
    AvroXz,
    AvroZstandard,
    CsvFormat,
    JsonlFormat,
    ParquetFormat,
    TextCompression,
)
from destination_s3_spark.config.format_options import Flattening as FlatteningOption
from destination_s3_spark.formats import avro
from destination_s3_spark.formats.avro import AvroOptions, Checksum
from destination_s3_spark.formats.csv import CsvOptions
from destination_s3_spark.formats.jsonl import JsonlOptions
from destination_s3_spark.formats.options import FileOptions
from destination_s3_spark.formats.parquet import Codec, Dictionary, ParquetOptions, TimeEncoding
from destination_s3_spark.formats.text_file import Compression, Flattening
from destination_s3_spark.schema.policy import SchemaChange
from destination_s3_spark.tables.runs.keys import CdcDeletion
from destination_s3_spark.tables.stream_table import Rules


def final_options(config: Config) -> FileOptions:
    """The format of final files."""
    match config.format:
        case ParquetFormat() as chosen:
            return _parquet(chosen)
        case AvroFormat() as chosen:
            return _avro(chosen.compression_codec)
        case JsonlFormat() as chosen:
            return JsonlOptions(_flattening(chosen.flattening), _compression(chosen.compression))
        case CsvFormat() as chosen:
            return CsvOptions(_flattening(chosen.flattening), _compression(chosen.compression))


def _parquet(chosen: ParquetFormat) -> ParquetOptions:
    return ParquetOptions(
        codec=Codec(chosen.compression_codec),
        row_group_bytes=chosen.block_size_mb * MIB,
        page_bytes=chosen.page_size_kb * 1024,
        dictionary_page_bytes=chosen.dictionary_page_size_kb * 1024,
        dictionary=Dictionary.ON if chosen.dictionary_encoding else Dictionary.OFF,
        time_encoding=TimeEncoding(chosen.time_encoding),
    )


def _avro(chosen: AvroCodec) -> AvroOptions:
    match chosen:
        case AvroDeflate():
            return AvroOptions(avro.Codec.DEFLATE, chosen.compression_level)
        case AvroXz():
            return AvroOptions(avro.Codec.XZ, chosen.compression_level)
        case AvroZstandard():
            checksum = Checksum.INCLUDED if chosen.include_checksum else Checksum.NONE
            return AvroOptions(avro.Codec.ZSTANDARD, chosen.compression_level, checksum)
        case AvroUncompressed():
            return AvroOptions()
    return AvroOptions(avro.Codec(chosen.codec))


def _flattening(chosen: FlatteningOption) -> Flattening:
    return Flattening.ROOT if chosen == "Root level flattening" else Flattening.NONE


def _compression(chosen: TextCompression) -> Compression:
    return Compression.GZIP if chosen.compression_type == "GZIP" else Compression.NONE


RAW_PARQUET = ParquetOptions(codec=Codec.ZSTD, row_group_bytes=32 * MIB, dictionary=Dictionary.OFF)
"""Raw files hold JSON text, which zstd shrinks well and a dictionary does not; small row groups keep the second writer of a task cheap."""


def rules(config: Config) -> Rules:
    """What is done with tables."""
    tables = config.tables
    log = config.change_log
    options = ChangeLogOptions(ChangeLogFormat(log.format), BeforeImage(log.before_image), AfterImage(log.after_image), log.include_header)
    return Rules(
        SchemaChange(tables.schema_change),
        CdcDeletion(tables.cdc_deletion_mode),
        tables.target_file_mb * MIB,
        options if log.enabled else None,
    )
