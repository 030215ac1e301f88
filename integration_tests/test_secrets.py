"""Neither a secret nor the content of a record is ever printed by any process of a sync. (The runner looks for the secret key.)"""

from __future__ import annotations

from integration_tests.lake import ProcessLake
from unit_tests.lake.shop import complete, record, state
from unit_tests.sync.marked import CATALOG, MARKER, marked_records, said


def test_a_sync_that_goes_well_prints_no_record_and_nothing_of_spark_or_java(moto_lake: ProcessLake) -> None:
    outcome = moto_lake.connector().write(CATALOG, [*marked_records(), state(1), complete()]).expect_success()
    assert MARKER not in said(outcome)
    assert outcome.stderr == ""


def test_a_line_that_cannot_be_read_is_not_printed_by_the_worker_that_reads_it(moto_lake: ProcessLake) -> None:
    unreadable = record(MARKER)  # type: ignore[arg-type]
    outcome = moto_lake.connector().write(CATALOG, [*marked_records(), unreadable, state(1), complete()]).expect_failure("system_error")
    assert MARKER not in said(outcome)
