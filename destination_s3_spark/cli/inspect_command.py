"""`inspect`: what the chains under a configuration's bucket path say about its tables."""

from __future__ import annotations

import sys
from pathlib import Path

import orjson

from destination_s3_spark.chain.state import StreamName
from destination_s3_spark.cli import inspection, report
from destination_s3_spark.cli.inspection import InspectedTable
from destination_s3_spark.config import Config
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.sync.settings import s3_settings


def run(config_path: str, name: str | None, namespace: str | None) -> int:
    """Print the tables, or one in detail. Raises ConfigError when the configuration is wrong or the stream has no table."""
    config = Config.parse(_options(Path(config_path)))
    store = S3Store(s3_settings(config))
    folder = inspection.tables_folder(config)
    found = inspection.find_tables(store, folder)
    place = f"s3://{config.s3_bucket_name}/{folder}"
    if name is None:
        sys.stdout.write(_all_tables([inspection.read_table(store, prefix) for prefix, _ in found], place))
        return 0
    wanted = [prefix for prefix, stream in found if stream.name == name and namespace in (None, stream.namespace)]
    if not wanted:
        known = ", ".join(sorted(str(stream) for _, stream in found)) or "none"
        asked = StreamName(namespace, name)
        raise ConfigError(f"There is no table of stream {asked} under {place}. Tables there: {known}.")
    sys.stdout.write("\n".join(_one_table(inspection.read_table(store, prefix)) for prefix in wanted))
    return 0


def _options(path: Path) -> dict[str, object]:
    try:
        options = orjson.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"The configuration {path} cannot be read: {error.strerror}.") from error
    except orjson.JSONDecodeError:
        options = None
    if not isinstance(options, dict):
        # Without its cause: that one would quote the file, which holds secrets.
        raise ConfigError(f"The configuration {path} is not a JSON object.")
    return options


def _all_tables(tables: list[InspectedTable], place: str) -> str:
    if not tables:
        return f"No tables under {place}.\n"
    return f"{report.overview(tables)}\n\nMore about one of them: --stream NAME\n"


def _one_table(table: InspectedTable) -> str:
    sections = {
        f"Table {table.stream}": f"{report.table_state(table)}\n\n{report.overview([table])}",
        "Columns": report.columns(table),
        "Chain": report.chain(table),
    }
    return "\n".join(report.section(title, text) for title, text in sections.items())
