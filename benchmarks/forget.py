"""How much of a deduplicated table `forget` reads to find rows by their keys, and how much it then writes anew.

A table of invoices is built through the connector. Keys drawn at random are looked for as the command does, in this process, which counts
the bytes that it gets from the store.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

import numpy as np

from benchmarks import invoices, sync_run, target
from benchmarks.invoices import Invoices
from benchmarks.machine import describe_machine
from destination_s3_spark.config.config import Config
from destination_s3_spark.schema.column_rules import ColumnRules, Treatment
from destination_s3_spark.storage.configured import s3_settings
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.tables.factory import TableFactory
from destination_s3_spark.tables.forgetting.course import Forgetting
from destination_s3_spark.tables.forgetting.possible import recorded_table
from destination_s3_spark.tables.forgetting.wanted import Subject, wanted_rows
from destination_s3_spark.tables.updates.resources import Resources, TaskResources
from destination_s3_spark.tables.updates.steps import Update

MB = 1e6
BUCKET = "forget"


def main() -> None:
    """Build the table once, and look for so many keys several times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--keys", type=int, default=10)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    print(describe_machine())
    random = np.random.default_rng(args.seed)
    with tempfile.TemporaryDirectory() as name, target.endpoint(None, BUCKET, Path(name)) as address:
        given = target.config(address, BUCKET, "table", raw_tables="off")
        command = sync_run.write_command(given, invoices.catalog("append_dedup", 1), Path(name))
        rows = Invoices(random.permutation(args.rows), seed=args.seed)
        built = sync_run.run(command, chain(rows.chunks(), [invoices.ending(1)]), Path(name) / "errors.log")
        print(f"built in {built.seconds:.0f} s")
        for _ in range(args.runs):
            _look_for(Config.parse(given), random.integers(0, args.rows, args.keys).tolist())


def _look_for(config: Config, keys: list[int]) -> None:
    settings = s3_settings(config)
    factory = TableFactory(config, S3Store(settings), datetime.now(UTC))
    (found,) = factory.find().tables
    table = recorded_table(factory.of_found(found, ()))
    subjects = [Subject.parse(b'{"id":%d}' % key, "number 1") for key in keys]
    wanted = wanted_rows(table, subjects, Treatment((), ColumnRules().secret))
    forgetting = Forgetting(table, wanted, Resources(TaskResources(settings, 2**26), 2, None))
    with _counting() as read:
        _drive(forgetting.searched())
    size, rewritten = (sum(file.bytes for file in files) for files in (forgetting.live.files, forgetting.files))
    print(
        f"{len(keys)} keys of a table of {size / MB:.0f} MB in {len(forgetting.live.files)} files: {sum(read) / MB:.1f} MB read, "
        f"{sum(read) / size:.1%}; {len(forgetting.files)} files to write anew, {rewritten / size:.1%}"
    )


def _drive(steps: Update) -> None:
    """Do the work of an update in this process."""
    with suppress(StopIteration):
        work = next(steps)
        while True:
            work = steps.send([work.function(task) for task in work.tasks])


@contextmanager
def _counting() -> Iterator[list[int]]:
    """Count the bytes of all ranges that are got from the store."""
    sizes: list[int] = []
    get_range = S3Store.get_range

    def counted(store: S3Store, key: str, start: int, end: int, size: int) -> bytes:
        sizes.append(end - start)
        return get_range(store, key, start, end, size)

    S3Store.get_range = counted  # type: ignore[method-assign,assignment]
    try:
        yield sizes
    finally:
        S3Store.get_range = get_range  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
