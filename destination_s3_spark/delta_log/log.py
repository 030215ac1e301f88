"""Log of a Delta table on S3: its objects, its newest state, and the creation of commits and checkpoints.

A commit is created with `If-None-Match: *`, so each version has one writer. A reader starts at the newest checkpoint.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain

import msgspec

from destination_s3_spark.delta_log.actions import (
    MOST_CHECKPOINT_BYTES,
    Action,
    Add,
    DecisiveAction,
    Malformed,
    Metadata,
    Protocol,
    Remove,
    Transaction,
    decode_checkpoint,
    decode_commit,
    encode_checkpoint,
)
from destination_s3_spark.storage.object_store import MOST_BYTES, ObjectInfo, ObjectNotFound, ObjectStore, ObjectTooLarge, create_or_read

LOG_FOLDER = "_delta_log/"
"""Folder of the log below a table's root. Readers of the root skip folders that begin with `_`."""
LAST_VERSION = 2**63 - 1
"""The greatest version that a log can have."""
MOST_COMMIT_BYTES = 256 * 2**20
"""Largest commit that is read. One of 100,000 files has less than half."""
KEPT = timedelta(days=7)
"""Least age of commits and checkpoints that are cleaned up."""

_NUMBERED = re.compile(r"(\d{20})(\.json|\.checkpoint\.parquet)")


class VersionTaken(Exception):
    """Another writer created the commit with this version."""


class UnreadableLog(Exception):
    """The log cannot be folded. The text says why."""


@dataclass(slots=True)
class DeltaState:
    """The table as of a version. `commit` is the hash of that commit's bytes, `checkpoint` the version of the newest checkpoint."""

    version: int
    commit: str
    checkpoint: int | None
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    transactions: dict[str, Transaction] = field(default_factory=dict)
    adds: dict[str, Add] = field(default_factory=dict)


class DeltaLog:
    """The log of the table at `root`, which ends in "/"."""

    def __init__(self, store: ObjectStore, root: str) -> None:
        self._store = store
        self.prefix = f"{root}{LOG_FOLDER}"

    def read(self) -> DeltaState | None:
        """Fold the log, or return None without one. Takes one LIST, a GET of the checkpoint and a GET per later commit.

        Raises UnreadableLog when commits are missing or cannot be read. Nothing is done for a version that is not there.
        """
        commits, checkpoints = self._listed()
        if not commits:
            if checkpoints:
                raise UnreadableLog("it has a checkpoint and no commits")
            return None
        newest = max(commits)
        checkpoint = max((version for version in checkpoints if version <= newest), default=None)
        start = 0 if checkpoint is None else checkpoint + 1
        wanted = sorted(version for version in commits if version >= start)
        missing = next((start + place for place, version in enumerate(wanted) if version != start + place), None)
        if missing is not None:
            raise UnreadableLog(f"its commit {missing} is missing")
        bodies = [self._body(version) for version in wanted]
        commit = commit_hash(bodies[-1] if bodies else self._body(newest))
        contents = None if checkpoint is None else self.checkpoint(checkpoint)
        if checkpoint is not None and contents is None:
            raise UnreadableLog(f"its checkpoint {checkpoint} is missing")
        return _folded(DeltaState(newest, commit, checkpoint), contents or (), bodies)

    def newest_commit(self) -> bytes | None:
        """Return the newest commit, or None without one. Takes one LIST and one GET."""
        commits, _ = self._listed()
        return self._body(max(commits)) if commits else None

    def is_newest(self, version: int, commit: str) -> bool:
        """Tell whether this version exists with these bytes and is the newest one. Takes a GET and a HEAD."""
        return self.holds(version, commit) and self._store.head(self._commit_key(version + 1)) is None

    def holds(self, version: int, commit: str) -> bool:
        """Tell whether the log has this version with these bytes. Takes one GET."""
        try:
            return commit_hash(self._body(version)) == commit
        except UnreadableLog:
            return False

    def create(self, version: int, body: bytes) -> None:
        """Create a commit. Its bytes must be unique. Raises VersionTaken, or TransientError when the store does not report the outcome."""
        key = self._commit_key(version)
        if create_or_read(self._store, key, body, MOST_BYTES, what=f"version {version} of a Delta log") != body:
            raise VersionTaken(key)

    def checkpoint(self, version: int) -> list[DecisiveAction] | None:
        """Return the actions of the checkpoint of a version, or None without one. Raises UnreadableLog."""
        try:
            return decode_checkpoint(self._store.get(self._checkpoint_key(version), MOST_CHECKPOINT_BYTES))
        except ObjectNotFound:
            return None
        except ObjectTooLarge:
            raise UnreadableLog(f"its checkpoint {version} is larger than any") from None
        except Malformed as error:
            raise UnreadableLog(f"its checkpoint {version} cannot be read ({error})") from None

    def write_checkpoint(self, version: int, actions: Iterable[Action]) -> None:
        """Write the checkpoint of a version, then the pointer to it."""
        body, size = encode_checkpoint(actions)
        self._store.put(self._checkpoint_key(version), body)
        self._store.put(f"{self.prefix}_last_checkpoint", msgspec.json.encode({"version": version, "size": size}))

    def clean_up(self, now: datetime) -> None:
        """Delete commits and checkpoints that are older than KEPT and that a checkpoint of that age covers.

        The checkpoint's own commit stays, because Spark needs it. The versions that stay have no gaps.
        """
        commits, checkpoints = self._listed()
        times = {version: info.modified for version, info in commits.items() if info.modified is not None}
        old = [version for version in checkpoints if version in times and times[version] < now - KEPT]
        if not old:
            return
        covered = {version for version in (*commits, *checkpoints) if version < max(old)}
        keys = [info.key for of in (commits, checkpoints) for version, info in sorted(of.items()) if version in covered]
        if keys:
            self._store.delete(keys)

    def remove(self) -> None:
        """Delete the log, the newest objects first, so that what an interruption leaves can still be read."""
        keys = sorted((info.key for info in self._store.list(self.prefix)), reverse=True)
        if keys:
            self._store.delete(keys)

    def _listed(self) -> tuple[dict[int, ObjectInfo], dict[int, ObjectInfo]]:
        """Return the commits and the checkpoints by version. Raises UnreadableLog for a version that no log can have."""
        commits, checkpoints = dict[int, ObjectInfo](), dict[int, ObjectInfo]()
        for info in self._store.list(self.prefix):
            if match := _NUMBERED.fullmatch(info.key, len(self.prefix)):
                version = int(match[1])
                if version > LAST_VERSION:
                    raise UnreadableLog(f"it has version {version}, which no Delta log has")
                (commits if match[2] == ".json" else checkpoints)[version] = info
        return commits, checkpoints

    def _body(self, version: int) -> bytes:
        try:
            return self._store.get(self._commit_key(version), MOST_COMMIT_BYTES)
        except ObjectNotFound:
            raise UnreadableLog(f"its commit {version} is missing") from None
        except ObjectTooLarge:
            raise UnreadableLog(f"its commit {version} is larger than any") from None

    def _commit_key(self, version: int) -> str:
        return f"{self.prefix}{version:020d}.json"

    def _checkpoint_key(self, version: int) -> str:
        return f"{self.prefix}{version:020d}.checkpoint.parquet"


def commit_hash(body: bytes) -> str:
    """Return the hash by which a commit is recognised."""
    return hashlib.sha256(body).hexdigest()


def _folded(state: DeltaState, checkpoint: Iterable[DecisiveAction], bodies: Iterable[bytes]) -> DeltaState:
    """Return the state after the actions of a checkpoint, and those of commits behind it."""
    try:
        for action in chain(checkpoint, *map(decode_commit, bodies)):
            match action:
                case Protocol():
                    state.protocol = action
                case Metadata():
                    state.metadata = action
                case Transaction(app_id=app_id):
                    state.transactions[app_id] = action
                case Remove(path=path):
                    state.adds.pop(path, None)
                case Add(path=path):
                    state.adds[path] = action
    except Malformed as error:
        raise UnreadableLog(f"a commit cannot be read ({error})") from None
    return state
