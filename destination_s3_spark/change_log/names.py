"""Names of the objects in a table's change log, which sort in log order.

A commit adds a group: data files named `{offset}-{token}-{part}-{kind}{extension}` and a manifest named `{offset}-{token}-manifest.json`.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

_GROUP = r"(\d{20})-(\d{26})"


class LogKind(Enum):
    """The contents of a group's files. File names contain the value."""

    CHANGES = "changes"
    """One event per change of a row, in order."""
    SNAPSHOT = "snapshot"
    """All rows of the table. The log starts over with them."""
    UPSERTS = "upserts"
    """Added or changed rows, for streams whose source does not say which they are."""


_MANIFEST = re.compile(rf"{_GROUP}-manifest\.json")
_FILE = re.compile(rf"{_GROUP}-(\d{{5}})-({'|'.join(kind.value for kind in LogKind)})\.[a-z.]+")


class GroupName(NamedTuple):
    """Common prefix of the names of a commit's objects: the chain offset of its first record and a token of 26 digits unique to it."""

    offset: int
    token: str

    def __str__(self) -> str:
        return f"{self.offset:020d}-{self.token}"

    @property
    def manifest(self) -> str:
        """Name of the group's manifest."""
        return f"{self}-manifest.json"

    @classmethod
    def of_manifest(cls, name: str) -> GroupName | None:
        """Parse the name of a manifest. Return None for any other name."""
        match = _MANIFEST.fullmatch(name)
        return None if match is None else cls(int(match[1]), match[2])


class LogName(NamedTuple):
    """The name of a data file. Parts of a group count from 0."""

    offset: int
    token: str
    part: int
    kind: LogKind

    @property
    def group(self) -> GroupName:
        """Name of the group, shared with the other objects of the commit."""
        return GroupName(self.offset, self.token)

    def file_name(self, extension: str) -> str:
        """Return the file name with the extension of its format."""
        return f"{self.group}-{self.part:05d}-{self.kind.value}{extension}"

    @classmethod
    def parse(cls, name: str) -> LogName | None:
        """Parse the name of a data file. Return None for any other name."""
        match = _FILE.fullmatch(name)
        return None if match is None else cls(int(match[1]), match[2], int(match[3]), LogKind(match[4]))
