"""Transfer of slices to executors on other machines, which cannot read the spool, as compressed objects in the bucket.

The objects are in the table's scratch folder, in a subfolder named by a token of the session. The driver deletes them once the slice has
landed. Objects of a dead session are deleted with its other scratch objects when the table is next opened.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path

import zstandard

from destination_s3_spark.engine.cluster import scratch_directory
from destination_s3_spark.errors import TransientError
from destination_s3_spark.storage.object_store import ObjectNotFound, ObjectStore
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.tables.landing.land import LandTask, land_slice
from destination_s3_spark.tables.landing.slices import Extent, ExtentFile, Slice, StagedSlice

OBJECT_BYTES = 32 * 2**20
"""Uncompressed size of an object. Compressed it has a few megabytes, which a worker fetches into memory with one request."""
READ_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class RemoteLandTask(LandTask):
    """A task with the slice's lines in objects, in order, instead of local extents."""

    objects: tuple[str, ...]


def object_keys(piece: Slice, prefix: str) -> tuple[str, ...]:
    """Return the keys of the objects for the slice's lines."""
    count = -(-(piece.end - piece.start) // OBJECT_BYTES)
    return tuple(f"{prefix}{number}.jsonl.zst" for number in range(count))


def remote(task: LandTask, objects: tuple[str, ...]) -> RemoteLandTask:
    """Return the task with its slice's lines in objects."""
    values = {field.name: getattr(task, field.name) for field in fields(task)}
    return RemoteLandTask(**{**values, "slice": replace(task.slice, extents=())}, objects=objects)


def upload_lines(piece: Slice, keys: tuple[str, ...], store: ObjectStore) -> None:
    """Write the slice's lines to these objects, with one compressed object in memory at a time. Raises ConfigError or TransientError."""
    blocks = _blocks(piece)
    for key in keys:
        packer = zstandard.ZstdCompressor().compressobj()
        packed = bytearray()
        for _ in range(OBJECT_BYTES // READ_BYTES):
            packed += packer.compress(next(blocks, b""))
        packed += packer.flush()
        store.put(key, bytes(packed))


def land_remote_slice(task: RemoteLandTask) -> StagedSlice:
    """Fetch the lines into a local file and land them with `land_slice`."""
    with tempfile.TemporaryDirectory(prefix="slice-", dir=scratch_directory()) as directory:
        path = Path(directory, "lines.jsonl")
        size = _fetch(task, path)
        piece = replace(task.slice, extents=(Extent(str(path), 0, size),))
        return land_slice(replace(task, slice=piece))


def _fetch(task: RemoteLandTask, path: Path) -> int:
    store = S3Store(task.s3)
    with path.open("wb") as file:
        for key in task.objects:
            try:
                packed = store.get(key)
            except ObjectNotFound:
                raise TransientError(
                    f"s3://{task.s3.bucket}/{key}, records on their way to an executor, is gone. Most likely another sync took the table "
                    "over. Nothing after the last acknowledged STATE was kept; run the sync again."
                ) from None
            file.writelines(zstandard.ZstdDecompressor().read_to_iter(packed))
        size = file.tell()
    if size != task.slice.end - task.slice.start:
        raise TransientError(
            f"{size} bytes of records arrived at an executor where {task.slice.end - task.slice.start} were sent. Nothing was committed; "
            "run the sync again."
        )
    return size


def _blocks(piece: Slice) -> Iterator[bytes]:
    """Yield the slice's bytes in blocks of READ_BYTES. The last block may be shorter."""
    rest = b""
    for extent in piece.extents:
        with ExtentFile(extent) as file:
            while file.left:
                rest += file.read(READ_BYTES - len(rest))
                if len(rest) == READ_BYTES:
                    yield rest
                    rest = b""
    if rest:
        yield rest
