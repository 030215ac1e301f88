"""Blocks of a slice: what ends them, and which records and hashes each checkpoint has in them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from destination_s3_spark.decoding.kernel_typer import record_typer
from destination_s3_spark.decoding.plan import Values
from destination_s3_spark.errors import TransientError
from destination_s3_spark.schema.airbyte_type import Array, Field, Object, Scalar
from destination_s3_spark.tables.landing.land import MOST_VALUES, SMALL_CHECKPOINT_BYTES, blocks, leaves, shares
from destination_s3_spark.tables.landing.slices import read_blocks
from destination_s3_spark.tables.stored.conversion import TYPED_BYTES
from unit_tests.cases import each
from unit_tests.decoding.conftest import line, plan_of
from unit_tests.tables.landing.spooled import START, slice_of

FIELDS = [Field("id", "id", Scalar.INTEGER), Field("n", "n", Scalar.NUMBER), Field("s", "s", Scalar.STRING)]
DATA = [
    '{"id":1,"n":2.5,"s":"x"}',
    '{"id": "7", "n": NaN}',
    '{"s":"\\ud800","id":[1]}',
    "{}",
    '{"id":1,"id":2}',
    '{"n":"abc","s":{"a": 1}}',
]


@each("values", Values)
@each("every", [1, 7, 500])
def test_small_checkpoints_share_blocks_and_keep_their_records_and_hashes(tmp_path: Path, every: int, values: Values) -> None:
    chosen = random.Random(every)
    lines = [line(chosen.choice(DATA).replace("x", f"row {row}")).encode() + b"\n" for row in range(3_000)]
    plan = plan_of([] if values is Values.RECORD else FIELDS)
    piece = slice_of(tmp_path, lines, every)
    typer = record_typer(plan)
    found, given = [], list(blocks(piece, leaves(plan.table_schema)))
    for block in given:
        found += list(shares(block, typer.type_block(block.lines), piece.boundaries))

    assert b"".join(block.lines for block in given) == b"".join(lines)
    assert [block.start for block in given] == [START, *(block.end for block in given[:-1])]
    assert len(given) <= (piece.end - piece.start) // SMALL_CHECKPOINT_BYTES + 2
    totals: dict[int, list[int]] = {}
    stops = sorted({*piece.boundaries, piece.end})
    for share in found:
        total = totals.setdefault(next(stop for stop in stops if share.end <= stop), [0, 0])
        total[0] += share.records
        total[1] = (total[1] + share.multiset) % 2**128
    for number, stop in enumerate(stops):
        alone = typer.type_block(b"".join(lines[number * every : (number + 1) * every]))
        assert totals[stop] == [alone.records, alone.multiset]


@each("columns", [1, 51, 3_000, 2 * MOST_VALUES])
def test_the_lines_of_a_block_are_bounded_by_the_columns_of_the_table(tmp_path: Path, columns: int) -> None:
    lines = [line("{}").encode() + b"\n"] * 90_000
    piece = slice_of(tmp_path, lines[:200] if columns > MOST_VALUES else lines, len(lines))
    given = list(blocks(piece, columns))
    assert sum(block.end - block.start for block in given) == piece.end - piece.start
    counts = [block.lines.count(b"\n") for block in given]
    assert max(counts) <= max(1, MOST_VALUES // columns)
    assert max(len(block.lines) for block in given) <= TYPED_BYTES + len(lines[0])
    assert all(block.lines.endswith(b"\n") for block in given)


def test_columns_are_counted_at_all_depths() -> None:
    inner = Object(
        (Field("a", "a", Scalar.STRING), Field("b", "b", Array(Object((Field("c", "c", Scalar.DATE), Field("d", "d", Scalar.DATE))))))
    )
    own = leaves(plan_of([]).table_schema)
    assert leaves(plan_of([Field("o", "o", inner), *FIELDS]).table_schema) == own + 6


def test_a_file_that_has_become_shorter_ends_every_reader(tmp_path: Path) -> None:
    lines = [line('{"id":1}').encode() + b"\n"] * 100
    piece = slice_of(tmp_path, lines, 10, cuts=1)
    path = Path(piece.extents[0].path)
    for size in (0, 1, len(lines[0]) * 50, len(lines[0]) * 50 + 5, piece.end - piece.start - 1):
        path.write_bytes(b"".join(lines)[:size])
        with pytest.raises(TransientError, match="has become shorter"):
            list(blocks(piece, 3))
        with pytest.raises(TransientError, match="has become shorter"):
            list(read_blocks(piece.extents, 1_000))
