"""Configuration of tables: the data kept of a stream, the log of its changes, and how query engines find it.

Users read the docstrings and titles.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, SecretStr, ValidationInfo, field_validator

from destination_s3_spark.config.iceberg_options import IcebergOptions
from destination_s3_spark.config.settings_model import NO_VARIANT, Applies, Settings, Shape, documented

SHORTEST_SECRET = 32
"""Fewest characters of the secret of hashes. Who has hashes of known values can try short ones."""


class OfStreams(Settings):
    """Options that hold for some streams."""

    stream: str = Field(title="Stream", examples=["shop.orders", "*"])
    """A stream, such as orders or shop.orders, or a pattern with * and ?."""


class DecimalColumn(OfStreams):
    """Number columns to store as decimals."""

    column: str = Field(title="Column", examples=["amount", "lines.price", "*_amount"])
    """The field's name; of a member of an object the names down to it, joined by dots. Patterns have * and ?."""
    precision: int = Field(ge=1, le=38, title="Precision", examples=[12])
    """The number of digits in total, at most 38."""
    scale: int = Field(ge=0, le=38, title="Scale", examples=[2])
    """The number of digits after the point."""

    @field_validator("scale")
    @classmethod
    def _at_most_all_digits(cls, scale: int, info: ValidationInfo) -> int:
        if scale > info.data.get("precision", scale):
            raise ValueError("must not be larger than precision, the number of digits in total")
        return scale


class TreatedColumn(Settings):
    """Columns that land in another form than the source sends them, or not at all."""

    stream: str = Field(title="Stream", examples=["shop.users", "*"])
    """A stream, such as users or shop.users, or a pattern with * and ?."""
    column: str = Field(title="Column", examples=["email", "address.street", "*_phone"])
    """The field's name; of a member of an object the names down to it, joined by dots. Patterns have * and ?."""
    action: Literal["drop", "null", "hash", "truncate"] = Field(title="Action", examples=["hash"])
    """drop removes the field, null its value; hash makes a text of the value's HMAC-SHA-256, truncate of its first characters."""
    length: int | None = Field(None, ge=1, le=10_000, validate_default=True, title="Characters", examples=[3])
    """The number of characters that truncate keeps."""

    @field_validator("length")
    @classmethod
    def _belongs_to_truncate(cls, length: int | None, info: ValidationInfo) -> int | None:
        truncates = info.data.get("action") == "truncate"
        if "action" in info.data and truncates == (length is None):
            raise ValueError("is needed for truncate" if truncates else "is only for the action truncate")
        return length


class PartitionBy(OfStreams):
    """The division of the files of some streams' tables into folders by the values of a column."""

    column: str = Field(title="Column", examples=["created_at"])
    """A field at the top level of the records: a date, a timestamp, a boolean, an integer or a short string."""
    transform: Literal["identity", "year", "month", "day", "hour"] = Field(title="Transform", examples=["day"])
    """The part of the value that divides the rows: all of it, or the year, month, day or hour in UTC it lies in."""
    name: Annotated[str, Shape(r"^[A-Za-z][A-Za-z0-9_]*$", "order_day")] | None = Field(
        None, title="Directory name", examples=["order_day"]
    )
    """What folders' names have before the equals sign, and no column. By default the column and the transform, joined by _."""

    @field_validator("name")
    @classmethod
    def _differs_from_the_column(cls, name: str | None, info: ValidationInfo) -> str | None:
        if name is not None and name.casefold() == str(info.data.get("column")).casefold():
            raise ValueError("must not be the column's, because readers would mistake the directory for the column")
        return name


class MergeWhen(OfStreams):
    """When the new rows of some deduplicated tables are merged into their files. Until then they wait beside them, safe and acknowledged.

    A merge is due as soon as one of the bounds is reached. An empty table and a full refresh are merged at once.
    """

    at_least_every_hours: float | None = Field(None, ge=0, title="At least every (hours)", examples=[24])
    """The longest time that rows wait. 0 merges in every sync."""
    when_changed_percent: float | None = Field(None, gt=0, title="When changed (%)", examples=[5])
    """The number of waiting rows at which they are merged, in percent of the table's rows."""
    when_runs_mb: int | None = Field(
        None,
        ge=1,
        validate_default=True,  # a rule without this bound needs another one
        title="When waiting (MB)",
        examples=[1024],
    )
    """The size of the waiting rows' files at which they are merged."""

    @field_validator("when_runs_mb")
    @classmethod
    def _has_a_bound(cls, size: int | None, info: ValidationInfo) -> int | None:
        if size is None and info.data.get("at_least_every_hours") is None and info.data.get("when_changed_percent") is None:
            raise ValueError("is needed, or at_least_every_hours, or when_changed_percent. Otherwise rows would wait forever")
        return size


class HistoryOf(OfStreams):
    """The history of some deduplicated tables: a table beside each, with a row for every version of a row and the time it was valid."""

    columns: list[Annotated[str, Field(title="Column", description="A field at the top level of the records.")]] | None = Field(
        None, min_length=1, title="Columns", examples=[["status", "amount"]]
    )
    """The fields whose changes make a version. By default all but the key and those of CDC."""


class Tables(Settings):
    """What is kept of each stream."""

    raw_tables: bool = Field(True, title="Keep raw tables", json_schema_extra=documented(Applies.NEW_FILES))
    """Whether each stream also keeps a raw table: every record as the JSON text it came in, next to its typed row."""
    raw_retention_days: int | None = Field(
        None, ge=1, title="Days to keep raw rows", examples=[30], json_schema_extra=documented(page="operations.md#retention")
    )
    """Number of days after which raw files are deleted, if their rows are in the final table. By default they are kept."""
    schema_change: Literal["recover", "rewrite", "fail"] = Field(
        "recover", title="Changed column types", json_schema_extra=documented(page="migrations.md")
    )
    """When a column's declared type changes: recover keeps the column and adds another one for the new type, rewrite gives it the new type
    and rewrites the table, fail ends the sync.
    """
    union_conflicts: Literal["fail", "union", "text"] = Field(
        "fail", title="Contradicting unions", json_schema_extra=documented(page="migrations.md#contradicting-unions")
    )
    """When the objects of one union declare a member differently, in Avro and Parquet: fail ends the sync at its start, union keeps both
    types as destination-s3 does, text makes the member a string.
    """
    declared_decimals: bool = Field(False, title="Declared decimals", json_schema_extra=documented(page="formats.md#decimals"))
    """Whether Avro and Parquet store numbers that their schema declares exact (multipleOf, airbyte_type big_number or big_integer) as
    decimals of 38 digits, and not as doubles.
    """
    decimal_columns: list[DecimalColumn] = Field([], title="Decimal columns", json_schema_extra=documented(page="formats.md#decimals"))
    """Number columns to store as decimals in Avro and Parquet, whether or not their schema says so. The first match applies."""
    partition_by: list[PartitionBy] = Field([], title="Partitions", json_schema_extra=documented(Applies.NEW_TABLES, page="partitions.md"))
    """Columns that divide the files of Parquet and Avro tables into folders such as created_at_day=2026-11-20/, so that readers skip files.
    The first match applies.
    """
    columns: list[TreatedColumn] = Field(
        [],
        title="Treated columns",
        examples=[[{"stream": "shop.users", "column": "email", "action": "hash"}]],
        json_schema_extra=documented(Applies.NEW_FILES, page="privacy.md"),
    )
    """Columns that are dropped, emptied, hashed or cut before anything is written. The first match applies."""
    hash_secret: SecretStr | None = Field(
        None,
        validate_default=True,
        title="Hash secret",
        examples=["averylongtextthatnobodycanguessatall"],
        json_schema_extra={"airbyte_secret": True, **documented(Applies.NEW_FILES, page="privacy.md")},
    )
    """The secret of the action hash, 32 characters or more, as openssl rand -hex 32 makes. Keep it."""
    raw_fields: Literal["all", "declared"] = Field(
        "all", title="Fields of raw rows", json_schema_extra=documented(Applies.NEW_FILES, page="privacy.md")
    )
    """The fields that raw rows keep: all that the source sends, or only those of the stream's schema, without deselected ones."""
    cdc_deletion_mode: Literal["hard", "soft"] = Field(
        "hard", title="CDC deletion mode", json_schema_extra=documented(page="dedup.md#deletions")
    )
    """What a deletion does to a deduplicated table: hard removes the row, soft keeps it with its values and sets _ab_cdc_deleted_at. Only
    for sources that report deletions.
    """
    merge: list[MergeWhen] = Field(
        [],
        title="Merges of deduplicated tables",
        examples=[[{"stream": "shop.orders", "at_least_every_hours": 24}]],
        json_schema_extra=documented(page="dedup.md#when-a-table-is-merged"),
    )
    """When deduplicated tables are merged, if not in every sync: a merge of keys at random rewrites the whole table, however few rows are
    new. The first match applies.
    """
    merge_limit_minutes: int = Field(
        100,
        ge=1,
        title="Longest merge of a sync (minutes)",
        examples=[30],
        json_schema_extra=documented(page="dedup.md#when-a-table-is-merged"),
    )
    """The time that the merges of a sync may take. A merge that would take longer, as measured on this table's earlier merges, is left to
    the command merge.
    """
    history: list[HistoryOf] = Field(
        [],
        title="Histories of deduplicated tables",
        examples=[[{"stream": "shop.orders"}]],
        json_schema_extra=documented(page="history.md"),
    )
    """Deduplicated Parquet tables beside which a history is kept: every version of every row, with the time it was valid. The first match
    applies.
    """
    history_retention_days: int | None = Field(
        None, ge=1, title="Days to keep ended versions", examples=[730], json_schema_extra=documented(page="history.md#what-it-costs")
    )
    """Number of days after which ended versions are deleted. By default they are kept."""
    target_file_mb: int = Field(128, ge=1, le=4096, title="File size (MB)", examples=[256], json_schema_extra=documented(Applies.NEW_FILES))
    """The size that files grow to as a table grows. A small deduplicated table has smaller ones, for cheaper changes."""
    unproven_replacement: int = Field(
        80,
        ge=0,
        le=100,
        title="Least rows of an unproven replacement (%)",
        examples=[50],
        json_schema_extra=documented(page="guarantees.md#when-a-stream-is-complete"),
    )
    """Where nothing proves that a source finished (a custom connector, a pipe): the percentage of a table's rows that a full refresh must
    have to replace them. A smaller or empty one is held back, until accept, discard or the next sync. 0 lets any replace it.
    """
    compaction: Literal["auto", "on", "off"] = Field("auto", title="Compaction", json_schema_extra=documented(page="readers.md#compaction"))
    """Whether small files of an append table are joined at the end of a sync, when readers that list the folder may see rows twice. auto:
    of tables that have a publisher, such as the symlink manifest.
    """

    @field_validator("hash_secret")
    @classmethod
    def _is_there_for_hashes(cls, secret: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        if secret is None and any(column.action == "hash" for column in info.data.get("columns", ())):
            raise ValueError("is needed for the action hash in columns")
        if secret is not None and len(secret.get_secret_value()) < SHORTEST_SECRET:
            raise ValueError(f"must have at least {SHORTEST_SECRET} characters; openssl rand -hex 32 makes one")
        return secret


class ChangeLog(Settings):
    """A log of what each sync inserted, updated and deleted in the deduplicated tables, under airbyte_changes/ in the bucket path."""

    enabled: bool = Field(False, title="Keep a change log", json_schema_extra=documented(page="change-log.md"))
    """Whether the changes of deduplicated tables are also written to a log. Every stream then needs a primary key."""
    format: Literal["replicant_csv", "replicant_json", "jsonl", "parquet"] = Field(
        "replicant_csv", title="Format of the change log", json_schema_extra=documented(Applies.NEW_FILES, page="change-log.md#formats")
    )
    """replicant_csv and replicant_json are those of Arcion Replicant, with all values as text; jsonl and parquet keep the
    columns' types.
    """
    before_image: Literal["KEY", "ALL"] = Field("KEY", title="Before image", json_schema_extra=documented(Applies.NEW_FILES))
    """The columns whose old values an update or a deletion shows: those of the key, or all."""
    after_image: Literal["UPDATED", "ALL"] = Field("UPDATED", title="After image", json_schema_extra=documented(Applies.NEW_FILES))
    """The columns whose new values an update shows: those it changed, or all."""
    include_header: bool = Field(False, title="Header line", json_schema_extra=documented(Applies.NEW_FILES))
    """Whether each file of replicant_csv begins with the names of its columns."""
    retention_days: int | None = Field(
        None, ge=1, title="Days to keep the change log", examples=[90], json_schema_extra=documented(page="change-log.md#objects")
    )
    """Number of days after which what is before a change log's newest snapshot is deleted. By default all is kept."""


class Glue(Settings):
    """Registration of tables in the AWS Glue Data Catalog, with the credentials and the region of the bucket."""

    model_config = ConfigDict(json_schema_extra=lambda schema: schema.pop("required"))  # Airbyte's form sends an object without it

    database: Annotated[str, Shape(r"^(?=.)[a-z0-9_]*(\$\{NAMESPACE\})?[a-z0-9_]*$", "lake or lake_${NAMESPACE}")] = Field(
        title="Database", examples=["lake", "lake_${NAMESPACE}"]
    )
    """The database of the tables, made if it does not exist. ${NAMESPACE} stands for the namespace of a stream."""


class Publish(Settings):
    """How tables are shown to engines that do not read the connector's own log."""

    symlink: bool = Field(True, title="Symlink manifest", json_schema_extra=documented(page="readers.md#the-symlink-manifest"))
    """Whether each Parquet table has a list of its files (_symlink_format_manifest/manifest), through which Athena, Trino, Presto and
    Redshift see every change at once. Tables that share a folder have none.
    """
    delta: bool = Field(False, title="Delta table", json_schema_extra=documented(page="readers.md#delta-tables"))
    """Whether each table is also a Delta table (_delta_log), so that Delta readers see every change at once. Only for Parquet, and not in
    shared folders. Switching it off removes the log.
    """
    glue: Glue | None = Field(
        None, title="AWS Glue", examples=[{"database": "lake"}], json_schema_extra=documented(page="readers.md#aws-glue")
    )
    """The database in which each table is registered, as a Delta table if delta is on, otherwise with its symlink manifest."""
    iceberg: Annotated[IcebergOptions, Field(discriminator="type")] | None = Field(
        None, title="Iceberg", json_schema_extra=documented(page="readers.md#iceberg")
    )
    """The catalog in which each Parquet table is also an Apache Iceberg table over the same files, with its metadata in _iceberg/ in the
    table's folder.
    """
    keep_replaced_minutes: int = Field(
        0,
        ge=0,
        le=366 * 24 * 60,
        title="Minutes to keep replaced files",
        examples=[240],
        json_schema_extra=documented(page="readers.md#keeping-replaced-files"),
    )
    """How long files that a merge, a refresh or a compaction replaced stay in the bucket, for queries that were planned before. Readers of
    the folder see such rows twice. By default they are deleted at once.
    """

    @field_validator("glue", mode="before")
    @classmethod
    def _is_left_out_in_the_form(cls, given: Any) -> Any:
        return None if isinstance(given, Mapping) and not any(given.values()) else given

    @field_validator("iceberg", mode="before")
    @classmethod
    def _is_not_chosen_in_the_form(cls, given: Any) -> Any:
        return None if given == {"type": NO_VARIANT} else given

    @field_validator("keep_replaced_minutes")
    @classmethod
    def _only_with_a_publisher(cls, minutes: int, info: ValidationInfo) -> int:
        if minutes and not (info.data.get("symlink") or info.data.get("delta") or info.data.get("iceberg")):
            raise ValueError("needs publish.symlink, publish.delta or publish.iceberg. Other readers would see replaced rows twice")
        return minutes
