from __future__ import annotations

import socket
from datetime import UTC, datetime

import pytest

from destination_s3_spark.config.config import Config
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.storage.paths import PathTemplate
from destination_s3_spark.sync.cluster_check import check_cluster

TEMPLATE = PathTemplate("lake", None, None, datetime(2026, 1, 1, tzinfo=UTC), 1)


def on(master: str) -> Config:
    options = {"s3_bucket_name": "lake", "s3_bucket_path": "", "s3_bucket_region": "", "format": {"format_type": "Parquet"}}
    return Config.parse({**options, "spark": {"master": master}})


def test_inside_the_connector_there_is_nothing_to_check() -> None:
    check_cluster(on("local[*]"), TEMPLATE)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "no-such-host.invalid"])
def test_masters_that_do_not_answer_are_named(host: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        master = f"spark://{host}:{unused.getsockname()[1]}"
        with pytest.raises(ConfigError, match="No Spark master answers at") as caught:
            check_cluster(on(master), TEMPLATE)
    assert master in caught.value.message


def test_a_port_that_is_none_is_an_address_where_nobody_answers() -> None:
    with pytest.raises(ConfigError, match="No Spark master answers"):
        check_cluster(on("spark://127.0.0.1:99999"), TEMPLATE)


def test_a_master_at_an_address_of_the_host_itself_is_not_even_contacted() -> None:
    with pytest.raises(ConfigError, match=r"spark\.master '169\.254\.169\.254' leads to 169\.254\.169\.254"):
        check_cluster(on("spark://169.254.169.254:80"), TEMPLATE)
