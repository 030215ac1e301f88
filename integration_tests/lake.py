"""What a test sees of one bucket: the connector that writes there, its tables as readers see them, and the promises that always hold."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from integration_tests.chain_reader import Chain, StreamName, read_chains
from integration_tests.connector import BUCKET_PATH, Connector
from integration_tests.servers import Bucket
from integration_tests.table_readers import Row, download, read_pyarrow

USERS: StreamName = ("shop", "users")


@dataclass(slots=True)
class Lake:
    """One bucket and a local directory for what belongs to it."""

    bucket: Bucket
    directory: Path
    _connectors: int = 0
    _downloads: int = 0

    def connector(self, endpoint: str | None = None, environment: Mapping[str, str] | None = None, **options: Any) -> Connector:
        """A connector that writes here, through another endpoint such as a proxy's if one is given."""
        self._connectors += 1
        bucket = self.bucket.through(endpoint) if endpoint else self.bucket
        return Connector(self.directory / f"connector-{self._connectors}", bucket, options, environment or {})

    def chains(self) -> dict[StreamName, Chain]:
        return read_chains(self.bucket)

    def tables(self, streams: Collection[StreamName] | None = None) -> dict[StreamName, list[Row]]:
        """The rows of the final tables of these streams (or all), in commit order."""
        chains = {stream: chain for stream, chain in self.chains().items() if streams is None or stream in streams}
        return {stream: read_pyarrow(self._fetch(chain.final_keys)) for stream, chain in chains.items()}

    def final_files(self, stream: StreamName = USERS) -> list[Path]:
        """Local copies of the live final files."""
        return self._fetch(self.chains()[stream].final_keys)

    def rows(self, stream: StreamName = USERS) -> list[Row]:
        """The final table's rows, in commit order."""
        return read_pyarrow(self.final_files(stream))

    def raw_rows(self, stream: StreamName = USERS) -> list[Row]:
        return read_pyarrow(self._fetch(self.chains()[stream].raw_keys))

    def ids(self, stream: StreamName = USERS) -> list[int]:
        """The `id` column of the final table, sorted."""
        return sorted(row["id"] for row in self.rows(stream))

    def verify(self) -> None:
        """Check every table: what the chain says is what the files hold, a row has its two forms, and nothing else lies in the bucket."""
        chains = self.chains()
        for chain in chains.values():
            self._verify_table(chain)
        known = {file["key"] for chain in chains.values() for file in chain.live}
        parquet = {key for key in self.bucket.list_keys(f"{BUCKET_PATH}/") if key.endswith(".parquet")}
        assert parquet == known, f"data files no chain names: {sorted(parquet - known)}"

    def verify_at_rest(self) -> None:
        """`verify`, and that no upload is left open: what holds after a sync that ended well."""
        self.verify()
        assert self.bucket.open_uploads() == []

    def _verify_table(self, chain: Chain) -> None:
        final, raw = self._fetch(chain.final_keys), self._fetch(chain.raw_keys)
        for keys, paths in ((chain.final_keys, final), (chain.raw_keys, raw)):
            declared = {file["key"]: file for file in chain.live}
            for key, path in zip(keys, paths, strict=True):
                assert declared[key]["rows"] == pq.ParquetFile(path).metadata.num_rows, key
                assert declared[key]["bytes"] == path.stat().st_size, key
        final_ids = [row["_airbyte_raw_id"] for row in read_pyarrow(final)]
        assert len(set(final_ids)) == len(final_ids) == chain.rows, f"{chain.prefix}: {len(final_ids)} rows, {chain.rows} in the chain"
        if raw:
            assert sorted(row["_airbyte_raw_id"] for row in read_pyarrow(raw)) == sorted(final_ids), chain.prefix
        schemas = list(chain.schemas.values())
        for path in final:
            found = pq.read_schema(path)
            assert any(found.equals(schema, check_metadata=False) for schema in schemas), f"{path}: {found} is no schema of the chain"

    def _fetch(self, keys: list[str]) -> list[Path]:
        self._downloads += 1
        return download(self.bucket, keys, self.directory / f"download-{self._downloads}")
