"""Fixtures every group may use: moto as a real S3 endpoint, a bucket of its own for each test, a proxy that scripts faults, a table."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.chain.opening import Session
from destination_s3_spark.chain.territory import OrphanUploads
from destination_s3_spark.formats.file_statistics import KeyRange, WrittenFile
from destination_s3_spark.formats.parquet_statistics import footer_statistics
from destination_s3_spark.schema.arrow import META_FIELDS, schema_to_text
from destination_s3_spark.storage.client import s3_client
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import AccessKey, S3Settings
from destination_s3_spark.storage.staging import StagedFileSink
from destination_s3_spark.tables.commit.batch import TableCheckpoint
from destination_s3_spark.tables.commit.writer import TableWriter
from destination_s3_spark.tables.landing.slices import Segment, StagedSlice
from destination_s3_spark.tables.publishers.publication import Publisher
from unit_tests.lake import memory_s3
from unit_tests.lake.memory_client import SERVER
from unit_tests.moto_server import MotoServer
from unit_tests.places import table_of
from unit_tests.s3_proxy import Call, Reply, S3Proxy
from unit_tests.schema.of_arrow import recorded

REGION = "us-east-1"

memory_s3.install()


@pytest.fixture(scope="session")
def moto_endpoint() -> Iterator[str]:
    """The URL of an S3 server of this test session. It accepts any credentials."""
    server = MotoServer()
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield server.endpoint
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def make_bucket() -> Callable[[], S3Settings]:
    """`make_bucket()`: settings of an empty bucket in memory that nobody else uses."""
    return SERVER.create


@pytest.fixture(scope="session")
def make_served_bucket(moto_endpoint: str) -> Callable[[], S3Settings]:
    """`make_served_bucket()`: settings of an empty bucket on a server, for requests and foreign readers."""

    def make() -> S3Settings:
        made = S3Settings(f"test-{uuid4().hex}", REGION, moto_endpoint, AccessKey("test-key", "test-secret"))
        s3_client(replace(made, bucket="")).create_bucket(Bucket=made.bucket)
        return made

    return make


@pytest.fixture
def s3_settings(request: pytest.FixtureRequest) -> Iterator[S3Settings]:
    """Settings of the test's bucket, which is in memory, unless the test asks for requests: for a proxy, or `served_settings`."""
    if {"s3_proxy", "served_settings"} & {*request.fixturenames}:
        yield request.getfixturevalue("served_settings")
        return
    made = SERVER.create()
    yield made
    del SERVER.buckets[made.bucket]


@pytest.fixture
def served_settings(make_served_bucket: Callable[[], S3Settings]) -> S3Settings:
    """Settings of the test's bucket on a server."""
    return make_served_bucket()


@pytest.fixture
def bucket(s3_settings: S3Settings) -> str:
    """The name of the test's bucket."""
    return s3_settings.bucket


@pytest.fixture(scope="session")
def _shared_proxy(moto_endpoint: str) -> Iterator[S3Proxy]:
    proxy = S3Proxy(urlsplit(moto_endpoint).netloc)
    yield proxy
    proxy.close()


@pytest.fixture
def s3_proxy(_shared_proxy: S3Proxy) -> S3Proxy:
    """A proxy in front of the S3 server; use it with `replace(s3_settings, endpoint=s3_proxy.endpoint)`."""
    _shared_proxy.calls, _shared_proxy.script = [], Call.forward
    return _shared_proxy


@pytest.fixture
def s3_error() -> Callable[..., Reply]:
    """`s3_error(status, code, **headers)`: an error answer for the proxy."""
    return Reply.error


STARTED = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)


class SmallTable:
    """The table of one stream in a bucket, below `lake/`, and sessions that write Parquet files of a few rows into it."""

    def __init__(self, settings: S3Settings, namespace: str | None = "shop", name: str = "users") -> None:
        self.settings = settings
        self.store = S3Store(settings)
        self.table = table_of(name, namespace)
        self._sent = 0
        self._checkpoints = 0

    def writer(
        self, sync_id: int = 1, generation_id: int = 0, publishers: Sequence[Publisher] = (), keep_replaced: timedelta = timedelta()
    ) -> TableWriter:
        """A session that has read the chain."""
        session = Session(sync_id, generation_id, STARTED)
        chain, orphans = Chain(self.store, self.table), OrphanUploads(self.store, "lake/")
        writer = TableWriter(chain, session, orphans, publishers=publishers, keep_replaced=keep_replaced)
        writer.chain.read()
        self._sent = 0
        return writer

    def config(self, **options: object) -> dict[str, object]:
        """A configuration under which the connector finds the table."""
        keys = self.settings.credentials
        assert keys is not None
        usual = {
            "s3_bucket_name": self.settings.bucket,
            "s3_bucket_path": "lake",
            "s3_bucket_region": self.settings.region,
            "s3_endpoint": self.settings.endpoint,
            "access_key_id": keys.access_key_id,
            "secret_access_key": keys.secret_access_key,
            "format": {"format_type": "Parquet"},
        }
        return {**usual, **options}

    def set_schema(self, writer: TableWriter, schema_id: int, columns: Sequence[tuple[str, pa.DataType]], **more: object) -> pa.Schema:
        """Make these the data columns; returns the whole schema."""
        schema = pa.schema([*META_FIELDS, *columns])
        payload = {
            "schemaId": schema_id,
            "version": "1-0-0",
            "fields": recorded(columns, schema_id),
            "arrowSchema": schema_to_text(schema),
        }
        writer.open()
        writer.ensure_schema({**payload, **more})
        return schema

    @staticmethod
    def rows(schema: pa.Schema, *values: dict[str, object]) -> pa.Table:
        """Rows of the schema; the connector's own columns are filled in."""
        own = {"_airbyte_raw_id": "r", "_airbyte_extracted_at": STARTED, "_airbyte_meta": {"sync_id": 1, "changes": []}}
        return pa.Table.from_pylist([{**own, "_airbyte_generation_id": 0, **row} for row in values], schema=schema)

    def stage(
        self, writer: TableWriter, kind: FileKind, rows: pa.Table | bytes, extension: str = ".parquet", keys: KeyRange | None = None
    ) -> FileEntry:
        """A staged file of rows, or of given bytes and one row."""
        folder = self.table.final_root if kind is FileKind.FINAL else f"{self.table.folder}{kind.value}/"
        with StagedFileSink(self.settings, f"{folder}0-{writer.next_token()}{extension}") as sink:
            if isinstance(rows, bytes):
                sink.write(rows)
                return FileEntry.staged(kind, sink.stage(), WrittenFile(1, keys))
            footers: list[pq.FileMetaData] = []
            pq.write_table(rows, sink, metadata_collector=footers)
            return FileEntry.staged(kind, sink.stage(), WrittenFile(rows.num_rows, keys, footer_statistics(footers[0])))

    def commit(self, writer: TableWriter, *files: FileEntry) -> None:
        """One AddData of the files, which hold the same rows: a checkpoint unlike all others."""
        start, self._sent = self._sent, self._sent + 1
        self._checkpoints += 1
        assert writer.state is not None
        segments = (Segment(self._sent, files[0].rows, self._sent),)
        writer.stage(StagedSlice(start, self._sent, writer.state.schema_id or 0, files, segments))
        writer.commit([TableCheckpoint(self._sent, f"state {self._checkpoints}")])


@pytest.fixture
def make_table(s3_settings: S3Settings) -> Callable[..., SmallTable]:
    """`make_table(namespace, name)`: a table in the test's bucket, by default of stream shop.users."""

    def make(namespace: str | None = "shop", name: str = "users") -> SmallTable:
        return SmallTable(s3_settings, namespace, name)

    return make
