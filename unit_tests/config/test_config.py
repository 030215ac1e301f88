from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import certifi
import pytest

from destination_s3_spark.config.config import Config
from destination_s3_spark.config.format_options import (
    AvroDeflate,
    AvroFormat,
    AvroUncompressed,
    AvroXz,
    AvroZstandard,
    CsvFormat,
    Gzip,
    JsonlFormat,
    NoCompression,
    ParquetFormat,
    with_current_spelling,
)
from destination_s3_spark.errors import ConfigError, FailureType
from destination_s3_spark.storage.configured import s3_settings
from unit_tests.cases import each

MINIMAL: dict[str, Any] = {
    "s3_bucket_name": "lake",
    "s3_bucket_path": "data_sync/test",
    "s3_bucket_region": "eu-central-1",
    "format": {"format_type": "Parquet"},
}


def parse(**changes: Any) -> Config:
    return Config.parse({**MINIMAL, **changes})


def parse_format(**options: Any) -> Any:
    return parse(format=options).format


def refusal(**changes: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(**changes)
    return caught.value.message


def test_a_minimal_configuration_has_the_documented_defaults() -> None:
    config = parse()

    assert config.access_key_id is None
    assert config.secret_access_key is None
    assert config.role_arn is None
    assert config.s3_endpoint is None
    assert config.s3_path_format is None
    assert config.file_name_pattern is None
    assert config.tables.raw_tables is True
    assert config.tables.schema_change == "recover"
    assert config.tables.union_conflicts == "fail"
    assert config.publish.symlink is True
    assert (config.spark.master, config.spark.driver_memory, config.spark.conf) == ("local[*]", None, {})
    assert (config.batching.max_batch_mb, config.batching.max_batch_age_s, config.batching.max_spool_gb) == (512, 300, 4)
    assert config.batching.spool_dir is None
    assert (config.s3.sse, config.s3.kms_key_id, config.s3.expected_bucket_owner) == (None, None, None)
    assert (config.s3.checksums, config.s3.single_writer) == (None, False)
    assert (config.s3.region, config.s3.addressing) == (None, "path")


def test_every_option_of_our_groups_is_read() -> None:
    config = parse(
        tables={"raw_tables": False, "schema_change": "fail", "union_conflicts": "union"},
        publish={"symlink": False},
        spark={"master": "local[3]", "driver_memory": "768m", "conf": {"spark.task.cpus": "1"}},
        batching={"max_batch_mb": 1, "max_batch_age_s": 2, "spool_dir": "/spool", "max_spool_gb": 0.5},
        s3_endpoint="https://s3.fr-par.scw.cloud",
        s3={
            "region": "fr-par",
            "addressing": "virtual",
            "sse": "aws:kms",
            "kms_key_id": "alias/lake",
            "expected_bucket_owner": "111122223333",
            "checksums": "when_required",
            "single_writer": True,
        },
    )

    assert config.tables.raw_tables is False
    assert config.tables.schema_change == "fail"
    assert config.tables.union_conflicts == "union"
    assert config.publish.symlink is False
    assert (config.spark.master, config.spark.driver_memory) == ("local[3]", "768m")
    assert config.spark.conf == {"spark.task.cpus": "1"}
    assert (config.batching.max_batch_mb, config.batching.max_batch_age_s) == (1, 2)
    assert (config.batching.spool_dir, config.batching.max_spool_gb) == ("/spool", 0.5)
    assert (config.s3.region, config.s3.addressing) == ("fr-par", "virtual")
    assert (config.s3.sse, config.s3.kms_key_id) == ("aws:kms", "alias/lake")
    assert (config.s3.expected_bucket_owner, config.s3.checksums, config.s3.single_writer) == ("111122223333", "when_required", True)


@each("blank", ["", "   "])
@each("option", ["access_key_id", "secret_access_key", "role_arn", "s3_endpoint", "s3_path_format", "file_name_pattern"])
def test_blank_text_means_absent(option: str, blank: str) -> None:
    assert getattr(parse(**{option: blank}), option) is None


@each(
    ("group", "option"),
    [("spark", "driver_memory"), ("batching", "spool_dir"), ("s3", "kms_key_id"), ("s3", "expected_bucket_owner"), ("s3", "sse")],
)
def test_blank_text_in_our_groups_means_absent(group: str, option: str) -> None:
    assert getattr(getattr(parse(**{group: {option: ""}}), group), option) is None


@each(
    "unset",
    [
        {"tables": None, "change_log": None, "spark": None, "publish": None, "s3": None},
        {"s3_endpoint": None, "role_arn": None, "file_name_pattern": None},
        {"tables": {"raw_tables": None, "history": None, "schema_change": None, "target_file_mb": None}},
        {"publish": {"iceberg": None, "glue": None, "symlink": None}},
        {"spark": {"conf": None, "master": None}},
    ],
)
def test_null_means_absent(unset: dict[str, Any]) -> None:
    assert parse(**unset) == parse()


@each("option", sorted(MINIMAL.keys() - {"s3_bucket_region"}))
def test_a_required_option_cannot_be_null(option: str) -> None:
    with pytest.raises(ConfigError, match=f"{option}: "):
        parse(**{option: None})


def test_a_blank_master_is_the_default_one() -> None:
    assert parse(spark={"master": ""}).spark.master == "local[*]"


def test_path_and_region_may_be_blank() -> None:
    config = parse(s3_bucket_path="", s3_bucket_region="")

    assert (config.s3_bucket_path, config.s3_bucket_region) == ("", "")


@each("option", sorted(MINIMAL.keys() - {"s3_bucket_region"}))
def test_a_missing_required_option_is_named(option: str) -> None:
    with pytest.raises(ConfigError, match=f"{option}: is required"):
        Config.parse({key: value for key, value in MINIMAL.items() if key != option})


def test_every_problem_is_named_at_once() -> None:
    message = refusal(s3_bucket_region="mars", batching={"max_batch_mb": 0}, spark={"master": "mesos"})

    assert "s3_bucket_region: " in message
    assert "batching.max_batch_mb: " in message
    assert "spark.master: must look like local[*]" in message


def test_options_of_older_versions_are_ignored_at_the_top_and_in_the_format() -> None:
    config = parse(part_size_mb=5, format={"format_type": "Parquet", "part_size_mb": 5, "compression_codec": "SNAPPY"})

    assert isinstance(config.format, ParquetFormat)
    assert config.format.compression_codec == "SNAPPY"
    assert "part_size_mb" not in repr(config)


@each("group", ["tables", "publish", "spark", "batching", "s3"])
def test_an_unknown_option_in_our_groups_is_refused(group: str) -> None:
    assert f"{group}.raw_table: there is no such option" in refusal(**{group: {"raw_table": "x"}})


def test_a_misspelt_option_of_ours_is_refused_with_the_name_that_is_meant() -> None:
    assert "batching.max_bach_mb: there is no such option (did you mean batching.max_batch_mb?)" in refusal(batching={"max_bach_mb": 5})
    assert "batchng: there is no such option (did you mean batching?)" in refusal(batchng={"max_batch_mb": 5})
    assert "max_batch_mb: there is no such option (did you mean batching.max_batch_mb?)" in refusal(max_batch_mb=5)
    assert "format.sse: there is no such option (did you mean s3.sse?)" in refusal(format={"format_type": "CSV", "sse": "AES256"})


def test_a_config_error_never_shows_a_value() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(
            secret_access_key="TOPSECRET1",
            role_arn=["TOPSECRET2"],
            s3_bucket_name="s3://TOPSECRET3",
            s3_endpoint="http://TOPSECRET4:TOPSECRET5@localhost",
            format={"format_type": "TOPSECRET6"},
            batching={"max_batch_mb": "TOPSECRET7"},
            spark={"master": "TOPSECRET8", "conf": {"spark.jars": "TOPSECRET9"}},
            s3={"sse": "TOPSECRET0"},
        )

    assert "TOPSECRET" not in caught.value.message
    assert caught.value.failure_type is FailureType.CONFIG
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_secrets_do_not_print() -> None:
    config = parse(access_key_id="AKIDTOP", secret_access_key="SECRETTOP")

    assert config.access_key_id is not None
    assert config.secret_access_key is not None
    assert config.access_key_id.get_secret_value() == "AKIDTOP"
    assert config.secret_access_key.get_secret_value() == "SECRETTOP"
    assert "TOP" not in repr(config)
    assert "TOP" not in str(config)


@each(
    ("given", "absent"),
    [("access_key_id", "secret_access_key"), ("secret_access_key", "access_key_id")],
)
def test_half_a_key_pair_is_refused_even_with_a_role(given: str, absent: str) -> None:
    message = refusal(**{given: "something", absent: "", "role_arn": "arn:aws:iam::1:role/r"})

    assert f"{given} is set and {absent} is not" in message


def test_a_role_stands_beside_keys_or_alone() -> None:
    with_keys = parse(role_arn="arn:aws:iam::1:role/r", access_key_id="a", secret_access_key="b")
    alone = parse(role_arn="arn:aws:iam::1:role/r")

    assert with_keys.role_arn == alone.role_arn == "arn:aws:iam::1:role/r"


@each(
    ("given", "url"),
    [
        ("http://localhost:9000", "http://localhost:9000"),
        (" https://s3.example.com ", "https://s3.example.com"),
        ("minio:9000", "https://minio:9000"),
        ("http://[::1]:9000", "http://[::1]:9000"),
    ],
)
def test_an_endpoint_without_a_scheme_is_https(given: str, url: str) -> None:
    assert parse(s3_endpoint=given).s3_endpoint == url


@each("endpoint", ["ftp://host", "http://", "http://host:port", "http://[::1", "http://u:p@host", "http://host/?a=b"])
def test_an_endpoint_that_is_no_plain_url_is_refused(endpoint: str) -> None:
    assert "s3_endpoint: " in refusal(s3_endpoint=endpoint)


@each("name", ["s3://lake", "lake/path", "my lake", "arn:aws:s3:eu-central-1:111122223333:accesspoint/lake"])
def test_a_bucket_name_with_more_than_the_name_is_refused(name: str) -> None:
    assert "s3_bucket_name: must look like" in refusal(s3_bucket_name=name)


def test_text_formats_default_to_gzip_and_no_flattening() -> None:
    assert parse_format(format_type="CSV") == CsvFormat(flattening="No flattening", compression=Gzip())
    assert parse_format(format_type="JSONL") == JsonlFormat(flattening="No flattening", compression=Gzip())


def test_text_formats_take_destination_s3_options() -> None:
    options = {"flattening": "Root level flattening", "compression": {"compression_type": "No Compression"}}

    for format_type in ("CSV", "JSONL"):
        parsed = parse_format(format_type=format_type, **options)
        assert (parsed.flattening, parsed.compression) == ("Root level flattening", NoCompression())


@each(
    ("codec", "parsed"),
    [
        ({"codec": "no compression"}, AvroUncompressed()),
        ({"codec": "Deflate"}, AvroDeflate(compression_level=0)),
        ({"codec": "Deflate", "compression_level": 9}, AvroDeflate(compression_level=9)),
        ({"codec": "xz"}, AvroXz(compression_level=6)),
        ({"codec": "zstandard"}, AvroZstandard(compression_level=3, include_checksum=False)),
        (
            {"codec": "zstandard", "compression_level": -5, "include_checksum": True},
            AvroZstandard(compression_level=-5, include_checksum=True),
        ),
    ],
)
def test_avro_codecs_take_destination_s3_options(codec: dict[str, Any], parsed: Any) -> None:
    assert parse_format(format_type="Avro", compression_codec=codec) == AvroFormat(compression_codec=parsed)


def test_an_avro_level_out_of_range_is_named_without_the_name_of_the_variant() -> None:
    message = refusal(format={"format_type": "Avro", "compression_codec": {"codec": "xz", "compression_level": 10}})

    assert "format.compression_codec.compression_level: input should be less than or equal to 9" in message


def test_parquet_has_destination_s3_defaults() -> None:
    assert parse_format(format_type="Parquet") == ParquetFormat(
        compression_codec="UNCOMPRESSED",
        block_size_mb=128,
        max_padding_size_mb=8,
        page_size_kb=1024,
        dictionary_page_size_kb=1024,
        dictionary_encoding=True,
    )


def test_lzo_is_refused_with_the_codecs_that_work() -> None:
    message = refusal(format={"format_type": "Parquet", "compression_codec": "LZO"})

    assert "format.compression_codec: LZO" in message
    assert "UNCOMPRESSED, SNAPPY, GZIP, BROTLI, LZ4 or ZSTD" in message


@each(
    ("legacy", "current"),
    [
        ({"format_type": "PARQUET", "compression_codec": "snappy"}, ParquetFormat(compression_codec="SNAPPY")),
        ({"format_type": "csv", "compression": {"compression_type": "no compression"}}, CsvFormat(compression=NoCompression())),
        ({"format_type": "JsonL", "compression": {"compression_type": "gzip"}}, JsonlFormat()),
        ({"format_type": "AVRO", "compression_codec": {"codec": "No Compression"}}, AvroFormat()),
        ({"format_type": "Avro", "compression_codec": {"codec": "DEFLATE", "compression_level": 1}}, None),
    ],
)
def test_spellings_older_versions_read_are_read(legacy: dict[str, Any], current: Any) -> None:
    assert parse(format=legacy).format == (current or AvroFormat(compression_codec=AvroDeflate(compression_level=1)))


def test_current_spellings_change_nothing_else() -> None:
    assert with_current_spelling({"format_type": "parquet", "other": ["x"]}) == {"format_type": "Parquet", "other": ["x"]}
    assert with_current_spelling("parquet") == "parquet"


@each("options", [{}, {"format_type": "XML"}, {"format_type": "Avro", "compression_codec": {"codec": "zip"}}])
def test_an_unknown_variant_is_answered_with_the_known_ones(options: dict[str, Any]) -> None:
    message = refusal(format=options)

    assert ("format.format_type: must be one of 'CSV', 'JSONL', 'Avro', 'Parquet'" in message) is ("compression_codec" not in options)
    assert ("format.compression_codec.codec: must be one of 'no compression', 'Deflate'" in message) is ("compression_codec" in options)


@each(
    ("options", "named"),
    [
        ({"max_batch_mb": 0}, "max_batch_mb"),
        ({"max_batch_age_s": 0}, "max_batch_age_s"),
        ({"max_batch_age_s": 901}, "max_batch_age_s"),
        ({"max_spool_gb": 0}, "max_spool_gb"),
    ],
)
def test_batching_has_bounds(options: dict[str, Any], named: str) -> None:
    assert f"batching.{named}: input should be" in refusal(batching=options)


def test_a_rule_of_merges_needs_a_bound() -> None:
    assert "Otherwise rows would wait forever" in refusal(tables={"merge": [{"stream": "orders"}]})

    (rule,) = parse(tables={"merge": [{"stream": "orders", "at_least_every_hours": 0}]}).tables.merge
    assert rule.at_least_every_hours == 0


def test_a_treated_column_has_what_its_action_needs() -> None:
    column = {"stream": "users", "column": "email"}
    secret = "s" * 32
    cut, hashed = {**column, "action": "truncate"}, {**column, "action": "hash"}

    assert "tables.columns.0.length: is needed for truncate" in refusal(tables={"columns": [cut]})
    assert "is only for the action truncate" in refusal(tables={"columns": [{**hashed, "length": 1}], "hash_secret": secret})
    assert "tables.hash_secret: is needed for the action hash" in refusal(tables={"columns": [hashed]})
    assert "at least 32 characters" in refusal(tables={"hash_secret": secret[1:]})
    assert secret[1:] not in refusal(tables={"hash_secret": secret[1:]})
    tables = parse(tables={"columns": [{**cut, "length": 2}, hashed], "hash_secret": secret}).tables
    assert secret not in repr(tables)
    assert [one.action for one in tables.columns] == ["truncate", "hash"]


def test_a_region_of_another_store_needs_its_endpoint() -> None:
    assert "s3: region needs s3_endpoint. Set it, or" in refusal(s3={"region": "fr-par"})
    assert "s3.region: must look like fr-par" in refusal(s3_endpoint="http://localhost", s3={"region": "FR par"})
    assert "s3: region" not in refusal(s3_endpoint="http://", s3={"region": "fr-par"})
    config = parse(s3_bucket_region="eu-west-1", s3_endpoint="http://localhost", s3={"region": "fr-par", "addressing": "virtual"})
    settings = s3_settings(config)
    assert (settings.region, settings.signing_region, settings.is_virtual) == ("eu-west-1", "fr-par", True)


@each("sse", [None, "AES256"])
def test_a_kms_key_needs_kms(sse: str | None) -> None:
    assert "s3.kms_key_id: needs s3.sse" in refusal(s3={"sse": sse, "kms_key_id": "alias/lake"})


@each("owner", ["123", "11112222333a"])
def test_a_bucket_owner_is_an_account_id(owner: str) -> None:
    assert "s3.expected_bucket_owner: must look like a 12-digit" in refusal(s3={"expected_bucket_owner": owner})


@each("region", ["us-esat-1", "US-EAST-1", "us_east_1"])
def test_a_region_that_is_none_is_answered_with_the_nearest_three(region: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.parse({**MINIMAL, "s3_bucket_region": region})
    found, _, near = caught.value.message.partition("Nearest are ")
    assert "s3_bucket_region: is none of the 40 values it can have." in found
    assert "'us-east-1'" in near
    assert caught.value.message.count("'") == 6
    assert region not in caught.value.message or region == "us-east-1"


def test_a_required_option_under_another_name_is_found() -> None:
    options = {("s3_bukcet_name" if name == "s3_bucket_name" else name): value for name, value in MINIMAL.items()}
    with pytest.raises(
        ConfigError, match=re.escape("s3_bucket_name: is required and missing (s3_bukcet_name is given, which is no option)")
    ):
        Config.parse(options)


@each(
    ("text", "what"),
    [
        ("ca.pem", "is not a certificate in PEM form"),
        ("-----BEGIN CERTIFICATE-----\nZ\n-----END CERTIFICATE-----", "is not a certificate in PEM form"),
        ("-----BEGIN CERTIFICATE----- Grüße", "is not a certificate in PEM form"),
        ("-----BEGIN PRIVATE KEY-----\nsecret\n-----END PRIVATE KEY-----", "has a private key"),
    ],
)
def test_a_certificate_that_is_none_is_refused_without_its_text(text: str, what: str) -> None:
    with pytest.raises(ConfigError, match=f"s3.ca_certificate.*{what}") as raised:
        parse(s3={"ca_certificate": text})
    assert "secret" not in raised.value.message


def test_a_certificate_is_taken_as_it_is() -> None:
    text = Path(certifi.where()).read_text(encoding="utf-8").split("\n\n")[1]
    certificate = text[text.index("-----BEGIN") :]
    assert parse(s3={"ca_certificate": certificate}).s3.ca_certificate == certificate.strip()
