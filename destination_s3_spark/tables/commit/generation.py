"""Rows of the pending generation that are already in the table. Their STATEs were emitted, so they stay when it is published."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass

from destination_s3_spark.chain.files import GENERATION_METADATA, FileEntry, FileKind, parse_token, table_number
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.chain.opening import WriteDisposition
from destination_s3_spark.chain.settle import MapCalls
from destination_s3_spark.chain.state import Contents
from destination_s3_spark.storage.object_store import ObjectInfo, ObjectStore
from destination_s3_spark.tables.commit.writer import TableWriter
from destination_s3_spark.wording import counted

logger = logging.getLogger("airbyte")


def generation_of(info: ObjectInfo | None) -> int | None:
    """Return the generation in a final file's metadata, or None if there is no file or no number."""
    text = "" if info is None else info.metadata.get(GENERATION_METADATA, "").strip()
    return int(text) if text.isdecimal() else None


def earlier_files(store: ObjectStore, pattern: re.Pattern[str], root: str, table_id: str, map_calls: MapCalls = map) -> list[str]:
    """List the keys under the final root that match the stream's pattern and carry a generation, in order.

    Files of another table of this connector are left to that table. Files without a generation have an unknown owner. They are never
    touched, and one warning counts them.
    """
    own = table_number(table_id)
    named = []
    for found in store.list(root):
        token = parse_token(found.key)
        if pattern.fullmatch(found.key) and (token is None or token.table_number == own):
            named.append(found.key)

    def is_airbytes(key: str) -> bool:
        info = store.head(key)
        return info is not None and GENERATION_METADATA in info.metadata

    marked = list(map_calls(is_airbytes, named))
    unknown = marked.count(False)
    if unknown:
        logger.warning(
            "%s under %s: named like this table's, but without %s, so left alone and not part of the table",
            counted(unknown, "file"), root, GENERATION_METADATA,
        )  # fmt: skip
    return [key for key, is_marked in zip(named, marked, strict=True) if is_marked]


@dataclass(frozen=True, slots=True)
class Kept:
    """The rows that stay in a table when its pending generation is published."""

    rows: int = 0
    """The number of rows in `files`."""
    files: tuple[FileEntry, ...] = ()
    """The files as landed, or the raw files if a merge has mixed the rows with others."""
    raw: tuple[FileEntry, ...] = ()
    """The raw files of the rows."""
    adopted: frozenset[str] = frozenset()
    """The keys of files that destination-s3 wrote in the same generation."""


NOTHING = Kept()


def kept_rows(writer: TableWriter, disposition: WriteDisposition) -> Kept | None:
    """Return the rows that stay when the pending generation of an open table is published, or None if no files hold exactly those rows.

    Nothing stays if the new rows replace all others, as in mode `overwrite` without generations.
    """
    contents = writer.open().contents
    if contents.pending is None or disposition is not WriteDisposition.TRUNCATE or not (contents.current_rows or contents.adopted):
        return NOTHING
    live = writer.live_files()
    adopted = _adopted(writer, live, contents)
    own = live.of_generation(contents)
    raw = tuple(file for file in own if file.kind is FileKind.RAW)
    landed = tuple(file for file in own if file.kind is not FileKind.RAW)
    for files in (landed, raw):
        if sum(file.rows for file in files) == contents.current_rows:
            return Kept(contents.current_rows, files, raw, adopted)
    return None


def _adopted(writer: TableWriter, live: LiveFiles, contents: Contents) -> frozenset[str]:
    """Return the adopted files of the current generation.

    There are none once a session has changed the generation: an equal number in a file's metadata then proves nothing.
    """
    if contents.current_from:
        return frozenset()
    generations = writer.map_files(lambda key: generation_of(writer.store.head(key)), live.adopted)
    return frozenset(key for key, found in zip(live.adopted, generations, strict=True) if found == contents.generation)
