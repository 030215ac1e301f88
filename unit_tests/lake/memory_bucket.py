"""Buckets in memory: their objects, versions and uploads, and hooks that decide the fate of each call."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import formatdate
from enum import Enum
from functools import cached_property
from itertools import count
from threading import RLock
from typing import Any, NamedTuple

from botocore.exceptions import ClientError, ConnectionClosedError, ReadTimeoutError

ENDPOINT = "http://memory.invalid"
"""Endpoint of settings whose buckets are in memory. No name server knows it, so no request can leave by mistake."""
REGION = "us-east-1"
LEAST_PART_BYTES = 5 * 2**20
"""Least size of a part that is not the last one."""


class Crash(BaseException):
    """The process is gone: nothing of it runs any more."""


class Fate(Enum):
    """How a call ends without an answer, before or after it took effect. After a crash no further call reaches the bucket."""

    CRASH_BEFORE = "crash before"
    CRASH_AFTER = "crash after"
    LOST_BEFORE = "lost before"
    LOST_AFTER = "lost after"
    REPEATED = "repeated"
    """Its answer got lost, and the client sent it again."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error answer. `after`: the call took effect all the same."""

    status: int
    code: str
    after: bool = False


@dataclass(slots=True)
class S3Call:
    """A call: its number from 1 on in the bucket, S3's name of it, its key or prefix (the first key of DeleteObjects), its parameters."""

    number: int
    action: str
    key: str
    parameters: Mapping[str, Any] = field(repr=False)


Hook = Callable[[S3Call], Fate | Refusal | None]
Watch = Callable[[str, bytes, int], None]


@dataclass
class Version:
    """A version of an object, or a mark that it was deleted if `body` is None."""

    id: str
    body: bytes | None
    metadata: Mapping[str, str] = field(default_factory=dict)
    modified: datetime = field(default_factory=lambda: datetime.now(UTC))
    parts: tuple[bytes, ...] = ()
    """The MD5 of each part."""

    @cached_property
    def etag(self) -> str:
        if self.parts:
            return f'"{hashlib.md5(b"".join(self.parts), usedforsecurity=False).hexdigest()}-{len(self.parts)}"'
        return f'"{hashlib.md5(self.body or b"", usedforsecurity=False).hexdigest()}"'


class Part(NamedTuple):
    """A part of an upload, and its MD5."""

    body: bytes
    digest: bytes

    @classmethod
    def of(cls, body: bytes) -> Part:
        return cls(body, hashlib.md5(body, usedforsecurity=False).digest())

    @property
    def etag(self) -> str:
        return f'"{self.digest.hex()}"'


@dataclass(slots=True)
class Upload:
    key: str
    metadata: Mapping[str, str]
    parts: dict[int, Part] = field(default_factory=dict)


class MemoryBucket:
    """A bucket: its objects, the calls so far, and what happens to the next ones."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls: list[S3Call] = []
        self.page_size = 1000
        self.least_part_bytes = LEAST_PART_BYTES
        self.completes_again = True
        """Whether a repeated CompleteMultipartUpload succeeds, as on AWS. MinIO and others know no such upload any more."""
        self.has_conditions: Callable[[str], bool] = lambda _: True
        """Whether PutObject looks at its conditions, by the key. Stores that do not know them overwrite."""
        self.tells_null = True
        """Whether answers name the version of objects that are older than the versioning, `null`, as AWS does and Ceph does not."""
        self.versioning: str | None = None
        self.watch: Watch | None = None
        """Receives key, bytes and +1 or -1 when an upload appears as an object and when an object goes."""
        self.versions: dict[str, list[Version]] = {}
        self.open_uploads: dict[str, Upload] = {}
        self.completed: dict[str, str] = {}
        """ETags of the objects by the ids of their uploads."""
        self.ids = count(1)
        self._hook: Hook | None = None
        self._is_dead = False
        self._lock = RLock()

    @property
    def hook(self) -> Hook | None:
        """What decides the fate of each call. Another hook also brings a caller back to life that has crashed."""
        return self._hook

    @hook.setter
    def hook(self, hook: Hook | None) -> None:
        self._hook, self._is_dead = hook, False

    def fail(self, action: str, *answers: Fate | Refusal, times: int | None = None) -> None:
        """Let calls of one action fail in turn, the last answer again and again, or `times` in all."""
        left = [*answers] * (times or 1)

        def hook(call: S3Call) -> Fate | Refusal | None:
            if call.action != action or not left:
                return None
            return left.pop(0) if len(left) > 1 or times is not None else left[0]

        self.hook = hook

    def actions(self) -> list[str]:
        """S3's names of the calls so far."""
        return [call.action for call in self.calls]

    def counts(self) -> Counter[str]:
        return Counter(self.actions())

    def forget(self) -> None:
        """Begin the calls anew, without a hook."""
        self.calls.clear()
        self.hook = None

    @property
    def objects(self) -> dict[str, bytes]:
        """The bytes of all objects by key, sorted."""
        with self._lock:
            return {key: found[-1].body for key, found in sorted(self.versions.items()) if found[-1].body is not None}

    @property
    def uploads(self) -> dict[str, str]:
        """The keys of the open uploads by their id."""
        with self._lock:
            return {upload_id: upload.key for upload_id, upload in self.open_uploads.items()}

    def metadata(self, key: str) -> Mapping[str, str]:
        with self._lock:
            return self.current(key).metadata

    def put(self, key: str, body: bytes, metadata: Mapping[str, str] | None = None) -> None:
        """Put an object there without a call."""
        with self._lock:
            self.write(key, Version(self.new_id(), body, dict(metadata or {})))

    def remove(self, key: str) -> None:
        """Remove an object without a call, all versions of it."""
        with self._lock:
            del self.versions[key]

    def date(self, key: str, modified: datetime) -> None:
        """Set the time at which an object was written last."""
        with self._lock:
            self.versions[key][-1] = replace(self.versions[key][-1], modified=modified)

    # What follows answers calls; `_Client` decides whether they get here.

    def answered(self, action: str, key: str, parameters: Mapping[str, Any], effect: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        with self._lock:
            if self._is_dead:
                raise Crash
            call = S3Call(len(self.calls) + 1, action, key, parameters)
            self.calls.append(call)
            if self._hook is None:
                return effect()
            hook = self._hook
        fate = hook(call)  # it may make other calls, or wait for other threads
        with self._lock:
            return effect() if fate is None else self._fated(fate, action, effect)

    def _fated(self, fate: Fate | Refusal, action: str, effect: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        if fate is Fate.REPEATED:
            with suppress(ClientError):
                effect()
            answer = effect()
            answer["ResponseMetadata"]["RetryAttempts"] = 1
            return answer
        self._is_dead = self._is_dead or fate in (Fate.CRASH_BEFORE, Fate.CRASH_AFTER)
        if fate in (Fate.CRASH_AFTER, Fate.LOST_AFTER) or (isinstance(fate, Refusal) and fate.after):
            with suppress(ClientError):
                effect()
        match fate:
            case Refusal():
                raise _dated(refusal(fate.status, fate.code, action))
            case Fate.LOST_BEFORE:
                raise ConnectionClosedError(endpoint_url=ENDPOINT)
            case Fate.LOST_AFTER:
                raise ReadTimeoutError(endpoint_url=ENDPOINT)
        raise Crash

    def unseen(self, effect: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Answer a call that is not counted and that no hook sees."""
        with self._lock:
            return effect()

    def new_id(self) -> str:
        return f"v{next(self.ids):08}" if self.versioning == "Enabled" else "null"

    def current(self, key: str, version: str | None = None) -> Version:
        found = self.versions.get(key, [])
        if version is not None:
            return next(one for one in found if one.id == version)
        if not found or found[-1].body is None:
            raise KeyError(key)
        return found[-1]

    def write(self, key: str, version: Version) -> None:
        kept = [] if self.versioning is None else [one for one in self.versions.get(key, []) if one.id != version.id]
        self.versions[key] = [*kept, version]

    def remove_current(self, key: str) -> None:
        found = self.versions.get(key)
        if found and found[-1].body is not None and self.watch is not None:
            self.watch(key, found[-1].body, -1)
        if self.versioning is not None:
            self.write(key, Version(self.new_id(), None))
        elif found:
            del self.versions[key]


def refusal(status: int, code: str, action: str) -> ClientError:
    """Return an error answer as botocore raises it."""
    metadata: Any = {"HTTPStatusCode": status, "HTTPHeaders": {}, "RetryAttempts": 0, "RequestId": "memory"}
    return ClientError({"Error": {"Code": code, "Message": code}, "ResponseMetadata": metadata}, action)


def _dated(error: ClientError) -> ClientError:
    """Give an error answer the date of now, which looks at the clocks ask for."""
    error.response["ResponseMetadata"]["HTTPHeaders"]["date"] = formatdate(usegmt=True)
    return error
