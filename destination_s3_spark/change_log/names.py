"""Names of the objects in a table's change log. Their order is the order of the log.

A commit adds a group: `{offset}-{token}-{part}-{kind}{extension}` for its data files, and `{offset}-{token}-manifest.json`.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

_GROUP = r"(\d{20})-(\d{26})"


class LogKind(Enum):
    """What the files of a group have; the value stands in their names."""

    CHANGES = "changes"
    """One event for each change of a row, in order."""
    SNAPSHOT = "snapshot"
    """All rows of the table: the log begins anew."""
    UPSERTS = "upserts"
    """Rows that were added or changed, of streams whose source does not say how."""


_MANIFEST = re.compile(rf"{_GROUP}-manifest\.json")
_FILE = re.compile(rf"{_GROUP}-(\d{{5}})-({'|'.join(kind.value for kind in LogKind)})\.[a-z.]+")


class GroupName(NamedTuple):
    """What the names of a commit's objects begin with: the chain offset of its first record, and 26 digits no other commit has."""

    offset: int
    token: str

    def __str__(self) -> str:
        return f"{self.offset:020d}-{self.token}"

    @property
    def manifest(self) -> str:
        """The name of the group's manifest."""
        return f"{self}-manifest.json"

    @classmethod
    def of_manifest(cls, name: str) -> GroupName | None:
        """The inverse of `manifest`; None for any other name."""
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
        """What it shares with the other objects of its commit."""
        return GroupName(self.offset, self.token)

    def file_name(self, extension: str) -> str:
        """The name with the extension of its format."""
        return f"{self.group}-{self.part:05d}-{self.kind.value}{extension}"

    @classmethod
    def parse(cls, name: str) -> LogName | None:
        """The inverse of `file_name`; None for any other name."""
        match = _FILE.fullmatch(name)
        return None if match is None else cls(int(match[1]), match[2], int(match[3]), LogKind(match[4]))
