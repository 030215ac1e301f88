from __future__ import annotations

from typing import Any

import pytest

from destination_s3_spark.config import Config, with_current_spellings
from destination_s3_spark.errors import ConfigError, FailureType
from destination_s3_spark.format_options import (
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
)

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
    assert config.publish.symlink is True
    assert (config.spark.master, config.spark.driver_memory, config.spark.conf) == ("local[*]", None, {})
    assert (config.batching.max_batch_mb, config.batching.max_batch_age_s, config.batching.max_spool_gb) == (512, 300, 4)
    assert config.batching.spool_dir is None
    assert (config.s3.sse, config.s3.kms_key_id, config.s3.expected_bucket_owner) == (None, None, None)
    assert (config.s3.checksums, config.s3.single_writer) == (None, False)


def test_every_option_of_our_groups_is_read() -> None:
    config = parse(
        tables={"raw_tables": False, "schema_change": "fail"},
        publish={"symlink": False},
        spark={"master": "local[3]", "driver_memory": "768m", "conf": {"spark.task.cpus": "1"}},
        batching={"max_batch_mb": 1, "max_batch_age_s": 2, "spool_dir": "/spool", "max_spool_gb": 0.5},
        s3={
            "sse": "aws:kms",
            "kms_key_id": "alias/lake",
            "expected_bucket_owner": "111122223333",
            "checksums": "when_required",
            "single_writer": True,
        },
    )

    assert config.tables.raw_tables is False
    assert config.tables.schema_change == "fail"
    assert config.publish.symlink is False
    assert (config.spark.master, config.spark.driver_memory) == ("local[3]", "768m")
    assert config.spark.conf == {"spark.task.cpus": "1"}
    assert (config.batching.max_batch_mb, config.batching.max_batch_age_s) == (1, 2)
    assert (config.batching.spool_dir, config.batching.max_spool_gb) == ("/spool", 0.5)
    assert (config.s3.sse, config.s3.kms_key_id) == ("aws:kms", "alias/lake")
    assert (config.s3.expected_bucket_owner, config.s3.checksums, config.s3.single_writer) == ("111122223333", "when_required", True)


@pytest.mark.parametrize("blank", ["", "   "])
@pytest.mark.parametrize("option", ["access_key_id", "secret_access_key", "role_arn", "s3_endpoint", "s3_path_format", "file_name_pattern"])
def test_blank_text_means_absent(option: str, blank: str) -> None:
    assert getattr(parse(**{option: blank}), option) is None


@pytest.mark.parametrize(
    ("group", "option"),
    [("spark", "driver_memory"), ("batching", "spool_dir"), ("s3", "kms_key_id"), ("s3", "expected_bucket_owner"), ("s3", "sse")],
)
def test_blank_text_in_our_groups_means_absent(group: str, option: str) -> None:
    assert getattr(getattr(parse(**{group: {option: ""}}), group), option) is None


def test_a_blank_master_is_the_default_one() -> None:
    assert parse(spark={"master": ""}).spark.master == "local[*]"


def test_path_and_region_may_be_blank() -> None:
    config = parse(s3_bucket_path="", s3_bucket_region="")

    assert (config.s3_bucket_path, config.s3_bucket_region) == ("", "")


@pytest.mark.parametrize("option", sorted(MINIMAL))
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


@pytest.mark.parametrize("group", ["tables", "publish", "spark", "batching", "s3"])
def test_an_unknown_option_in_our_groups_is_refused(group: str) -> None:
    assert f"{group}.raw_table: there is no such option" in refusal(**{group: {"raw_table": "x"}})


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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize("endpoint", ["ftp://host", "http://", "http://host:port", "http://[::1", "http://u:p@host", "http://host/?a=b"])
def test_an_endpoint_that_is_no_plain_url_is_refused(endpoint: str) -> None:
    assert "s3_endpoint: " in refusal(s3_endpoint=endpoint)


@pytest.mark.parametrize("name", ["s3://lake", "lake/path", "my lake"])
def test_a_bucket_name_with_more_than_the_name_is_refused(name: str) -> None:
    assert "s3_bucket_name: must look like" in refusal(s3_bucket_name=name)


def test_an_access_point_arn_is_a_bucket_name() -> None:
    arn = "arn:aws:s3:eu-central-1:111122223333:accesspoint/lake"

    assert parse(s3_bucket_name=arn).s3_bucket_name == arn


def test_text_formats_default_to_gzip_and_no_flattening() -> None:
    assert parse_format(format_type="CSV") == CsvFormat(flattening="No flattening", compression=Gzip())
    assert parse_format(format_type="JSONL") == JsonlFormat(flattening="No flattening", compression=Gzip())


def test_text_formats_take_destination_s3_options() -> None:
    options = {"flattening": "Root level flattening", "compression": {"compression_type": "No Compression"}}

    for format_type in ("CSV", "JSONL"):
        parsed = parse_format(format_type=format_type, **options)
        assert (parsed.flattening, parsed.compression) == ("Root level flattening", NoCompression())


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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
    options = {**MINIMAL, "format": {"format_type": "parquet", "other": ["x"]}, "other": 1}

    assert with_current_spellings(options) == {**MINIMAL, "format": {"format_type": "Parquet", "other": ["x"]}, "other": 1}
    assert with_current_spellings({"format": "parquet"}) == {"format": "parquet"}


@pytest.mark.parametrize("options", [{}, {"format_type": "XML"}, {"format_type": "Avro", "compression_codec": {"codec": "zip"}}])
def test_an_unknown_variant_is_answered_with_the_known_ones(options: dict[str, Any]) -> None:
    message = refusal(format=options)

    assert ("format.format_type: must be one of 'CSV', 'JSONL', 'Avro', 'Parquet'" in message) is ("compression_codec" not in options)
    assert ("format.compression_codec.codec: must be one of 'no compression', 'Deflate'" in message) is ("compression_codec" in options)


@pytest.mark.parametrize("master", ["local", "local[*]", "local[1]", "local[16]"])
def test_local_masters_are_accepted(master: str) -> None:
    assert parse(spark={"master": master}).spark.master == master


@pytest.mark.parametrize(
    "master", ["spark://host:7077", "spark://one:7077,two:7077", "spark://[::1]:7077", "yarn", "k8s://https://host:443"]
)
def test_clusters_are_accepted_and_their_executors_have_credentials_of_their_own(master: str) -> None:
    assert parse(spark={"master": master}).spark.master == master
    assert parse(spark={"master": master}).spark.executor_credentials == "own"


@pytest.mark.parametrize(
    "master",
    ["mesos://host:5050", "k8s://", "spark://host", "spark://:7077", "spark://a:1,", "local[0]", "local[]", "local[2,3]", "local[*]\n"],
)
def test_other_masters_are_refused(master: str) -> None:
    assert "spark.master: must look like" in refusal(spark={"master": master})


ENCRYPTED = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
TLS = {"spark.authenticate": "true", "spark.ssl.rpc.enabled": "true"}


@pytest.mark.parametrize(
    ("master", "conf"),
    [
        ("local[*]", {}),
        ("spark://127.0.0.1:7077", {}),
        ("spark://localhost:7077,[::1]:7078", {}),
        ("spark://host:7077", ENCRYPTED),
        ("spark://host:7077", TLS),
        ("yarn", ENCRYPTED),
    ],
)
def test_credentials_are_forwarded_where_nobody_else_can_read_them(master: str, conf: dict[str, str]) -> None:
    chosen = parse(spark={"master": master, "conf": conf, "executor_credentials": "forward"})
    assert chosen.spark.executor_credentials == "forward"


@pytest.mark.parametrize(
    ("master", "conf"),
    [
        ("spark://host:7077", {}),
        ("spark://localhost:7077,host:7077", {}),
        ("spark://localhost.example.com:7077", {}),
        ("spark://host:7077", {"spark.authenticate": "true"}),
        ("spark://host:7077", {"spark.network.crypto.enabled": "true"}),
        ("spark://host:7077", {**ENCRYPTED, "spark.authenticate": "false"}),
        ("spark://host:7077", {**TLS, "spark.ssl.enabled": "false"}),
        ("yarn", {}),
        ("k8s://https://127.0.0.1:443", {}),
    ],
)
def test_credentials_are_not_forwarded_over_an_open_network(master: str, conf: dict[str, str]) -> None:
    message = refusal(spark={"master": master, "conf": conf, "executor_credentials": "forward"})

    assert "spark.executor_credentials: forward would send credentials over the network in the open" in message


def test_the_interpreter_of_executors_is_the_users_on_a_cluster_alone() -> None:
    conf = {"spark.pyspark.python": "/opt/python/bin/python3.11"}

    assert parse(spark={"master": "spark://host:7077", "conf": conf}).spark.conf == conf
    assert "`spark.pyspark.python` is refused" in refusal(spark={"conf": conf})
    assert "`spark.pyspark.driver.python` is refused" in refusal(
        spark={"master": "spark://host:7077", "conf": {"spark.pyspark.driver.python": "python3"}}
    )


@pytest.mark.parametrize("memory", ["1", "1gb", "0m", "-1g", "1 g"])
def test_memory_that_spark_would_misread_is_refused(memory: str) -> None:
    assert "spark.driver_memory: must look like 512m or 1g" in refusal(spark={"driver_memory": memory})


@pytest.mark.parametrize(
    "key",
    [
        "spark.master",
        "spark.driver.memory",
        "spark.submit.pyFiles",
        "spark.submit.deployMode",
        "spark.remote",
        "spark.jars",
        "spark.jars.packages",
        "spark.jars.ivySettings",
        "spark.files",
        "spark.archives",
        "spark.plugins",
        "spark.extraListeners",
        "spark.sql.extensions",
        "spark.driver.extraJavaOptions",
        "spark.executor.defaultJavaOptions",
        "spark.driver.extraClassPath",
        "spark.executor.userClassPathFirst",
        "spark.driver.extraLibraryPath",
        "spark.driver.resource.gpu.discoveryScript",
        "spark.eventLog.enabled",
        "spark.eventLog.dir",
        "spark.metrics.conf",
        "spark.metrics.conf.*.sink.csv.class",
        "spark.pyspark.python",
        "spark.pyspark.driver.python",
        "spark.python.worker.module",
        "spark.authenticate.secret",
        "spark.speculation",
        "spark.speculation.quantile",
        "spark.executorEnv.PYTHONPATH",
        "spark.hadoop.fs.s3a.secret.key",
        "hadoop.fs.something",
        "master",
    ],
)
def test_spark_properties_that_bring_code_or_leak_are_refused_by_name(key: str) -> None:
    assert f"spark.conf: `{key}`" in refusal(spark={"conf": {"spark.task.cpus": "1", key: "x"}})


@pytest.mark.parametrize("key", ["spark.local.dir", "spark.python.worker.memory", "spark.network.timeout", "spark.ui.enabled"])
def test_other_spark_properties_pass(key: str) -> None:
    assert parse(spark={"conf": {key: "x"}}).spark.conf == {key: "x"}


@pytest.mark.parametrize(
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


@pytest.mark.parametrize("sse", [None, "AES256"])
def test_a_kms_key_needs_kms(sse: str | None) -> None:
    assert "s3.kms_key_id: needs s3.sse" in refusal(s3={"sse": sse, "kms_key_id": "alias/lake"})


@pytest.mark.parametrize("owner", ["123", "11112222333a"])
def test_a_bucket_owner_is_an_account_id(owner: str) -> None:
    assert "s3.expected_bucket_owner: must look like a 12-digit" in refusal(s3={"expected_bucket_owner": owner})
