"""What a test sees of one bucket: its tables as readers see them, and the promises that always hold."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from destination_s3_spark.storage.settings import S3Settings
from unit_tests.lake.buckets import Bucket
from unit_tests.lake.chain_reader import INTERNAL, Chain, Json, StreamName, read_chains
from unit_tests.lake.outcome import BUCKET_PATH
from unit_tests.lake.table_readers import Row, download, read_pyarrow

DATA_EXTENSIONS = (".parquet", ".avro", ".jsonl", ".jsonl.gz", ".csv", ".csv.gz")
MANIFEST = "_symlink_format_manifest/manifest"
USERS: StreamName = ("shop", "users")


@dataclass
class LakeContents:
    """One bucket and a local directory for what belongs to it."""

    settings: S3Settings
    directory: Path
    _downloads: int = field(default=0, init=False)

    @property
    def bucket(self) -> Bucket:
        return Bucket.of(self.settings)

    def chains(self) -> dict[StreamName, Chain]:
        return read_chains(self.bucket)

    def chain(self, stream: StreamName | None = None) -> Chain:
        """The chain of a stream's table, or of the only one there is."""
        chains = self.chains()
        if stream is None:
            assert len(chains) == 1, f"which of {[*chains]}?"
            return next(iter(chains.values()))
        return chains[stream]

    def tables(self, streams: Collection[StreamName] | None = None) -> dict[StreamName, list[Row]]:
        """The rows of the final tables of these streams (or all), in commit order."""
        chains = {stream: chain for stream, chain in self.chains().items() if streams is None or stream in streams}
        return {stream: read_pyarrow(self._fetch(chain.final_keys)) for stream, chain in chains.items()}

    def final_files(self, stream: StreamName | None = None) -> list[Path]:
        """Local copies of the live final files."""
        return self._fetch(self.chain(stream).final_keys)

    def rows(self, stream: StreamName | None = None) -> list[Row]:
        """The final table's rows, in commit order."""
        return read_pyarrow(self.final_files(stream))

    def raw_rows(self, stream: StreamName | None = None) -> list[Row]:
        return read_pyarrow(self._fetch(self.chain(stream).raw_keys))

    def manifest(self, stream: StreamName | None = None) -> list[str] | None:
        """The keys in the table's symlink manifest; None when it has none."""
        key = self.chain(stream).final_root + MANIFEST
        return self._manifest(key) if key in self.bucket.list_keys(key) else None

    def ids(self, stream: StreamName | None = None) -> list[int]:
        """The `id` column of the final table, sorted."""
        return sorted(row["id"] for row in self.rows(stream))

    def verify(self, foreign: Collection[str] = ()) -> None:
        """Check every table: what the chain says is what the files hold, a row has its two forms, and nothing else lies in the bucket.

        `foreign`: keys that the test itself put there.
        """
        self._verify(self.chains(), foreign)

    def verify_at_rest(self, names: Collection[str] | None = None, foreign: Collection[str] = ()) -> None:
        """`verify`, and that nothing is left over or still to be done: what holds after a sync that ended well.

        `names`: the streams that have come to rest, if not all.
        """
        chains = self.chains()
        self._verify(chains, foreign)
        assert self.bucket.open_uploads() == []
        keys = self.bucket.list_keys()
        assert [key for key in keys if key.startswith(INTERNAL) and "/scratch/" in key] == []
        for chain in (chain for (_, name), chain in chains.items() if names is None or name in names):
            contents = chain.contents
            assert chain.closed, chain.kinds
            assert (chain.unsure, contents.dropped, contents.pending, chain.keys("delta")) == (set(), [], None, []), chain.prefix
            shown = {chain.final_root: [*contents.adopted, *chain.final_keys]}
            for key in chain.keys("current", "closed"):  # of one history, in a numbered folder
                shown.setdefault(f"{key.rsplit('/', 2)[0]}/", []).append(key)
            for root, files in shown.items():
                if root + MANIFEST in keys:
                    assert self._manifest(root + MANIFEST) == sorted(files), chain.prefix

    def _verify(self, chains: Mapping[StreamName, Chain], foreign: Collection[str]) -> None:
        for chain in chains.values():
            self._verify_table(chain)
        known = {key for chain in chains.values() for key in _named(chain)}
        others = ("/scratch/", "/_iceberg/")
        keys = [key for key in self.bucket.list_keys(f"{BUCKET_PATH}/") if not any(folder in key for folder in others)]
        found = {key for key in keys if key.endswith(DATA_EXTENSIONS)}
        assert found - known == set(foreign) - known, f"data files no chain names: {sorted(found - known - set(foreign))}"
        sure = known - {key for chain in chains.values() for key in chain.unsure}
        assert sure <= set(keys), f"files that chains name and that do not exist: {sorted(sure - set(keys))}"

    def _verify_table(self, chain: Chain) -> None:
        final = self._verified_files(chain, chain.files("final"))
        state = self._verified_files(chain, chain.files("state"))
        raw = self._verified_files(chain, [file for file in chain.files("raw") if not chain.contents.is_pending(file)])
        for kind in ("tombstone", "delta", "current", "closed"):
            self._verified_files(chain, chain.files(kind))
        if not all(file["key"].endswith(".parquet") for file in chain.files("final")):
            return  # files of other formats have tests of their own
        rows = read_pyarrow(final)
        ids, raw_ids = ([row["_airbyte_raw_id"] for row in found] for found in (rows, read_pyarrow(raw)))
        assert len(set(ids)) == len(ids), f"{chain.prefix}: a row is there twice"
        assert len(set(raw_ids)) == len(raw_ids), f"{chain.prefix}: a raw row is there twice"
        waiting = sum(file["rows"] for file in chain.files("delta") if not chain.contents.is_pending(file))
        if not chain.contents.merged:
            assert len(ids) + waiting == chain.contents.landed, f"{chain.prefix}: {len(ids)} rows, {chain.contents.landed} in the chain"
            assert waiting or set(raw_ids) <= set(ids), f"{chain.prefix}: raw rows without their rows"
        if len(raw_ids) == chain.contents.landed:
            assert set(ids) <= set(raw_ids), f"{chain.prefix}: rows without their raw rows"
        else:
            assert len(raw_ids) < chain.contents.landed, f"{chain.prefix}: {len(raw_ids)} raw rows, {chain.contents.landed} in the chain"
        if chain.contents.merged and chain.key_columns:
            _verify_keys(chain, rows, [final, state])
        for file, path in zip(chain.files("final"), final, strict=True):
            found, schema = pq.read_schema(path), chain.schemas[file["schemaId"]]
            assert found.equals(schema, check_metadata=False), f"{file['key']}: {found}, not schema {file['schemaId']}: {schema}"
            assert _field_ids(found) == _field_ids(schema), f"{file['key']}: other field ids than schema {file['schemaId']}"

    def _verified_files(self, chain: Chain, files: list[Json]) -> list[Path]:
        """Local copies of the files, each as large and with as many rows as its chain says."""
        paths = self._fetch([file["key"] for file in files])
        for file, path in zip(files, paths, strict=True):
            assert file["bytes"] == path.stat().st_size, file["key"]
            if file["key"].endswith(".parquet"):
                assert file["rows"] == pq.ParquetFile(path).metadata.num_rows, file["key"]
        return paths

    def _fetch(self, keys: list[str]) -> list[Path]:
        self._downloads += 1
        return download(self.bucket, keys, self.directory / f"download-{self._downloads}")

    def _manifest(self, key: str) -> list[str]:
        start = f"s3://{self.bucket.name}/"
        lines = self.bucket.read(key).decode().splitlines()
        assert all(line.startswith(start) for line in lines), lines
        return [line.removeprefix(start) for line in lines]


def _field_ids(fields: Iterable[pa.Field[Any]]) -> list[int | None]:
    """The field ids of columns, their members and elements."""
    found: list[int | None] = []
    for one in fields:
        number = (one.metadata or {}).get(b"PARQUET:field_id")
        found.append(None if number is None else int(number))
        found += _field_ids(one.type.field(index) for index in range(one.type.num_fields))
    return found


def _named(chain: Chain) -> set[str]:
    """The keys of data files a chain speaks for."""
    contents = chain.contents
    return {file["key"] for file in (*contents.files, *contents.dropped)} | set(contents.adopted) | chain.unsure


def _verify_keys(chain: Chain, rows: list[Row], sorted_files: list[list[Path]]) -> None:
    """One row a key, and the ranges of the sorted files do not overlap."""
    keys = [(*(row[name] for name in chain.key_columns), _digest_of_text(UUID(row["_airbyte_raw_id"]))) for row in rows]
    assert len(set(keys)) == len(keys), f"{chain.prefix}: a key is there twice"
    for paths in sorted_files:
        ranges = sorted(_key_range(path) for path in paths)
        assert all(one[1] < other[0] for one, other in pairwise(ranges)), f"{chain.prefix}: files overlap: {ranges}"


def _key_range(path: Path) -> tuple[str, str]:
    """The first and the last encoded key of a sorted file, in hex."""
    metadata = pq.read_metadata(path).metadata
    return json.loads(metadata[b"airbyte.first_keys"])[0], metadata[b"airbyte.last_key"].decode()


def _digest_of_text(raw_id: UUID) -> bytes | None:
    """What tells a row whose key does not fit its type from the others: 80 bits of an id of version 8."""
    parts = raw_id.bytes
    return parts[:6] + parts[7:8] + parts[9:12] if raw_id.version == 8 else None
