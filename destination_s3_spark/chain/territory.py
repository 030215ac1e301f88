"""Location of a table in the bucket, and the keys that are its own.

Chains and hints name objects by key. Anyone who may write one of them could name any object of the bucket, so every key is checked against
the table's territory before it is used. So is the key of an upload that a dead session left open.
"""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from destination_s3_spark.chain.events import AddData, Event, MergeData, ReplaceData, Seed, Snapshot
from destination_s3_spark.chain.files import FileEntry, FileKind, Token, parse_token, table_number
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.chain.state import Identity, TableState
from destination_s3_spark.storage.object_store import ObjectStore
from destination_s3_spark.storage.table_paths import CHANGES_FOLDER, HISTORY_FOLDER, PUBLISHED_FOLDERS
from destination_s3_spark.stream_id import StreamId

CHAIN_FOLDER = "chain/"
"""Subfolder of a table's folder that holds its blocks."""
SCRATCH_FOLDER = "scratch/"
"""Subfolder of a table's folder for temporary objects. No block names them."""

Named: TypeAlias = tuple[str, bool]
"""A key in a block or a hint, and whether the file may be an adopted one."""

_OF_HISTORY = re.compile(r"[1-9][0-9]*/[^/]+")
_STEPS = frozenset({".", ".."})
"""Path segments that a client may resolve, so that the object is another one than the key says."""


@dataclass(frozen=True, slots=True)
class Table:
    """The location of a table.

    `folder`: `<base>airbyte_internal/<table>/`. `changes` and `history`: the folders of its change log and its histories, None without
    any. `adopt` returns the keys that a new table takes over. `root_flaw` returns why another final root than `final_root` cannot be the
    table's, or None if it can. `pattern` returns the pattern of the keys of destination-s3's files under a final root.
    """

    stream: StreamId
    table_id: str
    folder: str
    final_root: str
    adopt: Callable[[], Sequence[str]] = tuple
    changes: str | None = None
    history: str | None = None
    root_flaw: Callable[[str], str | None] = lambda root: f"its final root is '{root}'"
    pattern: Callable[[str], re.Pattern[str] | None] = lambda _root: None

    @property
    def chain_prefix(self) -> str:
        return f"{self.folder}{CHAIN_FOLDER}"

    @property
    def scratch_prefix(self) -> str:
        """Key prefix of rows that merges are sorting. No block names these objects."""
        return f"{self.folder}{SCRATCH_FOLDER}"

    def territory(self, root: str) -> Territory:
        """Return the keys that are the table's if its final files are under `root`."""
        return Territory(self, root)

    def flaw(self, identity: Identity) -> str | None:
        """Return why a chain with this identity cannot be the one in this folder, or None."""
        if identity.stream != self.stream:
            return f"it says that it is the chain of stream {identity.stream}"
        if (identity.table_id, identity.table_number) != (self.table_id, table_number(self.table_id)):
            return f"it says that it is the chain of table '{identity.table_id}', number {identity.table_number}"
        return None if identity.final_root == self.final_root else self.root_flaw(identity.final_root)


class Territory:
    """The keys of a table whose final files are under `root`."""

    def __init__(self, table: Table, root: str) -> None:
        self._table = table
        self.root = root
        self.number = table_number(table.table_id)
        internal = _parent(table.folder)
        self._of_others = (internal, *(f"{_parent(internal)}{folder}/" for folder in (CHANGES_FOLDER, HISTORY_FOLDER)))
        self._published = tuple(f"{of}{folder}" for of in (root, table.history) if of is not None for folder in PUBLISHED_FOLDERS)

    def names(self, key: str, *, adopted: bool) -> bool:
        """Tell whether a block may name the key as that of a data file, which has the table's number in its name unless it was adopted."""
        token = parse_token(key)
        if not _STEPS.isdisjoint(key.split("/")) or (token is not None and token.table_number != self.number):
            return False
        if token is None:
            return adopted and self._is_final(key)
        if key.startswith(self._table.folder):
            return not key.startswith(self._table.chain_prefix)
        return self._is_of_log(key) or self._is_version(key) or self._is_final(key)

    def holds(self, key: str) -> bool:
        """Tell whether the key is the table's: one of its own folders', a publication, or a key that a block may name."""
        if not _STEPS.isdisjoint(key.split("/")):
            return False
        own = key.startswith((self._table.folder, *self._published)) or self._is_of_log(key) or self._is_version(key)
        return own or self.names(key, adopted=True)

    def may_delete(self, key: str) -> bool:
        """Tell whether the object may be deleted. Nothing ever deletes blocks."""
        return self.holds(key) and not key.startswith(self._table.chain_prefix)

    def may_write(self, key: str) -> bool:
        """Tell whether the object may be written. Only the chain itself writes blocks and its hint, and nobody writes adopted files."""
        return self.may_delete(key) and (parse_token(key) is not None or not self._is_final(key))

    def may_list(self, prefix: str) -> bool:
        """Tell whether objects under the prefix may be the table's."""
        return prefix.startswith((self._table.folder, self.root, *filter(None, [self._table.changes, self._table.history])))

    def is_own_by_name(self, key: str) -> bool:
        """Tell whether the key alone shows whose object it is. Of the others, the ones to be adopted, only the metadata does."""
        return parse_token(key) is not None or not self._is_final(key) or self._matches(key)

    def foreign_key(self, named: Iterable[Named]) -> str | None:
        """Return the first key that no block of the table may name, or None."""
        return next((key for key, adopted in named if not self.names(key, adopted=adopted)), None)

    def _is_of_log(self, key: str) -> bool:
        # The folder of a stream without a namespace also contains the folders of a namespace with the stream's name.
        changes = self._table.changes
        return changes is not None and key.startswith(changes) and "/" not in key[len(changes) :]

    def _is_version(self, key: str) -> bool:
        # Each history has a numbered folder of its own, as a stream in a namespace with the stream's name may have.
        folder = self._table.history
        return folder is not None and key.startswith(folder) and _OF_HISTORY.fullmatch(key, len(folder)) is not None

    def _is_final(self, key: str) -> bool:
        return key.startswith(self.root) and not key.startswith((*self._of_others, *self._published))

    def _matches(self, key: str) -> bool:
        return self._pattern is not None and self._pattern.fullmatch(key) is not None

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        return self._table.pattern(self.root)


def keys_of_event(event: Event) -> Iterator[Named]:
    match event:
        case Seed():
            yield from _named(event.adopted)
        case AddData():
            yield from _named((), event.files)
        case MergeData() | ReplaceData():
            yield from _named((), (*event.files, *event.files_removed))
        case Snapshot():
            yield from _named(event.adopted, (*event.files, *event.dropped))
            yield from keys_of_state(event.state)


def keys_of_state(state: TableState) -> Iterator[Named]:
    yield from _named(state.contents.kept_keys)
    if (undo := state.unsettled) is not None:
        yield from _named((*(undo.removed or ()), *undo.before.kept_keys), undo.files)


def keys_of_live(live: LiveFiles) -> Iterator[Named]:
    return _named(live.adopted, (*live.files, *live.dropped))


def _named(keys: Iterable[str], files: Iterable[FileEntry] = ()) -> Iterator[Named]:
    yield from ((key, True) for key in keys)
    yield from ((file.key, file.kind is FileKind.ADOPTED) for file in files)


def _parent(folder: str) -> str:
    return folder[: folder.rstrip("/").rfind("/") + 1]


class OrphanUploads:
    """The open uploads under a bucket path, listed once for all tables. `prefix` ends in `/` or is empty.

    Uploads of dead sessions are invisible but cost storage. Only those with the table's own number and an older epoch are aborted.
    """

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._prefix = prefix
        self._lock = threading.Lock()
        self._by_table: dict[int, list[tuple[Token, str, str]]] | None = None

    def abort(self, territory: Territory, before_epoch: int) -> int:
        """Abort the table's uploads from epochs before `before_epoch` and return their number.

        Every block of those epochs must be settled, because it may need these uploads until then.
        """
        found = [upload for upload in self._found(territory.number, before_epoch) if territory.may_write(upload[1])]
        for _, key, upload_id in found:
            self._store.abort_upload(key, upload_id)
        return len(found)

    def count(self, table_number: int, before_epoch: int) -> int:
        return len(self._found(table_number, before_epoch))

    def _found(self, table_number: int, before_epoch: int) -> list[tuple[Token, str, str]]:
        return [upload for upload in self._listed().get(table_number, ()) if upload[0].epoch < before_epoch]

    def _listed(self) -> dict[int, list[tuple[Token, str, str]]]:
        with self._lock:
            if self._by_table is None:
                by_table = defaultdict(list)
                for key, upload_id in self._store.list_uploads(self._prefix):
                    token = parse_token(key) or parse_token(key.rpartition("/")[0])  # of scratch objects the folder has it
                    if token is not None:
                        by_table[token.table_number].append((token, key, upload_id))
                self._by_table = dict(by_table)
            return self._by_table
