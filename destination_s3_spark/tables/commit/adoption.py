"""Adoption of files that destination-s3 wrote. They match its naming pattern and carry its generation metadata."""

from __future__ import annotations

import logging
import re

from destination_s3_spark.chain.files import GENERATION_METADATA
from destination_s3_spark.chain.settle import MapCalls
from destination_s3_spark.chain.tokens import parse_token, table_number
from destination_s3_spark.counted import counted
from destination_s3_spark.storage.object_store import ObjectInfo, ObjectStore

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
