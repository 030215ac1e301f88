"""Writer of JSON Lines files: UTF-8, one object per line, the connector's own columns first.

Rows carry the record's `data` as JSON text in `_airbyte_data`: valid, compact and on one line. That text is written unchanged, so digits,
escapes, the order of keys and undeclared fields stay as the source sent them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.decoding.plan import Values
from destination_s3_spark.exact_json.members import members
from destination_s3_spark.formats.file_format import FileColumns, Sink
from destination_s3_spark.formats.text_file import (
    JoinedTextFile,
    TextFile,
    TextOptions,
    beside_meta,
    meta_json,
    text_format,
    text_join,
)

_MAYBE_META_KEY = r"(?i)_airbyte_|\\u00(5f|[46][1259]|[57][249])"
"""Matches every object that has a key like one of the connector's own, even with escaped characters, and few other objects."""


@dataclass(frozen=True, slots=True)
class JsonlOptions(TextOptions):
    stem: ClassVar[str] = ".jsonl"
    values: ClassVar[Values] = Values.RECORD

    def open(self, sink: Sink, columns: FileColumns) -> JsonlFile:
        return JsonlFile(sink, columns.arrow, self)

    def open_joined(self, sink: Sink) -> JoinedTextFile:
        return JoinedTextFile(sink, compressed=self.compressed)


class JsonlFile(TextFile):
    """One JSON Lines file being written into a sink."""

    def __init__(self, sink: Sink, columns: pa.Schema, options: JsonlOptions) -> None:
        super().__init__(sink, columns, compressed=options.compressed)
        self._flattened = options.flattened

    def _lines(self, batch: pa.RecordBatch) -> pa.StringArray:
        raw_id, extracted_at, meta, generation_id, data = batch.columns
        own = (
            '{"_airbyte_raw_id":"', raw_id,
            '","_airbyte_extracted_at":', extracted_at.view(pa.int64()).cast(pa.string()),
            ',"_airbyte_meta":', meta_json(meta),
            ',"_airbyte_generation_id":', generation_id.cast(pa.string()),
        )  # fmt: skip
        if self._flattened:
            return text_join(*own, _members_behind(data), "\n")
        return text_join(*own, ',"_airbyte_data":', data, "}\n")


def _members_behind(data: pa.Array[Any]) -> pa.Array[Any]:
    """Return the texts of objects as continuations of another object that is still open: `{"a":1}` as `,"a":1}`, `{}` as `}`."""
    suspects = pc.match_substring_regex(data, _MAYBE_META_KEY)
    if pc.any(suspects).as_py():
        data = pc.replace_with_mask(data, suspects, pa.array(map(_renamed, data.filter(suspects).to_pylist()), pa.string()))
    return pc.if_else(pc.equal(data, "{}"), "}", pc.binary_replace_slice(data, 0, 1, ","))


def _renamed(text: str) -> str:
    """Return the object with each key renamed that is like one of the connector's own."""
    line = text.encode()
    found = [(json.dumps(beside_meta(member.key)), line[member.start : member.end].decode()) for member in members(line)]
    return "{" + ",".join(f"{key}:{value}" for key, value in found) + "}"


JSONL = text_format("JSON Lines", "JSONL", JsonlOptions.stem, JsonlOptions)
