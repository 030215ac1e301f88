"""One table that the installed connector publishes as a Delta and as an Iceberg table, and readers of both beside the chain's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from destination_s3_spark import tables
from integration_tests.connector import Connector
from integration_tests.lake import ProcessLake
from integration_tests.readers.conditions import chosen, conditions
from integration_tests.readers.engines import Engines
from integration_tests.readers.spark41 import Spark41
from unit_tests.lake.messages import catalog
from unit_tests.lake.outcome import BUCKET_PATH, Message, Outcome
from unit_tests.lake.shop import complete, record, state, stream
from unit_tests.lake.table_readers import Row, by_raw_id, neutral

NAME = "users"


@dataclass(frozen=True)
class Readers:
    """The catalog of the Iceberg tables, and readers that are started when a test first needs them."""

    catalog: str
    start_spark: Callable[[], Spark41]
    start_engines: Callable[[], Engines]

    @cached_property
    def spark(self) -> Spark41:
        return self.start_spark()

    @cached_property
    def engines(self) -> Engines:
        return self.start_engines()


@dataclass
class PublishedTable:
    """The table `users` of a namespace that no other test has."""

    lake: ProcessLake
    namespace: str
    readers: Readers
    mode: str = "append"
    key: tuple[str, ...] = ("id",)
    partition_by: Sequence[Mapping[str, str]] = ()

    @property
    def delta(self) -> str:
        return f"delta.`s3a://{self.lake.bucket.name}/{BUCKET_PATH}/{self.namespace}/{NAME}`"

    @property
    def iceberg(self) -> str:
        return f"lake.{self.namespace}.{NAME}"

    @property
    def connector(self) -> Connector:
        return self.connector_through(None)

    def connector_through(self, endpoint: str | None) -> Connector:
        """The connector that writes the table, with S3 behind another endpoint if one is given."""
        return self.lake.connector(
            endpoint,
            publish={"delta": True, "iceberg": {"type": "rest", "uri": self.readers.catalog}},
            format={"format_type": "Parquet", "time_encoding": "int64"},
            tables={
                "schema_change": "rewrite",
                "declared_decimals": True,
                "target_file_mb": 1,
                "partition_by": [{"stream": NAME, **rule} for rule in self.partition_by],
            },
        )

    def sync(self, data: Iterable[Mapping[str, Any]], properties: Mapping[str, Any], emitted_at: int, generation: int = 1) -> Outcome:
        """A whole sync of these records; a generation above 1 removes the earlier ones. No publisher may warn."""
        return self.write([record(one, NAME, self.namespace, emitted_at=emitted_at) for one in data], properties, generation)

    def write(self, lines: Iterable[bytes], properties: Mapping[str, Any], generation: int = 1) -> Outcome:
        ended = [state(1, NAME, self.namespace), complete(NAME, self.namespace)]
        outcome = self.connector.write(self.catalog(properties, generation), [*lines, *ended]).expect_success()
        assert "publish" not in outcome.warnings, outcome.warnings
        return outcome

    def catalog(self, properties: Mapping[str, Any], generation: int = 1) -> Message:
        schema = {"type": "object", "properties": dict(properties)}
        minimum = generation if generation > 1 else 0
        ids: Message = {
            "mode": self.mode,
            "generation": generation,
            "minimum_generation": minimum,
            "primary_key": [[name] for name in self.key],
        }
        return catalog(stream(NAME, self.namespace, schema=schema, **ids))

    def chain_rows(self) -> list[Row]:
        """The rows by the chain, as pyarrow reads them."""
        rows: list[Row] = tables.read(self.connector.config(), NAME, self.namespace).to_table().to_pylist()
        return by_raw_id(rows)

    def rows(self, table: str) -> list[Row]:
        """The rows of the Delta or Iceberg table in Spark, in neutral form."""
        return by_raw_id([neutral(row) for row in self.readers.spark.rows(f"SELECT * FROM {table}")])

    def expect_equal_readings(self, *, filters: bool = False) -> list[Row]:
        """Spark reads the chain's rows through Delta and through Iceberg, and finds them by every condition; returns them."""
        rows = self.chain_rows()
        expected, wanted = [neutral(row) for row in rows], chosen(conditions(rows)) if filters else []
        for table in (self.delta, self.iceberg):
            assert (differences := list(differences_of(self.rows(table), expected))) == [], f"{table}: {differences}"
            if not wanted:
                continue
            found = self.readers.spark.counts(table, [condition.sql for condition in wanted])
            wrong = [(one.sql, one.found, number) for one, number in zip(wanted, found, strict=True) if one.found != number]
            assert wrong == [], f"{table}: {wrong}"
        return rows


def differences_of(found: Sequence[Row], expected: Sequence[Row]) -> Iterator[tuple[Any, ...]]:
    """(id, column, value found, value expected) where they differ, and the numbers of rows if they do."""
    if len(found) != len(expected):
        yield "rows", len(found), len(expected)
    for one, other in zip(found, expected, strict=False):
        for name in sorted({*one, *other}):
            if one.get(name, "no column") != other.get(name, "no column"):
                yield other.get("id"), name, one.get(name, "no column"), other.get(name, "no column")
