"""Verification of a table: its whole chain, its files against the store, its rows and keys against the files' footers, and its histories.

It changes nothing. A table that is written to meanwhile is looked at again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from msgspec.structs import replace

from destination_s3_spark.chain.audit import Audit, audit
from destination_s3_spark.chain.files import HISTORY_KINDS, FileEntry, FileKind, parse_token
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.chain.settle import MapCalls, Readable, readable
from destination_s3_spark.chain.state import TableState
from destination_s3_spark.chain.table_store import TableStore
from destination_s3_spark.chain.territory import Table
from destination_s3_spark.errors import Bug, DataError
from destination_s3_spark.formats.bounded import DAMAGE
from destination_s3_spark.formats.file_statistics import KeyRange
from destination_s3_spark.formats.parquet import ParquetOptions
from destination_s3_spark.storage.object_store import ObjectNotFound, ObjectStore
from destination_s3_spark.tables.columns.row_plan import DELETED_AT
from destination_s3_spark.tables.history.faults import history_faults
from destination_s3_spark.tables.runs.footers import read_footer
from destination_s3_spark.tables.runs.keys import BOUND_BYTES
from destination_s3_spark.tables.runs.sorted_file import index_of, keys_in
from destination_s3_spark.wording import counted

MOST_VERIFICATIONS = 3
"""Most times that a table is looked at while another process writes to it."""
NAMED = 10
"""Most objects that a report names for one kind of problem."""
DATA_FOLDERS = ("raw/", "delta/", "state/", "tombstones/")
"""Subfolders of a table's own folder with files that only the chain accounts for."""


@dataclass(frozen=True, slots=True)
class Verified:
    """What was read of a table and what is wrong with it. Both lists of texts are for users; only `problems` call for action."""

    blocks: int
    files: int
    rows: int
    problems: tuple[str, ...]
    remarks: tuple[str, ...]


def verify(bucket: ObjectStore, found: Table, map_files: MapCalls = map) -> Verified:
    """Verify a table.

    Takes one GET per block and per Parquet file, and one LIST per 1,000 objects. Of histories and their tables, keys and times are read.
    Raises TransientError or ConfigError.
    """
    for look in range(MOST_VERIFICATIONS):
        chain = Chain(bucket, found)
        try:
            chain.read()
            chain.catch_up()
        except DataError as error:
            return Verified(0, 0, 0, (error.message,), ())
        audited = audit(chain, bucket)
        result = _verified(TableStore(bucket, chain), chain, audited, map_files)
        if not result.problems or look == MOST_VERIFICATIONS - 1 or chain.successor() is None:
            break
    return result


def _verified(store: ObjectStore, chain: Chain, audited: Audit, map_files: MapCalls) -> Verified:
    seen = readable(chain, store, map_files)
    live = seen.live
    problems = [*audited.problems, *_missing(store, chain, live)]
    remarks = [*audited.remarks, *_remarks(chain, seen)]
    footed = [file for file in live.files if file.key.endswith(ParquetOptions.extension)]
    if not any("is gone" in problem for problem in problems):
        checked = list(map_files(partial(checked_footer, store), footed))
        problems += [one.problem for one in checked if one.problem is not None]
        problems += key_problems([one for one in checked if not live.is_pending(one.file)])
        if not problems:
            problems += _history_problems(store, replace(chain.head, contents=seen.contents), live, checked)
    problems += _row_problems(chain, seen)
    unread = len(live.files) - len(footed)
    if unread:
        remarks.append(f"{unread:,} files have no footer that counts their rows")
    return Verified(audited.blocks, len(live.files) + len(live.adopted), seen.contents.rows, tuple(problems), tuple(remarks))


def _missing(store: ObjectStore, chain: Chain, live: LiveFiles) -> Iterator[str]:
    """Yield the files of the chain that the store does not have as they were written, and the objects that no block names."""
    root, number = chain.head.identity.final_root, chain.head.identity.table_number
    folders = [root, *(f"{chain.table.folder}{folder}" for folder in DATA_FOLDERS)]
    if chain.table.history is not None and live.of(*HISTORY_KINDS):
        folders.append(chain.table.history)
    sizes = {info.key: info.size for folder in folders for info in store.list(folder)}
    named = [*live.files, *live.dropped]
    gone = [file.key for file in named if file.key not in sizes]
    gone += [key for key in live.adopted if key not in sizes]
    changed = [file.key for file in named if sizes.get(file.key, file.bytes) != file.bytes]
    yield from _counted(gone, "is gone", "are gone")
    yield from _counted(changed, "has another size than the one that was written", "have other sizes than those that were written")
    unsettled = chain.head.unsettled
    leaving = () if unsettled is None else (*(file.key for file in unsettled.files), *(unsettled.removed or ()))
    known = {*(file.key for file in named), *live.adopted, *leaving, *chain.head.contents.kept_keys}
    stray = [key for key in sizes.keys() - known if (token := parse_token(key)) is not None and token.table_number == number]
    yield from _counted(sorted(stray), "is not part of the table, but in its folders", "are not part of the table, but in its folders")


def _remarks(chain: Chain, seen: Readable) -> Iterator[str]:
    if seen.left_out is not None:
        yield f"block {seen.left_out} is not finished and does not count: the next sync or `repair` finishes it or takes it back"
    if not chain.head.closed:
        yield "the last sync is running or did not end cleanly"
    kept = chain.head.contents.leaving
    if kept:
        files = counted(sum(len(one.keys) for one in kept), "replaced file")
        yield f"{files} stay for running queries (publish.keep_replaced_minutes), the last until {max(one.until for one in kept):%F %T} UTC"
    raw = sum(file.rows for file in seen.live.settled(FileKind.RAW))
    if raw != seen.contents.came_in:
        yield f"the raw table has {raw:,} of the {seen.contents.came_in:,} records that came in"


class CheckedFooter(NamedTuple):
    """A file, the bounds of its keys if its footer has them, and what its footer says against its entry."""

    file: FileEntry
    keys: KeyRange | None = None
    problem: str | None = None


def checked_footer(store: ObjectStore, file: FileEntry) -> CheckedFooter:
    """Compare the footer of a Parquet file with its entry. One GET for most files."""
    try:
        footer = read_footer(store, file)
        if footer.num_rows != file.rows:
            return CheckedFooter(file, None, f"{file.key} has {footer.num_rows:,} rows, its block says {file.rows:,}")
        if file.sorted_by is None or not footer.num_rows:
            return CheckedFooter(file)
        keys, firsts = keys_in(footer), [group.first for group in index_of(footer)]
        return CheckedFooter(file, keys, order_problem(file, keys, firsts))
    except (ObjectNotFound, DataError):
        return CheckedFooter(file, None, f"{file.key} is gone or has another size than the one that was written")
    except (*DAMAGE, Bug) as error:
        return CheckedFooter(file, None, f"{file.key} cannot be read: {type(error).__name__}")


def order_problem(file: FileEntry, keys: KeyRange, firsts: Sequence[bytes]) -> str | None:
    """Return what is wrong with the bounds of a sorted file's keys and the first keys of its row groups, as its footer has them."""
    if keys.of != file.sorted_by or list(firsts) != sorted(firsts) or firsts[-1][:BOUND_BYTES] > bytes.fromhex(keys.last):
        return f"{file.key} is not sorted by the key that its block says"
    if file.keys not in (None, keys):
        return f"{file.key} has other keys than the hint says. It is only a copy: delete it before the next sync"
    return None


def _row_problems(chain: Chain, seen: Readable) -> Iterator[str]:
    """Yield contradictions between raw, landed and final rows."""
    live, contents = seen.live, seen.contents
    for kind in (FileKind.RAW, FileKind.FINAL, FileKind.DELTA):
        # The offset of a file of a partition gives only its order, because its rows landed between those of other partitions.
        whole = [file for file in live.of(kind) if file.sorted_by is None and not file.in_partition]
        placed = sorted((file.offset, file.rows, file.key) for file in whole if file.offset is not None)
        for (start, rows, first), (following, _, second) in pairwise(placed):
            if start + rows > following:
                yield f"{first} and {second} hold the same rows"
        if placed and placed[-1][0] + placed[-1][1] > contents.next_offset:
            yield f"{placed[-1][2]} holds rows that never landed"
    totals: Counter[str] = Counter()
    for file in live.files:
        totals[file.kind.value] += file.rows
    held = {kind: counters.rows for kind, counters in contents.held.items() if counters.rows}
    dropped = sum(file.rows for file in live.dropped)
    if not dropped and held != {kind: rows for kind, rows in totals.items() if rows}:
        yield f"the chain counts {held} rows by kind of file, its files have {dict(totals)}"
    final = sum(file.rows for file in live.settled(FileKind.FINAL, FileKind.DELTA))
    # Of a table whose rows were all deleted, only tombstones are left.
    rewritten = live.of(FileKind.FINAL, FileKind.DELTA, FileKind.TOMBSTONE)
    merged = any(file.sorted_by is not None or file.offset is None for file in rewritten)
    # Rows that a refresh lacked are in merged files alone.
    if final > contents.came_in or (not merged and final != contents.landed):
        mode = (chain.head.schema or {}).get("mode")
        yield f"{contents.came_in:,} records came into this table (mode {mode}), its files have {final:,} rows"
    mark, rows = contents.history, contents.rows
    valid = sum(file.rows for file in live.of(FileKind.CURRENT) if mark is not None and file.history == mark.number)
    # A row that is softly deleted has no valid version.
    may_be_fewer = DELETED_AT in str(chain.head.schema)
    if mark is not None and (valid > rows or (valid < rows and not may_be_fewer)):
        yield f"history {mark.number} has {valid:,} versions that are valid, the table has {rows:,} rows"


def key_problems(checked: Iterable[CheckedFooter]) -> Iterator[str]:
    """Yield the files of a deduplicated table, their merge states, or the files of valid versions, whose ranges of keys overlap."""
    found = [one for one in checked if one.file.kind in (FileKind.FINAL, FileKind.STATE, FileKind.CURRENT)]
    ranges = sorted(
        (f"{one.file.history or ''} {one.keys.of}", one.keys.first, one.keys.last, one.file.key) for one in found if one.keys is not None
    )
    for one, other in pairwise(ranges):
        # Bounds of long keys are cut, the first down and the last up, and may then overlap although the keys do not.
        is_cut = len(one[2]) >= 2 * BOUND_BYTES or len(other[1]) >= 2 * BOUND_BYTES
        if one[0] == other[0] and one[2] >= other[1] and not is_cut:
            yield f"{one[3]} and {other[3]} have overlapping ranges of keys"


def _history_problems(store: ObjectStore, state: TableState, live: LiveFiles, checked: Iterable[CheckedFooter]) -> Iterator[str]:
    """Yield the faults of histories, whose rows are read beside those of the table."""
    keys = {one.file.key: one.keys for one in checked if one.keys is not None}
    try:
        yield from history_faults(store, state, live, keys)
    except (ObjectNotFound, DataError, *DAMAGE, Bug) as error:
        yield f"the rows of a history cannot be read beside those of its table: {type(error).__name__}"


def _counted(keys: Iterable[str], one: str, many: str) -> Iterator[str]:
    """Yield a line for a few objects, and the number of the others."""
    keys = list(keys)
    yield from (f"{key} {one}" for key in keys[:NAMED])
    if len(keys) > NAMED:
        yield f"{len(keys) - NAMED:,} more objects {many}"
