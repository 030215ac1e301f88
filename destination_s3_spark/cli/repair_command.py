"""Command `repair`: settles and cleans up what dead syncs left behind, without a sync."""

from __future__ import annotations

import sys
from pathlib import Path

from destination_s3_spark.chain.opening import Leftovers
from destination_s3_spark.cli.configuration import read_config
from destination_s3_spark.cli.progress import Progress
from destination_s3_spark.errors import SyncError
from destination_s3_spark.tables.commit.repair import Repair, repair
from destination_s3_spark.tables.factory import table_factory
from destination_s3_spark.tables.publishers.symlink import SymlinkManifest
from destination_s3_spark.wording import counted


def run(config_path: str, name: str | None, namespace: str | None) -> int:
    """Repair the tables of a stream, or all tables, and print one line per table.

    Returns 1 if a table could not be repaired or not be published; the others are still repaired.
    """
    factory = table_factory(read_config(Path(config_path)))
    found = factory.find()
    chosen = found.tables if name is None else factory.choose(found, name, namespace)
    unread = found.unread if name is None else ()
    total = len(chosen) + len(unread)
    if not total:
        sys.stdout.write(f"No tables under {factory.place}.\n")
        return 0
    publishers, orphans = factory.publishers(found), factory.orphans()
    failed = len(unread)
    with Progress("repairing tables", len(chosen)) as progress:
        for number, table in enumerate(chosen, start=1):
            try:
                repaired = repair(factory.store, table.table, publishers[table.stream], orphans, factory.started_at)
                said = _done(repaired)
                failed += 1 if repaired is not None and repaired.refused else 0
            except SyncError as error:
                said = f"failed. {error.message}"
                failed += 1
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
    steps += [f"not published for {name}: {reason}" for name, reason in repaired.refused.items()]
    return ", ".join(steps)


def _published(publisher: str) -> str:
    return "manifest written" if publisher == SymlinkManifest.name else f"published for {publisher}"


def _cleared(leftovers: Leftovers) -> list[str]:
    settled = [] if leftovers.settlement is None else [f"last commit {leftovers.settlement.value}"]
    uploads = [f"{counted(leftovers.uploads, 'open upload')} dropped"] if leftovers.uploads else []
    scratch = [f"{counted(leftovers.scratch, 'scratch object')} deleted"] if leftovers.scratch else []
    return [*settled, *uploads, *scratch]
