from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import zstandard

from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.landing.land import OBJECT_BYTES, object_keys, upload_lines
from destination_s3_spark.tables.landing.slices import Extent, Slice

LINE = json.dumps({"type": "RECORD", "record": {"stream": "users", "data": {"name": "x" * 900}}}).encode() + b"\n"


def a_slice(directory: Path, *sizes: int) -> tuple[Slice, bytes]:
    """A slice over files of about these sizes, in the middle of each, and its lines."""
    extents, lines = [], b""
    for number, size in enumerate(sizes):
        part = random.Random(number).randbytes(8).hex().encode() + LINE * (size // len(LINE))
        path = directory / f"{number}.jsonl"
        path.write_bytes(b"before\n" + part + b"after\n")
        extents.append(Extent(str(path), 7, 7 + len(part)))
        lines += part
    return Slice(0, 1_000, 1_000 + len(lines), 5, len(lines), tuple(extents), ()), lines


def unpacked(settings: S3Settings, keys: tuple[str, ...]) -> list[bytes]:
    return [zstandard.ZstdDecompressor().decompressobj().decompress(S3Store(settings).get(key)) for key in keys]


def test_lines_of_several_files_become_one_object(s3_settings: S3Settings, tmp_path: Path) -> None:
    piece, lines = a_slice(tmp_path, 3_000, 2_500_000, 10_000)
    keys = object_keys(piece, "scratch/1/")

    upload_lines(piece, keys, S3Store(s3_settings))

    assert keys == ("scratch/1/0.jsonl.zst",)
    assert unpacked(s3_settings, keys) == [lines]
    assert len(S3Store(s3_settings).get(keys[0])) < len(lines) / 20


@pytest.mark.parametrize("more", [0, 1, 5_000])
def test_a_large_slice_is_cut_into_objects_of_bounded_size(s3_settings: S3Settings, tmp_path: Path, more: int) -> None:
    piece, lines = a_slice(tmp_path, 20_000_000, OBJECT_BYTES - 20_000_000)
    (tmp_path / "rest").write_bytes(LINE * 20)
    rest = (LINE * 20)[: OBJECT_BYTES - len(lines) + more]
    extents = (*piece.extents, Extent(str(tmp_path / "rest"), 0, len(rest)))
    piece = Slice(0, 0, len(lines) + len(rest), 0, 1, extents, ())
    keys = object_keys(piece, "scratch/")

    upload_lines(piece, keys, S3Store(s3_settings))

    assert len(keys) == (2 if more else 1)
    assert [len(part) for part in unpacked(s3_settings, keys)] == ([OBJECT_BYTES, more] if more else [OBJECT_BYTES])
    assert b"".join(unpacked(s3_settings, keys)) == lines + rest
