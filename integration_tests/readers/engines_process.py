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

Row = dict[str, Any]
Answer = Mapping[str, Any]


def main() -> None:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what an engine prints must not be among the answers
    requests = map(json.loads, sys.stdin)
    settings = next(requests)
    engines: Mapping[str, Callable[[str], list[Row]]] = {
        "duckdb": duckdb_reader(settings),
        "clickhouse": clickhouse_reader(),
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


def clickhouse_reader() -> Callable[[str], list[Row]]:
    session = Session()

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

    def read(uri: str) -> list[Row]:
        return rows(daft.read_deltalake(uri, io_config=config).to_arrow())

    return read


def rows(table: pa.Table) -> list[Row]:
    return table.to_pylist()


if __name__ == "__main__":
    main()
