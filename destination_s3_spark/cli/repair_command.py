"""Commands `repair` and `verify`, which go through whole tables without a sync.

`repair` settles and cleans up what dead syncs left behind. `verify` checks tables from the hash links of their chains to the row counts of
their files.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from destination_s3_spark.chain.opening import Leftovers
from destination_s3_spark.chain.territory import Table
from destination_s3_spark.cli.configuration import read_config
from destination_s3_spark.cli.terminal import Progress
from destination_s3_spark.errors import SyncError
from destination_s3_spark.tables.commit.repair import Repair, repair
from destination_s3_spark.tables.factory import TableFactory, table_factory
from destination_s3_spark.tables.found import FoundTables
from destination_s3_spark.tables.publishers.symlink import SymlinkManifest
from destination_s3_spark.tables.verification import Verified, verify
from destination_s3_spark.wording import counted

FILES_AT_ONCE = 16


def repair_tables(config_path: str, name: str | None, namespace: str | None) -> int:
    """Repair the tables of a stream, or all tables, and print one line per table.

    Returns 1 if a table could not be repaired or not be published; the others are still repaired.
    """
    factory = table_factory(read_config(config_path))
    found = factory.find()
    publishers, orphans = factory.publishers(found), factory.orphans()

    def repaired(table: Table) -> tuple[str, bool]:
        done = repair(factory.store, table, publishers[table.stream], orphans, factory.started_at)
        return _done(done), done is None or not done.refused

    return _each("repairing tables", factory, found, repaired, name, namespace)


def verify_tables(config_path: str, name: str | None, namespace: str | None) -> int:
    """Verify the tables of a stream, or all tables. Returns 1 if there is a problem, or if a table could not be verified."""
    factory = table_factory(read_config(config_path))
    with ThreadPoolExecutor(FILES_AT_ONCE, "files") as pool:

        def verified(table: Table) -> tuple[str, bool]:
            result = verify(factory.store, table, pool.map)
            return "\n      ".join(_lines(result)), not result.problems

        return _each("verifying tables", factory, factory.find(), verified, name, namespace)


def _each(
    what: str,
    factory: TableFactory,
    found: FoundTables,
    act: Callable[[Table], tuple[str, bool]],
    name: str | None,
    namespace: str | None,
) -> int:
    """Act on a stream's tables or on all, and print what `act` says of each, and whether all is well with it. Return the exit code."""
    chosen = factory.choose(found, name, namespace)
    unread = found.unread if name is None else ()
    total = len(chosen) + len(unread)
    if not total:
        sys.stdout.write(f"No tables under {factory.place}.\n")
        return 0
    failed = len(unread)
    with Progress(what, len(chosen)) as progress:
        for number, table in enumerate(chosen, start=1):
            try:
                said, well = act(table)
            except SyncError as error:
                said, well = f"failed. {error.message}", False
            failed += not well
            sys.stdout.write(f"[{number}/{total}] {table.stream}: {said}\n")
            sys.stdout.flush()
            progress.advance()
    for number, other in enumerate(unread, start=len(chosen) + 1):
        sys.stdout.write(f"[{number}/{total}] {other.table}: failed. {other.reason}\n")
    return 1 if failed else 0


def _done(repaired: Repair | None) -> str:
    if repaired is None:
        return "nothing to do"
    steps = [*_cleared(repaired.leftovers), *map(_published, repaired.published)]
    if not repaired.leftovers.ended_cleanly:
        steps.append("left open for the next sync")
    steps += ["Delta log removed"] if repaired.withdrawn else []
    refusals = [f"Not published for {name}: {reason}" for name, reason in repaired.refused.items()]  # reasons are whole sentences
    done = ", ".join(steps)
    if done and refusals:
        done += "."
    return " ".join(filter(None, (done, *refusals)))


def _published(publisher: str) -> str:
    return "manifest written" if publisher == SymlinkManifest.name else f"published for {publisher}"


def _cleared(leftovers: Leftovers) -> list[str]:
    settled = [] if leftovers.settlement is None else [f"last commit {leftovers.settlement.value}"]
    uploads = [f"{counted(leftovers.uploads, 'open upload')} dropped"] if leftovers.uploads else []
    scratch = [f"{counted(leftovers.scratch, 'scratch object')} deleted"] if leftovers.scratch else []
    return [*settled, *uploads, *scratch]


def _lines(result: Verified) -> list[str]:
    read = f"{counted(result.blocks, 'block')}, {counted(result.files, 'file')}, {counted(result.rows, 'row')}"
    verdict = counted(len(result.problems), "problem") if result.problems else "all is well"
    return [f"{verdict}. {read}", *result.problems, *(f"({remark})" for remark in result.remarks)]
