"""The connector as the Airbyte CDK knows it: spec, check and write.

The CDK gives argument parsing and the spec. Its read loop and its printing are replaced: they drop lines they cannot parse and fields of a
STATE they do not know, and they do not flush. The process is run by `process`, which does `write` without importing the CDK.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree
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
from destination_s3_spark.sync.check import check as check_connection
from destination_s3_spark.sync.cluster_check import check_cluster
from destination_s3_spark.sync.doubts import doubts
from destination_s3_spark.sync.in_process import write_messages
from destination_s3_spark.sync.runtime import scratch_directory

logger = logging.getLogger("airbyte")


class DestinationS3Spark(Destination):
    """`launch` is the process's entry; the other methods also work inside another Python process."""

    def check(self, logger: logging.Logger, config: Mapping[str, Any]) -> AirbyteConnectionStatus:
        """Do every S3 action a sync needs, in the real bucket path, and run a task if Spark is a cluster; FAILED says what to change.

        SUCCEEDED may have a message, too: what the configuration says and may not mean.
        """
        try:
            parsed = Config.parse(config)
            doubtful = doubts(parsed, config)
            template = path_template(parsed, datetime.now(UTC), sync_id=0)
            rmtree(scratch_directory(parsed))
            check_connection(s3_settings(parsed), template)
            check_cluster(parsed, template)
        except SyncError as error:
            logger.error("check failed: %s", type(error).__name__)
            return AirbyteConnectionStatus(status=Status.FAILED, message=error.message)
        for doubt in doubtful:
            logger.warning(doubt)
        return AirbyteConnectionStatus(status=Status.SUCCEEDED, message=" ".join(doubtful) or None)

    def write(
        self, config: Mapping[str, Any], configured_catalog: ConfiguredAirbyteCatalog, input_messages: Iterable[AirbyteMessage]
    ) -> Iterator[AirbyteMessage]:
        """Sync messages that are already objects (PyAirbyte, tests). Fields the CDK's models do not know are gone by then."""
        catalog = parse_catalog(orjson.dumps(ConfiguredAirbyteCatalogSerializer.dump(configured_catalog)))
        parsed = Config.parse(config)
        for doubt in doubts(parsed, config):
            logger.warning(doubt)
        return write_messages(parsed, catalog, input_messages)

    def launch(self, args: list[str]) -> int:
        """Run a command of the command line; the exit code. Whatever happens is told on stdout in the protocol's way."""
        parsed = self.parse_args(args)
        if parsed.command == "write":
            return process.write(args[1:])

        def answer(output: ProtocolWriter) -> None:
            spec = self.spec(logger)
            if parsed.command == "spec":
                output.message(AirbyteMessage(type=Type.SPEC, spec=spec))
            else:  # the configuration is validated by `Config`, which names options and never shows values
                output.message(self._run_check(process.options_of(Path(parsed.config), output)))

        return process.run(answer)
