"""The readers of another environment, once for a whole test run: their start takes longer than most of their tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from uuid import uuid4

import pytest

from integration_tests.iceberg_rest_server import POM, rest_catalog_server
from integration_tests.lake import ProcessLake
from integration_tests.maven import class_path
from integration_tests.readers.engines import engines
from integration_tests.readers.published_table import PublishedTable, Readers
from integration_tests.readers.reader_process import INSTALLED
from integration_tests.readers.spark41 import spark41
from unit_tests.lake.buckets import S3Server, new_bucket


@pytest.fixture(scope="session")
def readers(moto: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Readers]:
    if not (INSTALLED / "installed").exists():
        pytest.fail("The readers are not installed. Run scripts/install-readers, or make test-readers.")
    directory = tmp_path_factory.mktemp("readers")
    with rest_catalog_server(directory, class_path(POM, directory), new_bucket(moto)) as catalog, ExitStack() as started:
        yield Readers(
            catalog,
            lambda: started.enter_context(spark41(directory, moto, catalog)),
            lambda: started.enter_context(engines(directory, moto, catalog)),
        )


@pytest.fixture
def table(moto_lake: ProcessLake, readers: Readers) -> PublishedTable:
    return PublishedTable(moto_lake, f"shop_{uuid4().hex[:8]}", readers)
