"""From the user's configuration to the settings of each part. The only place that knows both."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from pydantic import SecretStr

from destination_s3_spark.config import Config
from destination_s3_spark.engine.memory import container_memory_bytes, jvm_heap_mb
from destination_s3_spark.engine.session import SparkSettings, local_cores
from destination_s3_spark.format_options import (
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
from destination_s3_spark.format_options import Flattening as FlatteningOption
from destination_s3_spark.formats import avro
from destination_s3_spark.formats.avro import AvroOptions, Checksum
from destination_s3_spark.formats.csv import CsvOptions
from destination_s3_spark.formats.jsonl import JsonlOptions
from destination_s3_spark.formats.options import FileOptions
from destination_s3_spark.formats.parquet import Codec, Dictionary, ParquetOptions, TimeEncoding
from destination_s3_spark.formats.text_file import Compression, Flattening
from destination_s3_spark.storage.paths import PathTemplate
from destination_s3_spark.storage.settings import AccessKey, Checksums, Encryption, S3Settings
from destination_s3_spark.sync.batches import Limits

MB = 2**20
GB = 2**30


def s3_settings(config: Config) -> S3Settings:
    """The bucket and the way to it."""
    s3 = config.s3
    return S3Settings(
        bucket=config.s3_bucket_name,
        region=config.s3_bucket_region,
        endpoint=config.s3_endpoint,
        credentials=_access_key(config.access_key_id, config.secret_access_key),
        role_arn=config.role_arn,
        sse=Encryption(s3.sse) if s3.sse else Encryption.NONE,
        kms_key_id=s3.kms_key_id,
        expected_bucket_owner=s3.expected_bucket_owner,
        checksums=Checksums(s3.checksums) if s3.checksums else None,
        single_writer=s3.single_writer,
    )


def path_template(config: Config, started_at: datetime, sync_id: int) -> PathTemplate:
    """How keys are made in a sync that starts now."""
    return PathTemplate(config.s3_bucket_path, config.s3_path_format, config.file_name_pattern, started_at, sync_id)


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
        row_group_bytes=chosen.block_size_mb * MB,
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


RAW_PARQUET = ParquetOptions(codec=Codec.ZSTD, row_group_bytes=32 * MB, dictionary=Dictionary.OFF)
"""Raw files hold JSON text, which zstd shrinks well and a dictionary does not; small row groups keep the second writer of a task cheap."""


def limits(config: Config) -> Limits:
    """When batches are cut."""
    batching = config.batching
    return Limits(batching.max_batch_mb * MB, batching.max_batch_age_s, int(batching.max_spool_gb * GB))


def spark_settings(config: Config, scratch: Path) -> SparkSettings:
    """How Spark runs; its scratch files go below `scratch`."""
    spark = config.spark
    heap = _megabytes(spark.driver_memory) if spark.driver_memory else jvm_heap_mb(container_memory_bytes())
    return SparkSettings(local_cores(spark.master), heap, scratch, spark.conf)


def _access_key(key_id: SecretStr | None, secret: SecretStr | None) -> AccessKey | None:
    if key_id is None or secret is None:
        return None
    return AccessKey(key_id.get_secret_value(), secret.get_secret_value())


def _megabytes(text: str) -> int:
    number, unit = int(text[:-1]), text[-1]
    return number * 1024 if unit == "g" else number
