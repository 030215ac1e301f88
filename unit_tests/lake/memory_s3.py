"""An S3 server in memory, reached by the two seams of `storage`: the client of boto3, and the file system of pyarrow.

It knows what the connector and its tests ask of S3: ranges, conditions, multipart uploads, copies, pages, versions. A bucket's hook decides
what happens to each call: refusals, answers that are lost, the death of the caller. `unit_tests/storage/test_contract.py` runs the same
cases against it and against real servers.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from botocore.exceptions import ClientError
from pyarrow import fs

from destination_s3_spark.storage import client, credentials
from destination_s3_spark.storage.settings import S3Settings
from unit_tests.lake.memory_bucket import ENDPOINT
from unit_tests.lake.memory_client import SERVER, MemoryClient

CLIENT = MemoryClient()


class _Handler(fs.FileSystemHandler):  # type: ignore[misc]
    """What pyarrow asks of a file system. The connector only reads through it; other programs write, too."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Handler)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def get_type_name(self) -> str:
        return "memory"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: Sequence[str]) -> list[fs.FileInfo]:
        return [self._info(path) for path in paths]

    def _info(self, path: str) -> fs.FileInfo:
        try:
            return fs.FileInfo(path, fs.FileType.File, size=len(self._read(path)))
        except FileNotFoundError:
            return fs.FileInfo(path, fs.FileType.NotFound)

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        name, _, folder = selector.base_dir.partition("/")
        objects = SERVER.buckets[name].objects
        return [fs.FileInfo(f"{name}/{key}", fs.FileType.File, size=len(body)) for key, body in objects.items() if key.startswith(folder)]

    def open_input_file(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self._read(path))

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self._read(path))

    def _read(self, path: str) -> bytes:
        name, _, key = path.partition("/")
        try:
            body: bytes = CLIENT.get_object(Bucket=name, Key=key)["Body"].read()
        except ClientError as error:
            raise FileNotFoundError(f"{path}: AWS Error NO_SUCH_KEY during GetObject") from error
        return body

    def open_output_stream(self, path: str, _metadata: object) -> pa.NativeFile:
        return pa.PythonFile(_Written(path), mode="w")

    def _refuse(self, *_: Any) -> Any:
        raise NotImplementedError("nothing here asks for this")

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = _refuse
    move = copy_file = open_append_stream = _refuse


class _Written(io.BytesIO):
    """A file of another program, which becomes an object when it is closed."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def close(self) -> None:
        if not self.closed:
            name, _, key = self._path.partition("/")
            CLIENT.put_object(Bucket=name, Key=key, Body=self.getvalue())
        super().close()


def arrow_filesystem() -> fs.FileSystem:
    """Return a file system to read objects through pyarrow, with paths `bucket/key`."""
    return fs.PyFileSystem(_Handler())


def install() -> None:
    """Let the connector reach the server in memory by settings with its endpoint. All others get the real client."""
    real_client, real_filesystem = client._built, credentials.arrow_filesystem

    def built(settings: S3Settings) -> Any:
        return CLIENT if settings.endpoint == ENDPOINT else real_client(settings)

    def filesystem(settings: S3Settings) -> Any:
        return arrow_filesystem() if settings.endpoint == ENDPOINT else real_filesystem(settings)

    client._built = built  # type: ignore[assignment]
    credentials.arrow_filesystem = filesystem
