"""Where tables live: the id of each table's internal folder, and a root for each stream of a catalog that no other table lies in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from destination_s3_spark.errors import ConfigError
from destination_s3_spark.storage.names import namespace_folder, safe_characters, safe_segments, stream_folder, stream_hash
from destination_s3_spark.storage.paths import PathTemplate
from destination_s3_spark.stream_id import StreamId

INTERNAL_FOLDER = "airbyte_internal"
CHANGES_FOLDER = "airbyte_changes"

_MAX_TABLE_ID = 200
_LOOKS_HASHED = re.compile(r"_[0-9a-f]{8}$")
_NEUTRAL = StreamId("neutral-namespace", "neutral-stream")


def raw_table_name(stream: StreamId) -> str:
    """Destinations V2's name of a raw table: `{namespace}_raw__stream_{name}`, with one more `_` than the longest run in the two."""
    namespace, name = stream.namespace or "", stream.name
    longest = max((len(run) for run in re.findall("_+", namespace + name)), default=0)
    return f"{namespace}_raw{'_' * (max(longest, 1) + 1)}stream_{name}"


def table_id(stream: StreamId) -> str:
    """The table's folder under `airbyte_internal/`: one safe segment of at most 209 characters, different for different streams.

    It is the raw name, or, where that had to be changed, the changed name and the stream's hash. A name that only looks as if it ended
    in a hash gets one too, so that it cannot meet another stream's.
    """
    raw = raw_table_name(stream)
    safe = safe_segments(safe_characters(raw).replace("/", "_"))[:_MAX_TABLE_ID]
    return safe if safe == raw and not _LOOKS_HASHED.search(raw) else f"{safe}_{stream_hash(stream)}"


def internal_root(template: PathTemplate, stream: StreamId) -> str:
    """The folder of the table's chain, raw files and deltas, ending in "/"."""
    return f"{template.base}{INTERNAL_FOLDER}/{table_id(stream)}/"


def changes_root(template: PathTemplate, stream: StreamId) -> str:
    """The folder of the table's change log, ending in "/": `airbyte_changes/<namespace>/<stream>/`, different for different streams.

    A name that had to be changed, or only looks so, gets the stream's hash. Without a namespace there is no folder for it.
    """
    namespace, name = stream.namespace or "", stream.name
    folders = [safe_segments(safe_characters(part).replace("/", "_"))[:_MAX_TABLE_ID] for part in (namespace, name)]
    if folders != [namespace, name] or not name or _LOOKS_HASHED.search(name):
        folders[1] = f"{folders[1]}_{stream_hash(stream)}"
    return "/".join([f"{template.base}{CHANGES_FOLDER}", *filter(None, folders), ""])


def resolve_roots(
    streams: Iterable[StreamId], template: PathTemplate, recorded: Mapping[StreamId, str] | None = None
) -> dict[StreamId, str]:
    """The final root of each stream.

    `recorded` are roots from the Seeds of tables that exist, of any catalog: they stay. Another stream gets its template's root unless
    that is, holds or lies in the root of another stream or a folder of the connector; then one segment gets the stream's hash.
    Streams the template does not tell apart (no `${STREAM_NAME}`) share a root, as in destination-s3. The order of `streams` is
    without effect. Raises ConfigError where the template itself names a folder of the connector.
    """
    recorded, streams = recorded or {}, set(streams)
    own_folders = (f"{template.base}{INTERNAL_FOLDER}/", f"{template.base}{CHANGES_FOLDER}/")
    if (shared := template.final_root(_NEUTRAL)).startswith(own_folders):
        raise ConfigError(
            f"s3_path_format puts tables into '{shared}', but this connector keeps '{INTERNAL_FOLDER}' and '{CHANGES_FOLDER}' "
            "for itself. Choose another folder."
        )
    taken = _Taken(own_folders)
    for stream, root in recorded.items():
        taken.add(root, template.identity(stream))
    roots = {stream: recorded[stream] for stream in streams if stream in recorded}
    for stream in sorted(streams - roots.keys(), key=lambda stream: _precedence(stream, template)):
        roots[stream] = _free_root(stream, template, taken)
        taken.add(roots[stream], template.identity(stream))
    return roots


def overlaps(roots: Mapping[StreamId, str], template: PathTemplate) -> dict[StreamId, str]:
    """For each stream whose root equals, holds or lies in another one: whose, for a message. Such tables can only be appended to."""
    owners: dict[str, list[str]] = {f"{template.base}{name}/": [f"the folder '{name}'"] for name in (INTERNAL_FOLDER, CHANGES_FOLDER)}
    for stream, root in roots.items():
        owners.setdefault(root, []).append(f"stream '{stream}'")
    inside: dict[str, str] = {}
    for root in owners:
        for outer in _ancestors(root):
            inside.setdefault(outer, root)
    found: dict[StreamId, str] = {}
    for stream, root in roots.items():
        others = [owner for owner in owners[root] if owner != f"stream '{stream}'"]
        around = next((owners[outer] for outer in _ancestors(root) if outer in owners), [])
        within = owners[inside[root]] if root in inside else []
        if others or around or within:
            found[stream] = (others or around or within)[0]
    return found


class _Taken:
    """Folders in use: which, by whom (the identity that may share it), and all folders around them."""

    def __init__(self, own_folders: Iterable[str]) -> None:
        self._owners: dict[str, tuple[str, ...] | None] = dict.fromkeys(own_folders)
        self._around: dict[str, str] = {}

    def add(self, root: str, identity: tuple[str, ...]) -> None:
        self._owners[root] = identity
        for outer in _ancestors(root):
            self._around.setdefault(outer, root)

    def conflict(self, root: str, identity: tuple[str, ...]) -> int | None:
        """The depth (segments) of the shallower of the two roots that get in each other's way, or None."""
        for folder in (root, *_ancestors(root)):
            if folder in self._owners and not (folder == root and self._owners[folder] == identity):
                return folder.count("/")
        return root.count("/") if root in self._around else None


def _free_root(stream: StreamId, template: PathTemplate, taken: _Taken) -> str:
    root, identity = template.final_root(stream), template.identity(stream)
    if not identity:
        return root
    # Folders of the bucket path are never renamed: permission may end there. `overlaps` reports what is left.
    while (depth := taken.conflict(root, identity)) is not None and depth > template.base.count("/"):
        segments = root.split("/")
        segments[depth - 1] += f"_{stream_hash(stream)}"
        root = "/".join(segments)
    return root


def _precedence(stream: StreamId, template: PathTemplate) -> tuple[int, bool, str, str]:
    """Deeper roots first, so that of `a/` and `a/b/`, `a/c/`, … only one moves; then names that are their own folder; then by name."""
    namespace = stream.namespace or ""
    changed = namespace_folder(namespace) != namespace or stream_folder(stream.name) != stream.name
    return -template.final_root(stream).count("/"), changed, namespace, stream.name


def _ancestors(root: str) -> Iterator[str]:
    """The folders around a root, nearest first, the bucket ("") last."""
    folder = root
    while folder:
        folder = folder[: folder.rstrip("/").rfind("/") + 1]
        yield folder
