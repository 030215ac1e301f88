"""Locations of tables: the id of each table's internal folder, and a separate root for each stream of a catalog."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from destination_s3_spark.errors import ConfigError
from destination_s3_spark.storage.paths import PathTemplate, namespace_folder, safe_characters, safe_segments, stream_folder, stream_hash
from destination_s3_spark.stream_id import StreamId

INTERNAL_FOLDER = "airbyte_internal"
CHANGES_FOLDER = "airbyte_changes"
HISTORY_FOLDER = "airbyte_history"
ICEBERG_FOLDER = "_iceberg/"
"""Folder of Iceberg's metadata in that of a table, and in that of its histories. Readers of folders pass over names with an underscore."""
PUBLISHED_FOLDERS = ("_delta_log/", ICEBERG_FOLDER, "_symlink_format_manifest/")
"""Subfolders that publishers write, in a table's final root and in the folder of its histories."""

_MAX_TABLE_ID = 200
_LOOKS_HASHED = re.compile(r"_[0-9a-f]{8}$")
_NEUTRAL = StreamId("neutral-namespace", "neutral-stream")


def raw_table_name(stream: StreamId) -> str:
    """Return Destinations V2's raw table name: `{namespace}_raw__stream_{name}`, with one more `_` than the longest run in the two."""
    namespace, name = stream.namespace or "", stream.name
    longest = max((len(run) for run in re.findall("_+", namespace + name)), default=0)
    return f"{namespace}_raw{'_' * (max(longest, 1) + 1)}stream_{name}"


def table_id(stream: StreamId) -> str:
    """Return the table's folder name under `airbyte_internal/`: one safe segment, at most 209 characters, unique per stream.

    The id is the raw table name. If that contains unsafe characters, the id is the safe form followed by the stream's hash. A name that
    merely looks as if it ended in a hash gets the hash too, so that it cannot collide with another stream's id.
    """
    raw = raw_table_name(stream)
    safe = safe_segments(safe_characters(raw).replace("/", "_"))[:_MAX_TABLE_ID]
    return safe if safe == raw and not _LOOKS_HASHED.search(raw) else f"{safe}_{stream_hash(stream)}"


def internal_root(template: PathTemplate, stream: StreamId) -> str:
    """Return the folder of the table's chain, raw files and deltas, ending in "/"."""
    return f"{template.base}{INTERNAL_FOLDER}/{table_id(stream)}/"


def changes_root(template: PathTemplate, stream: StreamId) -> str:
    """Return the folder of the table's change log, ending in "/": `airbyte_changes/<namespace>/<stream>/`, unique per stream."""
    return _own_root(template, stream, CHANGES_FOLDER)


def changes_roots_of(template: PathTemplate, name: str, folders: Callable[[str], Iterable[str]]) -> Iterator[str]:
    """Yield the folders that may have the change log of a stream of this name, in any namespace or in none, or of another one.

    `folders` gives those directly in a folder, each ending in "/". A hash in a folder's name does not count.
    """

    def stem(root: str) -> str:
        return _LOOKS_HASHED.sub("", root.rstrip("/").rpartition("/")[2])

    wanted = stem(changes_root(template, StreamId(None, name)))
    for top in folders(f"{template.base}{CHANGES_FOLDER}/"):
        yield from (root for root in (top, *folders(top)) if stem(root) == wanted)


def history_root(template: PathTemplate, stream: StreamId) -> str:
    """Return the folder of the table's histories, ending in "/": `airbyte_history/<namespace>/<stream>/`, unique per stream."""
    return _own_root(template, stream, HISTORY_FOLDER)


def _own_root(template: PathTemplate, stream: StreamId, top: str) -> str:
    """Return a folder of the table below a top folder of the connector.

    A name that had to be changed, or that looks as if it ended in a hash, gets the stream's hash, and so does that of a folder in which the
    histories of another stream are published. Without a namespace its folder is left out.
    """
    namespace, name = stream.namespace or "", stream.name
    folders = [safe_segments(safe_characters(part).replace("/", "_"))[:_MAX_TABLE_ID] for part in (namespace, name)]
    is_taken = top == HISTORY_FOLDER and f"{name}/" in PUBLISHED_FOLDERS
    if folders != [namespace, name] or not name or is_taken or _LOOKS_HASHED.search(name):
        folders[1] = f"{folders[1]}_{stream_hash(stream)}"
    return "/".join([f"{template.base}{top}", *filter(None, folders), ""])


def require_folders(template: PathTemplate) -> None:
    """Raise ConfigError if the template gives tables a folder of the connector, or keys that are too long."""
    if (shared := template.final_root(_NEUTRAL)).startswith(_own_folders(template)):
        raise ConfigError(
            f"s3_path_format puts tables into '{shared}', but this connector keeps '{INTERNAL_FOLDER}', '{CHANGES_FOLDER}' and "
            f"'{HISTORY_FOLDER}' for itself. Choose another folder."
        )


def resolve_roots(
    streams: Iterable[StreamId], template: PathTemplate, recorded: Mapping[StreamId, str] | None = None
) -> dict[StreamId, str]:
    """Return the final root of each stream.

    `recorded` holds the roots in the Seeds of existing tables of any catalog. These roots never change. Every other stream gets its
    template's root unless that root equals, contains or lies in another stream's root or a folder of the connector. In that case one
    segment of the root gets the stream's hash. Streams that the template does not distinguish (no `${STREAM_NAME}`) share a root, as in
    destination-s3. The order of `streams` has no effect.
    """
    recorded, streams = recorded or {}, set(streams)
    taken = _Taken(_own_folders(template))
    for stream, root in recorded.items():
        taken.add(root, template.identity(stream))
    roots = {stream: recorded[stream] for stream in streams if stream in recorded}
    for stream in sorted(streams - roots.keys(), key=lambda stream: _precedence(stream, template)):
        roots[stream] = _free_root(stream, template, taken)
        taken.add(roots[stream], template.identity(stream))
    return roots


def root_flaw(root: str, stream: StreamId, template: PathTemplate, roots: Callable[[], Mapping[StreamId, str]]) -> str | None:
    """Return why a recorded root cannot be the stream's, or None. `roots` gives those of all tables, asked for only if need be.

    A root that the template does not give is legitimate: a table keeps its root when the templates change. But it must be below the
    constant part of the bucket path, and not in a folder that the template gives to another table alone.
    """
    if not root.startswith(template.base) or root.startswith(_own_folders(template)):
        return f"its final root '{root}' is not in the bucket path, or in a folder of the connector"
    if _is_usual(root, stream, template):
        return None
    for other, theirs in roots().items():
        is_alone = template.identity(other)[-2:-1] == ("name",) and _is_usual(theirs, other, template)
        if other != stream and is_alone and root.startswith(theirs):
            return f"its final root '{root}' is in the folder of stream '{other}' (if s3_path_format was changed, change it back)"
    return None


def _is_usual(root: str, stream: StreamId, template: PathTemplate) -> bool:
    """Tell whether the template gives this root to the stream, alone or beside others, which adds the stream's hash to a segment."""
    suffix = f"_{stream_hash(stream)}"
    usual, found = template.final_root(stream).split("/"), root.split("/")
    return len(usual) == len(found) and all(
        segment == plain or segment.removeprefix(plain).replace(suffix, "") == "" for segment, plain in zip(found, usual, strict=True)
    )


def _own_folders(template: PathTemplate) -> tuple[str, ...]:
    return tuple(f"{template.base}{folder}/" for folder in (INTERNAL_FOLDER, CHANGES_FOLDER, HISTORY_FOLDER))


def overlaps(roots: Mapping[StreamId, str], template: PathTemplate) -> dict[StreamId, str]:
    """Map each stream whose root overlaps another root to the name of its owner, for a message. Such tables can only be appended to."""
    owners: dict[str, list[str]] = {
        f"{template.base}{name}/": [f"the folder '{name}'"] for name in (INTERNAL_FOLDER, CHANGES_FOLDER, HISTORY_FOLDER)
    }
    for stream, root in roots.items():
        owners.setdefault(root, []).append(f"stream '{stream}'")
    inside: dict[str, str] = {}
    for root in owners:
        for outer in _ancestors(root):
            inside.setdefault(outer, root)
    found: dict[StreamId, str] = {}
    for stream, root in roots.items():
        folders = (root, *_ancestors(root), *([inside[root]] if root in inside else []))
        others = (owner for folder in folders for owner in owners.get(folder, ()) if owner != f"stream '{stream}'")
        if (other := next(others, None)) is not None:
            found[stream] = other
    return found


class _Taken:
    """Folders in use, each with the identity that may share it, and all folders around them."""

    def __init__(self, own_folders: Iterable[str]) -> None:
        self._owners: dict[str, tuple[str, ...] | None] = dict.fromkeys(own_folders)
        self._around: dict[str, str] = {}

    def add(self, root: str, identity: tuple[str, ...]) -> None:
        self._owners[root] = identity
        for outer in _ancestors(root):
            self._around.setdefault(outer, root)

    def conflict(self, root: str, identity: tuple[str, ...]) -> int | None:
        """Return the depth in segments of the shallower of two conflicting roots, or None without a conflict."""
        for folder in (root, *_ancestors(root)):
            if folder in self._owners and not (folder == root and self._owners[folder] == identity):
                return folder.count("/")
        return root.count("/") if root in self._around else None


def _free_root(stream: StreamId, template: PathTemplate, taken: _Taken) -> str:
    root, identity = template.final_root(stream), template.identity(stream)
    if not identity:
        return root
    # Folders of the bucket path are never renamed, because permissions may end there. `overlaps` reports remaining conflicts.
    while (depth := taken.conflict(root, identity)) is not None and depth > template.base.count("/"):
        segments = root.split("/")
        segments[depth - 1] += f"_{stream_hash(stream)}"
        root = "/".join(segments)
    return root


def _precedence(stream: StreamId, template: PathTemplate) -> tuple[int, bool, str, str]:
    """Return the sort key of a stream: deeper roots first, then names that need no change, then by name.

    With deeper roots first, only `a/` moves when `a/b/` and `a/c/` exist too.
    """
    namespace = stream.namespace or ""
    changed = namespace_folder(namespace) != namespace or stream_folder(stream.name) != stream.name
    return -template.final_root(stream).count("/"), changed, namespace, stream.name


def _ancestors(root: str) -> Iterator[str]:
    """Yield the folders around a root, innermost first and the bucket ("") last."""
    folder = root
    while folder:
        folder = folder[: folder.rstrip("/").rfind("/") + 1]
        yield folder
