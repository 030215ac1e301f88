"""Conversion of the user's configuration to the settings of tables. `storage.configured` converts the settings of the bucket."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from destination_s3_spark.change_log.events import AfterImage, BeforeImage
from destination_s3_spark.change_log.options import ChangeLogFormat, ChangeLogOptions
from destination_s3_spark.config.config import MIB, Config
from destination_s3_spark.config.format_options import ParquetFormat
from destination_s3_spark.config.settings_model import unknown_options
from destination_s3_spark.config.table_options import MergeWhen, PartitionBy
from destination_s3_spark.formats.file_format import FileOptions
from destination_s3_spark.formats.parquet import ParquetCodec, ParquetOptions
from destination_s3_spark.formats.registry import chosen_format
from destination_s3_spark.schema.airbyte_type import Decimal
from destination_s3_spark.schema.column_rules import Action, ColumnRule, ColumnRules
from destination_s3_spark.schema.encodings import ExtractedAtEncoding
from destination_s3_spark.schema.json_schema import Decimals, NamedDecimal
from destination_s3_spark.schema.names import safe_name
from destination_s3_spark.schema.partitioning import PartitionSpec, Transform, default_name
from destination_s3_spark.schema.placement import SchemaChange
from destination_s3_spark.storage.configured import path_template
from destination_s3_spark.tables.rules import Compaction, HistoryRule, MergeRule, PartitionRule, Rules
from destination_s3_spark.tables.runs.keys import CdcDeletion


def final_options(config: Config) -> FileOptions:
    """Return the options of final files, with the encodings of new tables."""
    options = chosen_format(config.format).options(config.format)
    if not (isinstance(options, ParquetOptions) and isinstance(config.format, ParquetFormat)):
        return options
    lakehouse = config.publish.delta or config.publish.iceberg is not None
    chosen, fitting = config.format.extracted_at_encoding, ExtractedAtEncoding.MICROS if lakehouse else ExtractedAtEncoding.MILLIS
    unit = fitting if chosen is None else ExtractedAtEncoding(chosen)
    # Without a publisher that shows statistics, the chain stays small.
    return replace(options, encodings=replace(options.encodings, extracted_at=unit), statistics=lakehouse)


RAW_PARQUET = ParquetOptions(codec=ParquetCodec.ZSTD, row_group_bytes=32 * MIB, dictionary=False)
"""Raw files hold JSON text, which zstd compresses well and a dictionary does not. Small row groups keep a task's second writer cheap."""


def decimals(config: Config) -> Decimals:
    named = (NamedDecimal(of.stream, of.column, Decimal(of.precision, of.scale)) for of in config.tables.decimal_columns)
    return Decimals(config.tables.declared_decimals, tuple(named))


def column_rules(config: Config) -> ColumnRules:
    """Return the user's rules for columns that do not land as they are sent."""
    tables = config.tables
    chosen = (ColumnRule(of.stream, of.column, Action(of.action), of.length or 0) for of in tables.columns)
    secret = b"" if tables.hash_secret is None else tables.hash_secret.get_secret_value().encode()
    return ColumnRules(tuple(chosen), tables.raw_fields == "declared", secret)


def rules(config: Config) -> Rules:
    tables = config.tables
    log = config.change_log
    options = ChangeLogOptions(ChangeLogFormat(log.format), BeforeImage(log.before_image), AfterImage(log.after_image), log.include_header)
    return Rules(
        SchemaChange(tables.schema_change),
        CdcDeletion(tables.cdc_deletion_mode),
        tables.target_file_mb * MIB,
        Compaction(tables.compaction),
        options if log.enabled else None,
        tables.raw_retention_days,
        log.retention_days,
        tables.unproven_replacement,
        tuple(map(_partition_rule, tables.partition_by)),
        tuple(map(_merge_rule, tables.merge)),
        tuple(HistoryRule(of.stream, None if of.columns is None else frozenset(of.columns)) for of in tables.history),
        tables.history_retention_days,
    )


def _merge_rule(chosen: MergeWhen) -> MergeRule:
    wait = None if chosen.at_least_every_hours is None else timedelta(hours=chosen.at_least_every_hours)
    size = None if chosen.when_runs_mb is None else chosen.when_runs_mb * MIB
    return MergeRule(chosen.stream, wait, chosen.when_changed_percent, size)


def _partition_rule(chosen: PartitionBy) -> PartitionRule:
    transform = Transform(chosen.transform)
    name = chosen.name or default_name(safe_name(chosen.column), transform)
    return PartitionRule(chosen.stream, PartitionSpec(chosen.column, transform, name))


def option_warnings(config: Config, options: Mapping[str, Any]) -> list[str]:
    """Return warnings about options that may not be what the user intended, one sentence each. A sync still works.

    `options` is the raw form of the configuration. Raises ConfigError.
    """
    template = path_template(config, datetime.now(UTC), sync_id=0)
    found = [*map(str, unknown_options(config, options)), *template.warnings()]
    return [f"{warning}." for warning in found]
