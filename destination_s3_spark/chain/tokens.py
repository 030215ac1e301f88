"""The decimal token in the name of every data file: which table, which session, which file.

Token = 10 digits table number, 8 digits epoch, 8 digits running number of the session. A name ends in `-<token>` and its extension, or
is the token alone with its extension; the files of a change log go on with their part and kind. The first digit is not 0, so a token may
be kept as a number.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

from destination_s3_spark.errors import Bug

MAX_EPOCH = MAX_FILE_NUMBER = 10**8 - 1

_TOKEN = re.compile(r"(?:^|[-/])(\d{10})(\d{8})(\d{8})(?=(?:-(?:\d{5}-[a-z]+|manifest))?\.[^/]*$|$)")


class Token(NamedTuple):
    """A parsed token; `str()` gives the 26 digits."""

    table_number: int
    epoch: int
    file_number: int

    def __str__(self) -> str:
        if self.epoch > MAX_EPOCH or self.file_number > MAX_FILE_NUMBER:
            raise Bug(f"Out of file names: epoch {self.epoch}, file {self.file_number} of one sync.")
        return f"{self.table_number:010d}{self.epoch:08d}{self.file_number:08d}"


def parse_token(key: str) -> Token | None:
    """The token in a data file's key, or None when the key is not one of ours."""
    match = _TOKEN.search(key)
    return None if match is None else Token(*map(int, match.groups()))


def table_number(table_id: str) -> int:
    """A stable number of ten digits for the table, from 10**9 on."""
    return 10**9 + int.from_bytes(hashlib.sha256(table_id.encode()).digest()[:8], "big") % (9 * 10**9)
