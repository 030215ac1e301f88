from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

from destination_s3_spark.config.config import Config
from destination_s3_spark.engine.cluster import Cluster
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.formats.avro import AvroCodec, AvroOptions
from destination_s3_spark.formats.csv import CsvOptions
from destination_s3_spark.formats.file_format import FileOptions
from destination_s3_spark.formats.jsonl import JsonlOptions
from destination_s3_spark.formats.parquet import ParquetCodec, ParquetOptions
from destination_s3_spark.schema.encodings import Encodings, ExtractedAtEncoding, TimeEncoding
from destination_s3_spark.sync.runtime import CLUSTER_TASK_BYTES, spark_settings, task_bytes
from destination_s3_spark.tables.configured import final_options
from unit_tests.cases import each

NO_GZIP = {"compression_type": "No Compression"}


def options_of(chosen: dict[str, Any]) -> FileOptions:
    return final_options(Config.parse({"s3_bucket_name": "lake", "s3_bucket_path": "", "s3_bucket_region": "", "format": chosen}))


@each(
    ("chosen", "options"),
    [
        ({"format_type": "Parquet"}, ParquetOptions()),
        (
            {"format_type": "Parquet", "compression_codec": "ZSTD", "block_size_mb": 1, "page_size_kb": 2, "dictionary_page_size_kb": 3,
             "dictionary_encoding": False, "time_encoding": "int64", "extracted_at_encoding": "micros"},
            ParquetOptions(
                ParquetCodec.ZSTD, 2**20, 2 * 2**10, 3 * 2**10, False, Encodings(ExtractedAtEncoding.MICROS, TimeEncoding.INT64)
            ),
        ),
        ({"format_type": "CSV"}, CsvOptions(flattened=False, compressed=True)),
        (
            {"format_type": "CSV", "flattening": "Root level flattening", "compression": NO_GZIP},
            CsvOptions(flattened=True, compressed=False),
        ),
        ({"format_type": "JSONL"}, JsonlOptions(flattened=False, compressed=True)),
        (
            {"format_type": "JSONL", "flattening": "Root level flattening", "compression": NO_GZIP},
            JsonlOptions(flattened=True, compressed=False),
        ),
    ],
)  # fmt: skip
def test_the_configured_format_becomes_its_options(chosen: dict[str, Any], options: FileOptions) -> None:
    assert options_of(chosen) == options
    assert pickle.loads(pickle.dumps(options)) == options


@each(
    ("codec", "options"),
    [
        ({"codec": "no compression"}, AvroOptions(AvroCodec.NULL)),
        ({"codec": "Deflate"}, AvroOptions(AvroCodec.DEFLATE, 0)),
        ({"codec": "Deflate", "compression_level": 9}, AvroOptions(AvroCodec.DEFLATE, 9)),
        ({"codec": "bzip2"}, AvroOptions(AvroCodec.BZIP2)),
        ({"codec": "xz"}, AvroOptions(AvroCodec.XZ, 6)),
        ({"codec": "zstandard", "compression_level": -5}, AvroOptions(AvroCodec.ZSTANDARD, -5, False)),
        ({"codec": "zstandard", "include_checksum": True}, AvroOptions(AvroCodec.ZSTANDARD, 3, True)),
        ({"codec": "snappy"}, AvroOptions(AvroCodec.SNAPPY)),
    ],
)
def test_every_avro_codec_has_its_level_and_checksum(codec: dict[str, Any], options: AvroOptions) -> None:
    assert options_of({"format_type": "Avro", "compression_codec": codec}) == options


def test_avro_is_uncompressed_by_default() -> None:
    assert options_of({"format_type": "Avro"}) == AvroOptions()


MASTER = "spark://host:7077"


def on(master: str, **conf: str) -> Config:
    options = {"s3_bucket_name": "lake", "s3_bucket_path": "", "s3_bucket_region": "", "format": {"format_type": "Parquet"}}
    return Config.parse({**options, "spark": {"master": master, "conf": conf}})


def test_inside_the_connector_the_master_says_how_many_tasks_run_at_once() -> None:
    settings = spark_settings(on("local[3]"), Path("scratch"))

    assert (settings.cores, settings.cluster, settings.local_dir) == (3, None, Path("scratch"))
    assert 32 * 2**20 <= task_bytes(on("local[3]")) <= 512 * 2**20


def test_a_cluster_starts_the_python_of_this_version_unless_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):
        monkeypatch.delenv(variable, raising=False)
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"

    assert spark_settings(on(MASTER), Path(), 7).cluster == Cluster(MASTER, python, 7)
    named = spark_settings(on(MASTER, **{"spark.pyspark.python": "/opt/python"}), Path(), 7).cluster
    assert named == Cluster(MASTER, "/opt/python", 7)
    assert task_bytes(on(MASTER)) == CLUSTER_TASK_BYTES


def test_the_secret_of_a_cluster_shows_nowhere() -> None:
    options = {"s3_bucket_name": "lake", "s3_bucket_path": "", "s3_bucket_region": "", "format": {"format_type": "Parquet"}}
    config = Config.parse({**options, "spark": {"master": MASTER, "authenticate_secret": "of the cluster"}})
    settings = spark_settings(config, Path())

    assert settings.cluster is not None
    assert settings.cluster.secret == "of the cluster"
    assert "of the cluster" not in repr(settings) + repr(config)


def test_in_airbyte_cloud_there_are_no_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPLOYMENT_MODE", "CLOUD")

    assert spark_settings(on("local[1]"), Path()).cores == 1
    with pytest.raises(ConfigError, match=r"spark\.master"):
        spark_settings(on(MASTER), Path())
