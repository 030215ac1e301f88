"""Diagnosis of the options: those that cannot be used, and those that are probably mistakes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from destination_s3_spark.cli.diagnosis.finding import Finding, Verdict
from destination_s3_spark.config.config import Config
from destination_s3_spark.config.iceberg_options import IcebergRest
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.tables.configured import option_warnings

_PART = "configuration"


def look_at_options(options: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield what is wrong or doubtful about the options, or that all are good."""
    try:
        config = Config.parse(options)
        doubtful = option_warnings(config, options)
    except ConfigError as error:
        yield Finding(_PART, "options", Verdict.BAD, error.message)
        for option in Config.unknown_beside_refused(options):
            if not option.ours:  # those of this connector are in the error
                yield Finding(_PART, "options", Verdict.DOUBTFUL, str(option))
        return
    for doubt in doubtful:
        yield Finding(_PART, "options", Verdict.DOUBTFUL, doubt)
    yield from _in_the_open(config)
    if not doubtful:
        yield Finding(_PART, "options", Verdict.GOOD, "all are known and valid")


def _in_the_open(config: Config) -> Iterator[Finding]:
    """Yield the servers of other machines that are asked without TLS."""
    addresses = {"s3_endpoint": config.s3_endpoint}
    if isinstance(config.publish.iceberg, IcebergRest):
        addresses["publish.iceberg.uri"] = config.publish.iceberg.uri
        addresses["publish.iceberg.oauth2_server_uri"] = config.publish.iceberg.oauth2_server_uri
    for option, address in addresses.items():
        url = urlsplit(address or "")
        if url.scheme.lower() == "http" and not _is_loopback(url.hostname or ""):
            yield Finding(
                _PART,
                option,
                Verdict.DOUBTFUL,
                f"{url.hostname} is asked over plain http: whoever is on the way reads all data and tokens and may change them. Use https, "
                "with s3.ca_certificate if its certificate is of an authority of your own.",
            )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
