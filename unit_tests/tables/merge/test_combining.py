from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.errors import Bug
from destination_s3_spark.schema.airbyte_type import Field, Scalar
from destination_s3_spark.schema.arrow import META_FIELDS, arrow_field
from destination_s3_spark.storage.settings import AccessKey, S3Settings
from destination_s3_spark.tables.merge.scratch_runs import PORTIONS, CombinedRun, CombineTask, combine_runs, combined
from destination_s3_spark.tables.runs.keys import CdcDeletion, KeySpec, encode_key, key_range, lower
from destination_s3_spark.tables.runs.sorted_file import ARROW_BYTES, RUN_OPTIONS, MergeForm
from destination_s3_spark.tables.updates.resources import TaskResources

ID = Field("id", "id", Scalar.INTEGER)
SPEC = KeySpec((ID,), None, None, CdcDeletion.HARD)
TYPED = pa.schema([*META_FIELDS, arrow_field(ID)])
FORM = MergeForm(TYPED, SPEC)
S3 = S3Settings("lake", "us-east-1", "http://127.0.0.1:1", AccessKey("key", "secret"))
FITTING = 10
BUDGET = FITTING * PORTIONS * RUN_OPTIONS.row_group_bytes
"""For so many runs of many row groups."""
LARGE = 64 * 2**20


def run(first: int, last: int, name: str = "", size: int = LARGE, rows: int = 1_000_000) -> FileEntry:
    keys: Any = encode_key([pa.array([first, last], pa.int64())], [Scalar.INTEGER]).to_pylist()
    return FileEntry(FileKind.DELTA, name or f"{first}-{last}", rows, size, keys=key_range(keys[0], keys[1], SPEC.fingerprint), offset=5)


def finished(runs: Sequence[FileEntry], lost: int = 0) -> tuple[tuple[Sequence[FileEntry], list[str]], list[list[CombineTask]]]:
    """Let the steps come to their end with workers that halve the rows; `lost` of them are not read."""
    by_key = {file.key: file for file in runs}
    numbers = count()
    steps = combined(runs, FORM, lambda: f"scratch/{next(numbers)}/", TaskResources(S3, BUDGET))
    jobs: list[list[CombineTask]] = []
    done: Any = None
    while True:
        try:
            work = steps.send(done)
        except StopIteration as stop:
            return stop.value, jobs
        assert work.function is combine_runs
        jobs.append(list(work.tasks))
        done = []
        for task in work.tasks:
            files = [by_key[source.key] for source in task.sources]
            assert [(source.kind, source.size, source.offset, source.first) for source in task.sources] == [
                (FileKind.DELTA, file.bytes, file.offset or 0, lower(file.keys)) for file in files if file.keys is not None
            ]
            rows = sum(file.rows for file in files)
            keys = files[0].keys
            made = FileEntry(FileKind.DELTA, task.keys[0], rows // 2, sum(file.bytes for file in files) // 2, keys=keys)
            by_key[made.key] = made
            done.append(CombinedRun((made,), rows - lost))


def test_few_runs_stay_as_they_are() -> None:
    runs = [run(0, 100, f"{number}") for number in range(FITTING)]

    assert finished(runs) == ((runs, []), [])


def test_as_many_runs_are_combined_as_a_task_has_to_be_spared() -> None:
    (few, scratch), [tasks] = finished([run(0, 100, f"{number}") for number in range(5 * FITTING)])

    assert [len(task.sources) for task in tasks] == [FITTING] * 4 + [FITTING // 2]
    assert scratch == [f"scratch/{number}/0.parquet" for number in range(5)]
    assert len(few) == FITTING


def test_very_many_runs_take_several_rounds_and_every_scratch_object_is_known() -> None:
    (few, scratch), jobs = finished([run(0, 100, f"{number}") for number in range(FITTING**2 + FITTING)])

    assert [[len(task.sources) for task in tasks] for tasks in jobs] == [[FITTING] * (FITTING + 1), [2]]
    assert len(few) == FITTING
    assert len(scratch) == FITTING + 2


def test_runs_beside_each_other_stay_as_they_are() -> None:
    runs = [run(10 * number, 10 * number + 9) for number in range(20 * FITTING)]

    assert finished(runs) == ((runs, []), [])


def test_small_runs_weigh_no_more_than_they_have() -> None:
    size = RUN_OPTIONS.row_group_bytes // ARROW_BYTES // 20
    runs = [run(0, 100, f"{number}", size) for number in range(20 * FITTING)]

    assert finished(runs)[1] == []
    assert len(finished([*runs, *(run(0, 100, f"more {number}", size) for number in range(FITTING))])[1]) == 1


def test_huge_rows_are_taken_two_runs_at_a_time_and_one_run_is_the_least() -> None:
    huge = 10 * BUDGET
    (few, _), jobs = finished([run(0, 100, f"{number}", huge, rows=1) for number in range(4)])

    assert [[len(task.sources) for task in tasks] for tasks in jobs] == [[2, 2], [2]]
    assert len(few) == 1


def test_rows_that_were_not_read_end_the_merge() -> None:
    with pytest.raises(Bug, match="Nothing was changed"):
        finished([run(0, 100, f"{number}") for number in range(2 * FITTING)], lost=1)
