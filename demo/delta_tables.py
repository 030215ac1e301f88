"""The demo's tables as another program reads them: delta-rs, by the Delta logs beside the files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec


@dataclass(frozen=True, slots=True)
class DeltaReading:
    """A Delta table as delta-rs reads it. `version` is that of its log."""

    uri: str
    version: int
    rows: int
    files: int


def readable() -> bool:
    """Tell whether delta-rs is installed."""
    return find_spec("deltalake") is not None


def read(uris: Iterable[str], endpoint: str, key_id: str, secret_key: str, region: str) -> list[DeltaReading]:
    """Read the tables by delta-rs, which must be installed."""
    from deltalake import DeltaTable  # noqa: PLC0415 - a development dependency

    options = {
        "aws_endpoint_url": endpoint,
        "aws_access_key_id": key_id,
        "aws_secret_access_key": secret_key,
        "aws_region": region,
        "aws_allow_http": "true",
    }
    found = []
    for uri in uris:
        table = DeltaTable(uri, storage_options=options)
        found.append(DeltaReading(uri, table.version(), table.to_pyarrow_dataset().count_rows(), len(table.file_uris())))
    return found
