"""ClickHouse, DuckDB with its own extensions, and Daft, in a process of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from integration_tests.readers.reader_process import ReaderProcess, Row, reader_process
from unit_tests.lake.buckets import REGION, S3Server

PROGRAM = Path(__file__).with_name("engines_process.py")


class Engines:
    """Each engine with access to the server, and DuckDB with the REST catalog as `lake`."""

    def __init__(self, process: ReaderProcess) -> None:
        self._process = process

    def rows(self, engine: str, query: str) -> list[Row]:
        """The rows of a query, for Daft those of a URI. Raises ReaderError."""
        rows: list[Row] = self._process.answer({"engine": engine, "query": query})["rows"]
        return rows

    def run(self, engine: str, statements: str) -> None:
        """Carry out statements without rows. Raises ReaderError."""
        self._process.answer({"engine": engine, "statements": statements})

    def counts(self, engine: str, table: str, conditions: Sequence[str]) -> list[int]:
        """The numbers of rows of the table that these conditions find, each in a query of its own."""
        counts: list[int] = self._process.answer({"engine": engine, "table": table, "conditions": list(conditions)})["counts"]
        return counts


@contextmanager
def engines(directory: Path, server: S3Server, catalog: str) -> Iterator[Engines]:
    """The engines, which read from this server and this catalog."""
    settings: dict[str, Any] = {
        "endpoint": server.endpoint,
        "region": REGION,
        "key": server.access_key,
        "secret": server.secret_key,
        "catalog": catalog,
    }
    keys = {"AWS_ACCESS_KEY_ID": server.access_key, "AWS_SECRET_ACCESS_KEY": server.secret_key}
    with reader_process(PROGRAM, directory, settings, **keys) as process:
        yield Engines(process)
