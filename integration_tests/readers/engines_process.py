"""ClickHouse, DuckDB and Daft as a program: settings and then requests on stdin, one JSON line each; a pickled answer to each on stdout.

It runs in the environment that scripts/install-readers makes, which has none of the connector's packages.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Callable, Mapping
from typing import Any

import daft
import duckdb
import duckdb_extensions
import pyarrow as pa
from chdb.session import Session
from pyiceberg.catalog import load_catalog

Row = dict[str, Any]
Answer = Mapping[str, Any]


def main() -> None:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what an engine prints must not be among the answers
    requests = map(json.loads, sys.stdin)
    settings = next(requests)
    engines: Mapping[str, Callable[[str], list[Row]]] = {
        "duckdb": duckdb_reader(settings),
        "clickhouse": clickhouse_reader(settings),
        "daft": daft_reader(settings),
    }
    send({"rows": []}, answers)
    for request in requests:
        try:
            send(carried_out(engines[request["engine"]], request), answers)
        except Exception as error:  # noqa: BLE001 - the test judges it
            send({"error": f"{type(error).__name__}: {error}"}, answers)


def send(content: Answer, answers: Any) -> None:
    pickle.dump(content, answers)
    answers.flush()


def carried_out(read: Callable[[str], list[Row]], request: Mapping[str, Any]) -> Answer:
    if "statements" in request:
        lines = [line for line in request["statements"].splitlines() if not line.startswith("--")]
        for statement in filter(str.strip, "\n".join(lines).split(";")):
            read(statement)
        return {"rows": []}
    if "conditions" in request:
        found = [read(f"SELECT count(*) AS found FROM {request['table']} WHERE {one}") for one in request["conditions"]]
        return {"counts": [row["found"] for (row,) in found]}
    return {"rows": read(request["query"])}


def duckdb_reader(settings: Mapping[str, str]) -> Callable[[str], list[Row]]:
    connection = duckdb.connect()
    connection.execute("SET extension_directory = 'duckdb_extensions'")  # in the test's directory, not in the user's
    for extension in ("httpfs", "delta", "avro", "iceberg"):
        duckdb_extensions.import_extension(extension, con=connection)
        connection.execute(f"LOAD {extension}")
    endpoint = settings["endpoint"].removeprefix("http://")
    connection.execute(
        f"CREATE SECRET (TYPE s3, KEY_ID '{settings['key']}', SECRET '{settings['secret']}', REGION '{settings['region']}', "
        f"ENDPOINT '{endpoint}', URL_STYLE 'path', USE_SSL false)"
    )
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"ATTACH '' AS lake (TYPE iceberg, ENDPOINT '{settings['catalog']}', AUTHORIZATION_TYPE 'none')")

    def read(query: str) -> list[Row]:
        found = connection.execute(query)
        return rows(found.to_arrow_table())

    return read


def clickhouse_reader(settings: Mapping[str, str]) -> Callable[[str], list[Row]]:
    session = Session()
    session.query("SET allow_experimental_database_iceberg = 1")
    session.query(
        f"CREATE DATABASE lake ENGINE = DataLakeCatalog('{settings['catalog']}/v1', '{settings['key']}', '{settings['secret']}') "
        f"SETTINGS catalog_type = 'rest', storage_endpoint = '{settings['endpoint']}', warehouse = 'lake'"
    )

    def read(query: str) -> list[Row]:
        found = session.query(query, "ArrowStream").bytes()
        return rows(pa.ipc.open_stream(found).read_all()) if found else []

    return read


def daft_reader(settings: Mapping[str, str]) -> Callable[[str], list[Row]]:
    s3 = daft.io.S3Config(
        endpoint_url=settings["endpoint"],
        region_name=settings["region"],
        key_id=settings["key"],
        access_key=settings["secret"],
        use_ssl=False,
    )
    config = daft.io.IOConfig(s3=s3)

    s3_options = {"s3.endpoint": settings["endpoint"], "s3.access-key-id": settings["key"], "s3.secret-access-key": settings["secret"]}
    catalog = load_catalog("lake", type="rest", uri=settings["catalog"], **s3_options)

    def read(name: str) -> list[Row]:
        frame = (
            daft.read_deltalake(name, io_config=config)
            if name.startswith("s3://")
            else daft.read_iceberg(catalog.load_table(name), io_config=config)
        )
        return rows(frame.to_arrow())

    return read


def rows(table: pa.Table) -> list[Row]:
    return table.to_pylist()


if __name__ == "__main__":
    main()
