from __future__ import annotations

from destination_s3_spark.chain.events import Close, OpenEpoch
from destination_s3_spark.cli.inspection.commits import changed_values
from unit_tests.cli.inspection.hand_made_chain import NULLED, SCHEMA, SEED, START, HandMadeChain, add_data, nulled


def test_changed_values_are_summed_by_sync_and_field() -> None:
    chain = HandMadeChain().append(SEED).append(SCHEMA).append(add_data(0, 6, nulled(3, "lines.[].quantity"), nulled(1, "id")))
    chain.append(add_data(6, 4, nulled(4, "id")), settled=2).append(Close(), settled=3)
    chain.append(OpenEpoch(8, 3, START), settled=3).append(add_data(10, 8, nulled(2)), settled=3)

    found = changed_values(chain.blocks)

    assert [(row.sync_id, row.field, row.change, row.values, row.rows, row.share) for row in found] == [
        (7, "id", "NULLED", 5, 10, 0.5),
        (7, "lines.[].quantity", "NULLED", 3, 10, 0.3),
        (8, None, "NULLED", 2, 8, 0.25),
    ]
    assert {row.reason for row in found} == {NULLED}
