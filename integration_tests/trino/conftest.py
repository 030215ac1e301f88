"""Trino, once for a whole test run: its start takes a minute."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from integration_tests.iceberg_rest_server import POM, rest_catalog_server
from integration_tests.maven import class_path
from integration_tests.trino.trino_server import INSTALLED, Trino, trino_server
from unit_tests.lake.buckets import S3Server, new_bucket


@dataclass(frozen=True)
class TrinoLake:
    """Trino and the REST catalog that its catalog `iceberg` reads."""

    trino: Trino
    catalog: str


@pytest.fixture(scope="session")
def trino_lake(moto: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrinoLake]:
    if not (INSTALLED / "installed").exists():
        pytest.fail("Trino is not installed. Run scripts/install-trino, or make test-trino.")
    directory, bucket = tmp_path_factory.mktemp("trino"), new_bucket(moto)
    with rest_catalog_server(directory, class_path(POM, directory), bucket) as catalog, trino_server(directory, bucket, catalog) as trino:
        yield TrinoLake(trino, catalog)
