"""Connector class for the Airbyte CDK: spec, check and write.

The CDK provides argument parsing and the spec. Its read loop and its printing are replaced: they drop lines that do not parse and unknown
fields of a STATE, and they do not flush. `process` runs the process, and runs `write` without importing the CDK.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
from airbyte_cdk.destinations import Destination
from airbyte_cdk.models import (
    AirbyteConnectionStatus,
    AirbyteMessage,
    ConfiguredAirbyteCatalog,
    ConfiguredAirbyteCatalogSerializer,
    Status,
    Type,
)

from destination_s3_spark import process
from destination_s3_spark.config.config import Config
from destination_s3_spark.errors import SyncError
from destination_s3_spark.protocol.catalog import parse_catalog
from destination_s3_spark.protocol.writer import ProtocolWriter
from destination_s3_spark.storage.configured import path_template, s3_settings
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.sync.check import CHECK_LIMITS, check_cluster
from destination_s3_spark.sync.check import check as check_connection
from destination_s3_spark.sync.in_process import write_messages
from destination_s3_spark.sync.scratch import scratch_directory
from destination_s3_spark.tables.configured import option_warnings
from destination_s3_spark.tables.publishers.registry import check_publishers

logger = logging.getLogger("airbyte")


class DestinationS3Spark(Destination):
    """Airbyte destination. `launch` is the entry point of the process; the other methods also work inside another Python process."""

    def check(self, logger: logging.Logger, config: Mapping[str, Any]) -> AirbyteConnectionStatus:
        """Perform every S3 action of a sync under the real bucket path, and run a task if Spark is a cluster.

        FAILED carries the change to make. SUCCEEDED may carry warnings about options that are probably mistakes.
        """
        try:
            parsed = Config.parse(config)
            warnings = option_warnings(parsed, config)
            template = path_template(parsed, datetime.now(UTC), sync_id=0)
            with scratch_directory(parsed):
                pass
            settings = s3_settings(parsed)
            check_connection(settings, template)
            check_publishers(parsed, S3Store(settings, CHECK_LIMITS), template)
            check_cluster(parsed, template)
        except SyncError as error:
            return AirbyteConnectionStatus(status=Status.FAILED, message=error.message)
        for warning in warnings:
            logger.warning(warning)
        return AirbyteConnectionStatus(status=Status.SUCCEEDED, message=" ".join(warnings) or None)

    def write(
        self, config: Mapping[str, Any], configured_catalog: ConfiguredAirbyteCatalog, input_messages: Iterable[AirbyteMessage]
    ) -> Iterator[AirbyteMessage]:
        """Sync messages that are already objects (PyAirbyte, tests). The CDK's models have dropped the fields they do not know."""
        catalog = parse_catalog(orjson.dumps(ConfiguredAirbyteCatalogSerializer.dump(configured_catalog)))
        parsed = Config.parse(config)
        for warning in option_warnings(parsed, config):
            logger.warning(warning)
        return write_messages(parsed, catalog, input_messages)

    def launch(self, args: list[str]) -> int:
        """Run a command of the command line and return its exit code. Every outcome is reported on stdout as protocol messages."""
        parsed = self.parse_args(args)
        if parsed.command == "write":
            return process.write(args[1:])

        def answer(output: ProtocolWriter) -> None:
            spec = self.spec(logger)
            if parsed.command == "spec":
                output.message(AirbyteMessage(type=Type.SPEC, spec=spec))
            else:  # `Config` validates the configuration: its errors name options and never show values
                output.message(self._run_check(process.options_of(Path(parsed.config), output)))

        return process.run(answer)
