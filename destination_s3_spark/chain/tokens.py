"""Decimal tokens in data file names, which identify the table, the session and the file.

A token has 26 digits: 10 for the table number, 8 for the epoch, 8 for a number that counts the session's files. A file name is the token
and the extension, with or without a prefix that ends in `-`. In the change log, the part and kind follow the token. The first digit is
never 0, so a token may be stored as a number.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

from destination_s3_spark.errors import Bug

MAX_EPOCH = MAX_FILE_NUMBER = 10**8 - 1

_TOKEN = re.compile(r"(?:^|[-/])(\d{10})(\d{8})(\d{8})(?=(?:-(?:\d{5}-[a-z]+|manifest))?\.[^/]*$|$)")


class Token(NamedTuple):
    """A parsed token; `str()` returns its 26 digits."""

    table_number: int
    epoch: int
    file_number: int

    def __str__(self) -> str:
        if self.epoch > MAX_EPOCH or self.file_number > MAX_FILE_NUMBER:
            raise Bug(f"Out of file names: epoch {self.epoch}, file {self.file_number} of one sync.")
        return f"{self.table_number:010d}{self.epoch:08d}{self.file_number:08d}"


def parse_token(key: str) -> Token | None:
    """Return the token in a data file's key, or None if this connector did not name the key."""
    match = _TOKEN.search(key)
    return None if match is None else Token(*map(int, match.groups()))


def table_number(table_id: str) -> int:
    """Return a stable ten-digit number for the table, derived from a hash of its id; at least 10**9."""
    return 10**9 + int.from_bytes(hashlib.sha256(table_id.encode()).digest()[:8], "big") % (9 * 10**9)
