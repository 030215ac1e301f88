"""From the user's configuration to the settings of each part; those of the bucket are in `storage.configured`."""

from __future__ import annotations

import sys
from pathlib import Path

from destination_s3_spark.change_log.events import AfterImage, BeforeImage
from destination_s3_spark.change_log.options import ChangeLogFormat, ChangeLogOptions
from destination_s3_spark.config import Config, Spark
from destination_s3_spark.engine import class_data
from destination_s3_spark.engine.cluster import Cluster
from destination_s3_spark.engine.memory import container_memory_bytes, jvm_heap_mb
from destination_s3_spark.engine.session import SparkSettings, local_cores
from destination_s3_spark.errors import ConfigError
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
from destination_s3_spark.schema.policy import SchemaChange
from destination_s3_spark.spark_conf import PYTHON, is_local
from destination_s3_spark.storage.endpoint import cloud_deployment
from destination_s3_spark.sync.batches import Limits
from destination_s3_spark.tables.keys import CdcDeletion
from destination_s3_spark.tables.stream_table import Rules

MB = 2**20
GB = 2**30
WORKER_BYTES = 160 * MB
"""What a Python process takes with its libraries alone."""
CLUSTER_TASK_BYTES = 256 * MB
"""Arrow memory a task may take on a cluster, whose machines' memory is not known here. With what else it takes, a task needs about 1 GB."""
CLUSTER_START_LIMIT_S = 600
"""How long executors of a cluster may take to appear: some clusters have to grow first."""


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


def rules(config: Config) -> Rules:
    """What is done with tables."""
    tables = config.tables
    log = config.change_log
    options = ChangeLogOptions(ChangeLogFormat(log.format), BeforeImage(log.before_image), AfterImage(log.after_image), log.include_header)
    return Rules(
        SchemaChange(tables.schema_change),
        CdcDeletion(tables.cdc_deletion_mode),
        tables.target_file_mb * MB,
        options if log.enabled else None,
    )


def limits(config: Config) -> Limits:
    """When batches are cut."""
    batching = config.batching
    return Limits(batching.max_batch_mb * MB, batching.max_batch_age_s, int(batching.max_spool_gb * GB))


def spark_settings(config: Config, scratch: Path, start_limit_s: float = CLUSTER_START_LIMIT_S) -> SparkSettings:
    """How Spark runs; its scratch files go below `scratch`. Raises ConfigError for a cluster where there may be none."""
    spark = config.spark
    heap = _megabytes(spark.driver_memory) if spark.driver_memory else jvm_heap_mb(container_memory_bytes())
    return SparkSettings(
        local_cores(spark.master) if is_local(spark.master) else 0,
        heap,
        scratch,
        spark.conf,
        None if is_local(spark.master) else _cluster(spark, start_limit_s),
        class_data.java_options(),
    )


def _cluster(spark: Spark, start_limit_s: float) -> Cluster:
    if cloud_deployment():
        raise ConfigError("spark.master must be local[...] in Airbyte Cloud, where nothing may reach a connector from outside.")
    python = spark.conf.get(PYTHON) or f"python{sys.version_info.major}.{sys.version_info.minor}"
    secret = spark.authenticate_secret.get_secret_value() if spark.authenticate_secret else None
    return Cluster(spark.master, python, start_limit_s, secret)


def task_bytes(config: Config) -> int:
    """Arrow memory a merge task may take: a part of what the JVM and the interpreters leave of the container's memory."""
    if not is_local(config.spark.master):
        return CLUSTER_TASK_BYTES
    settings = spark_settings(config, Path())
    left = container_memory_bytes() - settings.heap_mb * MB - (settings.cores + 1) * WORKER_BYTES
    return min(max(left // (3 * settings.cores), 32 * MB), 512 * MB)


def _megabytes(text: str) -> int:
    number, unit = int(text[:-1]), text[-1]
    return number * 1024 if unit == "g" else number
