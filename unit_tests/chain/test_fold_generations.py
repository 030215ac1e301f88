"""The rules for merges, for generations that wait beside the table, and for what counts while they do."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from destination_s3_spark.chain.events import Close, Event, OpenEpoch, Void
from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.chain.fold import InvalidChain, Rule
from destination_s3_spark.chain.state import Counters, Pending
from unit_tests.cases import each
from unit_tests.chain.built_chain import OPEN, SCHEMA, SEED, T0, Builder, add, begin, chain, file, merge, publish

DELTA = (FileKind.RAW, FileKind.DELTA)
OLD = file(FileKind.FINAL, "final-0")
ADOPTED = file(FileKind.ADOPTED, "adopted.parquet", 0)
NEW = file(FileKind.FINAL, "new")


def landed() -> Builder:
    """Ten rows of generation 0."""
    return chain(SEED, SCHEMA, add(0, 9))


def pending() -> Builder:
    """Ten rows of generation 0, and five of generation 5 that wait."""
    return landed().append(begin(5, 10), add(10, 14, kinds=DELTA))


REFUSED = [
    ("a merge while data is unsettled", landed(), merge([NEW]), {"settled": None}, Rule.ONE_UNSETTLED),
    ("a publication while data is unsettled", pending(), publish(), {"settled": 2}, Rule.ONE_UNSETTLED),
    ("a merge into a table without columns", chain(SEED), merge([NEW]), {}, Rule.SCHEMA_FIRST),
    ("a merge of another schema", landed(), merge([NEW], schema_id=1), {}, Rule.SCHEMA_FIRST),
    ("a publication of another schema", pending(), publish([NEW], schema_id=1), {}, Rule.SCHEMA_FIRST),
    ("a merge of nothing", landed(), merge(), {}, Rule.NO_OP),
    ("a publication of nothing where nothing is pending", landed(), publish(), {}, Rule.NO_OP),
    ("a file of a kind the table has none of is removed", landed(), merge([], [file(FileKind.DELTA, "x")]), {}, Rule.FILES_REMOVED),
    ("a second file is removed where there is one", landed(), merge([], [OLD, replace(OLD, rows=0)]), {}, Rule.FILES_REMOVED),
    ("more rows leave than there are", landed(), merge([], [replace(OLD, rows=11)]), {}, Rule.FILES_REMOVED),
    ("more adopted files leave than there are", landed(), publish([], [ADOPTED, ADOPTED]), {}, Rule.FILES_REMOVED),
    ("an adopted file leaves twice, by merges", landed().append(merge([], [ADOPTED])), merge([], [ADOPTED]), {}, Rule.FILES_REMOVED),
    ("a pending generation that begins before the head", landed(), begin(5, 9), {}, Rule.GENERATION),
    ("a pending generation that begins behind the head", landed(), begin(5, 11), {}, Rule.GENERATION),
    ("a pending generation that is not the session's", landed(), OpenEpoch(9, 4, T0, Pending(5, 10, 9)), {}, Rule.GENERATION),
    ("a pending generation that another sync began", landed(), OpenEpoch(9, 5, T0, Pending(5, 10, 8)), {}, Rule.GENERATION),
    ("a Seed with a generation of another number", chain(), replace(SEED, pending=Pending(1, 0, 7)), {}, Rule.GENERATION),
    ("a generation begins on an unsettled table", landed(), begin(5, 10), {"settled": None}, Rule.GENERATION),
    ("a generation is promoted on an unsettled table", pending(), OpenEpoch(9, 5, T0), {"settled": 2}, Rule.GENERATION),
    ("a generation changes its number on an unsettled table", landed(), OpenEpoch(9, 1, T0), {"settled": None}, Rule.GENERATION),
    ("more rows are kept than there are", pending(), replace(publish(), rows_kept=11), {}, Rule.GENERATION),
    ("Void of a settled merge", landed().append(merge([NEW], [OLD])), Void(3), {"settled": 3}, Rule.VOID),
    ("Close while a publication is unsettled", pending().append(publish([NEW], [OLD])), Close(), {"settled": 4}, Rule.ONE_UNSETTLED),
]


@each("case, before, event, envelope, rule", REFUSED)
def test_a_block_that_breaks_a_rule_is_refused(case: str, before: Builder, event: Event, envelope: dict[str, object], rule: Rule) -> None:
    with pytest.raises(InvalidChain) as refused:
        before.add(before.next(event, **envelope))

    assert refused.value.rule is rule


def test_a_merge_adds_and_removes_in_one_step() -> None:
    contents = landed().append(merge([NEW, file(FileKind.STATE, "state", 5)], [OLD])).head.contents

    assert contents.held == {"raw": Counters(10, 1, 100), "final": Counters(10, 1, 100), "state": Counters(5, 1, 50)}
    assert (contents.next_offset, contents.landed, contents.generation) == (10, 10, 0)


def test_a_merge_is_unsettled_with_what_to_complete_and_what_to_delete() -> None:
    built = landed().append(merge([NEW], [OLD]))
    undo = built.head.unsettled
    assert undo is not None
    assert (undo.files, undo.removed, undo.checkpoints) == ((NEW,), ("final-0",), 0)
    assert undo.before == landed().head.contents

    assert built.append(OPEN).head.unsettled is None


def test_data_that_only_adds_removes_nothing_not_even_an_empty_list() -> None:
    undo = landed().head.unsettled

    assert undo is not None
    assert undo.removed is None


def test_rows_of_a_pending_generation_are_counted_apart() -> None:
    contents = pending().head.contents

    assert contents.pending == Pending(5, 10, 9)
    assert (contents.landed, contents.pending_rows, contents.next_offset, contents.rows) == (10, 5, 15, 10)


def test_publishing_makes_the_pending_generation_the_table() -> None:
    contents = (
        pending().append(publish([file(FileKind.FINAL, "new", 5)], [OLD, ADOPTED, file(FileKind.DELTA, "delta-10", 5)])).head.contents
    )

    assert contents.held == {"raw": Counters(15, 2, 150), "final": Counters(5, 1, 50)}
    assert (contents.generation, contents.pending, contents.adopted) == (5, None, 0)
    assert (contents.landed, contents.pending_rows, contents.begun_by) == (5, 0, 9)


def test_publishing_nothing_empties_the_table_without_columns_too() -> None:
    head = chain(SEED, begin(5, 0), publish([], [ADOPTED], schema_id=None)).head

    assert head.contents.empty
    assert (head.contents.generation, head.contents.pending) == (5, None)


def test_a_session_that_keeps_everything_promotes_what_is_pending() -> None:
    contents = pending().append(OpenEpoch(10, 6, T0)).head.contents

    assert (contents.generation, contents.pending, contents.landed, contents.pending_rows) == (6, None, 15, 0)


def test_another_generation_begins_behind_the_rows_of_the_one_that_is_given_up() -> None:
    contents = pending().append(begin(4, 15)).head.contents

    assert (contents.generation, contents.pending, contents.pending_rows) == (4, Pending(4, 15, 9), 0)
    assert contents.files(FileKind.DELTA) == 1, "its files are still to be removed"


def test_the_same_generation_goes_on_in_another_session() -> None:
    built = pending().append(OpenEpoch(10, 5, T0, Pending(5, 10, 9)), add(15, 16, kinds=DELTA))

    assert (built.head.contents.pending_rows, built.head.opener.sync_id) == (7, 10)


def test_nothing_that_was_committed_before_is_a_replay_in_a_new_generation() -> None:
    """Its rows are not in the generation, whatever their checkpoints have in common with those that come."""
    waiting = pending().head.replay
    assert [checkpoint.state_hash for checkpoint in waiting] == ["state-14"], "and not state-9"

    assert pending().append(begin(4, 15)).head.replay == ()
    assert pending().append(OpenEpoch(10, 5, T0, Pending(5, 10, 9))).head.replay == waiting
    assert pending().append(OpenEpoch(10, 5, T0)).head.replay == waiting


def test_rows_of_earlier_generations_are_told_from_those_of_the_current_one() -> None:
    def generations(built: Builder) -> tuple[int, int, int | None]:
        contents = built.head.contents
        return contents.earlier_rows, contents.current_rows, contents.current_from

    built = landed()
    assert generations(built) == (0, 10, 0)
    assert generations(built.append(OpenEpoch(8, 5, T0))) == (10, 0, 10)
    assert generations(built.append(add(10, 14))) == (10, 5, 10)
    assert generations(built.append(OpenEpoch(9, 5, T0))) == (10, 5, 10), "another session of the same generation"
    assert generations(built.append(begin(5, 15), add(15, 16, kinds=DELTA))) == (10, 5, 10), "its rows wait beside the table"
    assert generations(built.append(OpenEpoch(10, 5, T0))) == (10, 7, 10), "and come into it after all"
    assert generations(built.append(OpenEpoch(11, 4, T0))) == (17, 0, 17), "a lower number is another generation too"
    assert generations(built.append(OpenEpoch(12, 5, T0))) == (17, 0, 17), "and a number that comes again is a new one"


def test_a_pending_generation_that_gives_way_to_another_one_becomes_an_earlier_one() -> None:
    contents = pending().append(OpenEpoch(10, 6, T0)).head.contents

    assert (contents.landed, contents.earlier_rows, contents.current_from) == (15, 15, 15)


def test_publishing_keeps_rows_of_the_generation() -> None:
    built = landed().append(OpenEpoch(8, 5, T0), add(10, 14), begin(5, 15), add(15, 16, kinds=DELTA))
    contents = built.append(replace(publish([], [OLD]), rows_kept=5)).head.contents

    assert (contents.landed, contents.earlier_rows, contents.current_from) == (7, 0, 0)


def test_a_refresh_that_keeps_rows_of_its_generation_keeps_watching_for_their_replay() -> None:
    built = landed().append(OpenEpoch(8, 5, T0), add(10, 14))
    watched = built.head.replay
    refresh = replace(begin(5, 15), keeps_generation=True)

    assert built.append(refresh).head.replay == watched
    assert built.append(replace(begin(6, 15), keeps_generation=True)).head.replay == (), "none of them is of that generation"


def test_a_session_on_an_unsettled_table_changes_only_who_writes() -> None:
    built = pending()
    before = built.head
    built.add(built.next(OpenEpoch(11, 5, T0, Pending(5, 10, 9)), settled=2))

    assert built.head.contents == before.contents
    assert built.head.unsettled == before.unsettled
    assert (built.head.epoch, built.head.opener.sync_id) == (before.epoch + 1, 11)


@each(
    "event",
    [add(15, 19, kinds=DELTA), merge([replace(NEW, rows=9)], [OLD]), publish([NEW], [OLD, ADOPTED])],
)
def test_void_restores_exactly_what_was_there(event: Event) -> None:
    built = pending()
    built.append(OpenEpoch(9, 5, T0, built.head.contents.pending))  # a block that says the data before is settled
    before = built.head
    built.append(event)
    assert built.head.contents != before.contents
    built.append(Void(built.head.sequence_number))

    assert (built.head.contents, built.head.replay) == (before.contents, before.replay)
    assert built.head.unsettled is not None
    assert built.head.unsettled.voided


@each(
    ("events", "begun_by"),
    [
        ([replace(SEED, adopted=())], 7),
        ([SEED], 0),
        ([SEED, OPEN], 0),
        ([replace(SEED, adopted=()), OPEN], 8),
        ([replace(SEED, adopted=()), SCHEMA, add(0, 9), OPEN], 7),
        ([SEED, SCHEMA, begin(5, 0), add(0, 9), publish([NEW], [ADOPTED]), OPEN], 9),
        ([SEED, SCHEMA, begin(5, 0), add(0, 9), replace(publish([NEW], [ADOPTED]), sync_id=11), OPEN], 9),
    ],
)
def test_the_state_knows_whose_rows_are_all_there_is(events: list[Event], begun_by: int) -> None:
    assert chain(*events).head.contents.begun_by == begun_by
