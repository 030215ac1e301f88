"""What a configuration says and may not mean, and what of destination-s3's is no reason to warn."""

from __future__ import annotations

from typing import Any

import pytest

from destination_s3_spark.config.config import Config
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.tables.configured import option_warnings
from unit_tests.cases import each

MINIMAL: dict[str, Any] = {"s3_bucket_name": "lake", "s3_bucket_path": "a", "s3_bucket_region": "", "format": {"format_type": "Parquet"}}
XZ = {"codec": "xz", "compression_level": 3}


def warnings_of(**changes: Any) -> list[str]:
    options = {**MINIMAL, **changes}
    return option_warnings(Config.parse(options), options)


@each(
    ("changes", "option", "meant"),
    [
        ({"format": {"format_type": "Parquet", "compresion_codec": "ZSTD"}}, "format.compresion_codec", "format.compression_codec"),
        ({"format": {"format_type": "JSONL", "compression": {"compresion_type": "GZIP", "compression_type": "GZIP"}}},
         "format.compression.compresion_type", "format.compression.compression_type"),
        ({"format": {"format_type": "Avro", "compression_codec": {**XZ, "compression_levl": 9}}},
         "format.compression_codec.compression_levl", "format.compression_codec.compression_level"),
        ({"compression_codec": "ZSTD"}, "compression_codec", "format.compression_codec"),
        ({"S3_Endpoint": "http://localhost"}, "S3_Endpoint", "s3_endpoint"),
        ({"flatten": True}, "flatten", None),
    ],
)  # fmt: skip
def test_an_unknown_option_is_told_with_the_nearest_one(changes: dict[str, Any], option: str, meant: str | None) -> None:
    (warning,) = warnings_of(**changes)
    assert warning == f"{option}: there is no such option, so it has no effect{f' (did you mean {meant}?)' if meant else ''}."


@each(
    "changes",
    [
        {},
        {"part_size": 5, "destinationType": "s3", "format": {"format_type": "csv", "part_size_mb": 5, "flattening": "No flattening"}},
        {"format": {"format_type": "Avro", "compression_codec": {"codec": "zstandard", "compression_level": 3, "include_checksum": True}}},
        {"s3_path_format": "", "file_name_pattern": "", "s3_endpoint": "", "batching": {"spool_dir": ""}},
        {"spark": {"conf": {"spark.python.worker.memory": "1g"}}},
        {"s3_path_format": "${NAMESPACE}/${STREAM_NAME}/${SYNC_ID}/${YEAR}${MONTH}${DAY}_${HOUR}${MINUTE}${SECOND}"},
        {"s3_bucket_path": "costs/$5/a$b", "s3_path_format": "all/"},
        {"s3_path_format": "${STREAM_NAME}/${MILLISECOND}${EPOCH}${UUID}"},
        {"file_name_pattern": "${STREAM_NAME}_{date}_{date:yyyy_MM}_{timestamp}_{sync_id}{format_extension}"},
        {"file_name_pattern": "{timestamp:micro}_{part_number}{format_extension}"},
        {"file_name_pattern": "data.parquet"},
    ],
)  # fmt: skip
def test_what_destination_s3_has_or_had_is_no_reason_to_warn(changes: dict[str, Any]) -> None:
    assert warnings_of(**changes) == []


@each("option", ["s3_path_format", "s3_bucket_path"])
@each(
    ("written", "meant"),
    [
        ("${STREAM}", "${STREAM_NAME}"),
        ("${stream_name}", "${STREAM_NAME}"),
        ("{STREAM_NAME}", "${STREAM_NAME}"),
        ("$STREAM_NAME", "${STREAM_NAME}"),
        ("${NAME_SPACE}", "${NAMESPACE}"),
    ],
)
def test_a_misspelt_variable_that_would_mix_the_streams_is_refused(option: str, written: str, meant: str) -> None:
    with pytest.raises(ConfigError) as caught:
        warnings_of(**{option: f"a/{written}/"})
    assert caught.value.message.startswith(f"{option}: there is no variable {written};")
    assert f"Write {meant}." in caught.value.message


def test_an_unknown_variable_of_a_path_that_is_near_to_none_stays_text_as_in_destination_s3() -> None:
    assert warnings_of(s3_path_format="${BIRD_DOG}/${STREAM_NAME}/{x}/") == [
        "s3_path_format: there is no variable ${BIRD_DOG}, so it is plain text in every name.",
        "s3_path_format: there is no variable {x}, so it is plain text in every name.",
    ]


def test_an_unknown_variable_of_a_file_name_is_told() -> None:
    assert warnings_of(file_name_pattern="{foo}_{part_numbr}_{timestamp:nano}{format_extension}") == [
        "file_name_pattern: there is no variable {foo}, so it is plain text in every name.",
        "file_name_pattern: there is no variable {part_numbr}, so it is plain text in every name (did you mean {part_number}?).",
        "file_name_pattern: there is no variable {timestamp:nano}, so it is plain text in every name (did you mean {timestamp}?).",
    ]


@each(
    ("changes", "refusal"),
    [
        ({"s3_path_format": "airbyte_internal/${STREAM_NAME}/"}, "s3_path_format puts tables into 'a/airbyte_internal/"),
        ({"s3_path_format": "x" * 1000 + "/${STREAM_NAME}/"}, "make keys longer than S3's 1024 bytes"),
        ({"s3_bucket_path": "x" * 1000}, "make keys longer than S3's 1024 bytes"),
    ],
)
def test_a_path_that_no_table_can_have_is_refused(changes: dict[str, Any], refusal: str) -> None:
    """A sync would refuse it too, but check comes first."""
    with pytest.raises(ConfigError, match=refusal):
        warnings_of(**changes)
