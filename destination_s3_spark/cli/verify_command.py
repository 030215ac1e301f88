"""Command `verify`: checks whole tables, from the hash links of their chains to the row counts of their files."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from destination_s3_spark.cli.configuration import read_config
from destination_s3_spark.cli.progress import Progress
from destination_s3_spark.errors import SyncError
from destination_s3_spark.tables.factory import table_factory
from destination_s3_spark.tables.verification import Verified, verify
from destination_s3_spark.wording import counted

FILES_AT_ONCE = 16


def run(config_path: str, name: str | None, namespace: str | None) -> int:
    """Verify the tables of a stream, or all tables. Returns 1 if there is a problem, or if a table could not be verified."""
    factory = table_factory(read_config(Path(config_path)))
    found = factory.find()
    chosen = found.tables if name is None else factory.choose(found, name, namespace)
    unread = found.unread if name is None else ()
    total = len(chosen) + len(unread)
    if not total:
        sys.stdout.write(f"No tables under {factory.place}.\n")
        return 0
    failed = len(unread)
    with ThreadPoolExecutor(FILES_AT_ONCE, "files") as pool, Progress("verifying tables", len(chosen)) as progress:
        for number, table in enumerate(chosen, start=1):
            try:
                result = verify(factory.store, table, pool.map)
                lines = _lines(result)
                failed += 1 if result.problems else 0
            except SyncError as error:
                lines = [f"failed. {error.message}"]
                failed += 1
            sys.stdout.write(f"[{number}/{total}] {table.stream}: " + "\n      ".join(lines) + "\n")
            sys.stdout.flush()
            progress.advance()
    for number, other in enumerate(unread, start=len(chosen) + 1):
        sys.stdout.write(f"[{number}/{total}] {other.table}: failed. {other.reason}\n")
    return 1 if failed else 0


def _lines(result: Verified) -> list[str]:
    read = f"{counted(result.blocks, 'block')}, {counted(result.files, 'file')}, {counted(result.rows, 'row')}"
    verdict = counted(len(result.problems), "problem") if result.problems else "all is well"
    return [f"{verdict}. {read}", *result.problems, *(f"({remark})" for remark in result.remarks)]
