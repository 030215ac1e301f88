"""Generations: refreshes that keep or remove a table's records, interrupted, cancelled and resumed, and changes of the mode in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import pytest

from unit_tests.cases import each
from unit_tests.lake.histories import StreamSync, sync, visible
from unit_tests.lake.lake import Lake

NAMESPACE = "refresh"
Seen: TypeAlias = list[tuple[int, int, int]]
"""The rows of a table: (id, round they were sent in, generation), sorted."""


@dataclass(frozen=True, slots=True)
class History:
    """A table's syncs: one that completes, two that do not, two that do; and what its readers see after each round."""

    rounds: tuple[StreamSync | None, StreamSync | None, StreamSync | None, StreamSync | None, StreamSync | None]
    seen: tuple[Seen, ...]


def append(*ids: int, gen: int = 1) -> StreamSync:
    return StreamSync(ids, "append", gen)


def dedup(*ids: int, gen: int = 1) -> StreamSync:
    return StreamSync(ids, "append_dedup", gen)


def truncate(*ids: int, gen: int = 2) -> StreamSync:
    """A refresh that removes the records there are."""
    return StreamSync(ids, "append", gen, gen)


def dedup_truncate(*ids: int, gen: int = 2) -> StreamSync:
    return StreamSync(ids, "append_dedup", gen, gen)


def overwrite(*ids: int, sync_id: int | None = None, gen: int = 1) -> StreamSync:
    """The mode itself, as platforms send it that know nothing of refreshes."""
    return StreamSync(ids, "overwrite", gen, sync_id=sync_id)


def cut(whole: StreamSync, status: str | None = "INCOMPLETE") -> StreamSync:
    return StreamSync(whole.ids, whole.mode, whole.generation, whole.minimum, status, whole.sync_id)


ONE: Seen = [(1, 1, 1)]
TWO: Seen = [(1, 1, 1), (2, 1, 1)]

HISTORIES = {
    "a truncate refresh removes the old records": History(
        (append(1, 2), None, None, truncate(3), truncate(4)),
        (TWO, TWO, TWO, [(3, 4, 2)], [(3, 4, 2), (4, 5, 2)]),
    ),
    "a truncate refresh of a deduplicated table removes the old records": History(
        (dedup(1, 2), None, None, dedup_truncate(3, 3), dedup_truncate(3, 4)),
        (TWO, TWO, TWO, [(3, 4, 2)], [(3, 5, 2), (4, 5, 2)]),
    ),
    "a merge refresh keeps the old records": History(
        (append(1, 2), None, None, append(2, 3, gen=2), append(4, gen=2)),
        (TWO, TWO, TWO, [*TWO, (2, 4, 2), (3, 4, 2)], [*TWO, (2, 4, 2), (3, 4, 2), (4, 5, 2)]),
    ),
    "a merge refresh of a deduplicated table updates the old records": History(
        (dedup(1, 2), None, None, dedup(2, 3, gen=2), dedup(3, gen=2)),
        (TWO, TWO, TWO, [(1, 1, 1), (2, 4, 2), (3, 4, 2)], [(1, 1, 1), (2, 4, 2), (3, 5, 2)]),
    ),
    "a refresh of a generation that rows were added under": History(
        (append(1), None, None, append(2, gen=2), StreamSync([3], "overwrite", 2, 2)),
        (ONE, ONE, ONE, [*ONE, (2, 4, 2)], [(2, 4, 2), (3, 5, 2)]),
    ),
    "a refresh of a generation that deduplicated rows were added under": History(
        (dedup(1, 2), None, None, dedup(2, 3, gen=2), dedup_truncate(3, 4)),
        (TWO, TWO, TWO, [(1, 1, 1), (2, 4, 2), (3, 4, 2)], [(2, 4, 2), (3, 5, 2), (4, 5, 2)]),
    ),
    "a clear empties the table": History(
        (append(1, 2), None, None, truncate(), append(5, gen=3)),
        (TWO, TWO, TWO, [], [(5, 5, 3)]),
    ),
    "a clear empties a deduplicated table": History(
        (dedup(1, 2), None, None, dedup_truncate(), dedup(5, gen=3)),
        (TWO, TWO, TWO, [], [(5, 5, 3)]),
    ),
    "a full refresh in every sync": History(
        (truncate(1, 2, gen=1), None, None, truncate(3, gen=2), truncate(4, gen=3)),
        (TWO, TWO, TWO, [(3, 4, 2)], [(4, 5, 3)]),
    ),
    "an interrupted refresh is not seen until it completes": History(
        (append(1), cut(truncate(2)), cut(truncate(3), None), truncate(4), append(5, gen=2)),
        (ONE, ONE, ONE, [(2, 2, 2), (3, 3, 2), (4, 4, 2)], [(2, 2, 2), (3, 3, 2), (4, 4, 2), (5, 5, 2)]),
    ),
    "an interrupted refresh of a deduplicated table is not seen until it completes": History(
        (dedup(1), cut(dedup_truncate(2, 3)), cut(dedup_truncate(3), None), dedup_truncate(4), dedup(2, gen=2)),
        (ONE, ONE, ONE, [(2, 2, 2), (3, 3, 2), (4, 4, 2)], [(2, 5, 2), (3, 3, 2), (4, 4, 2)]),
    ),
    "a refresh that completes with no more records publishes what it had": History(
        (append(1), cut(truncate(2)), None, truncate(), None),
        (ONE, ONE, ONE, [(2, 2, 2)], [(2, 2, 2)]),
    ),
    "a refresh of a deduplicated table that completes with no more records publishes what it had": History(
        (dedup(1), cut(dedup_truncate(2, 2)), None, dedup_truncate(), None),
        (ONE, ONE, ONE, [(2, 2, 2)], [(2, 2, 2)]),
    ),
    "a refresh that is interrupted before its first state": History(
        (append(1), cut(truncate()), cut(truncate()), truncate(), append(2, gen=2)),
        (ONE, ONE, ONE, [], [(2, 5, 2)]),
    ),
    "the first sync of all is an interrupted refresh": History(
        (None, cut(truncate(1)), cut(truncate(2)), truncate(3), None),
        ([], [(1, 2, 2)], [(1, 2, 2), (2, 3, 2)], [(1, 2, 2), (2, 3, 2), (3, 4, 2)], [(1, 2, 2), (2, 3, 2), (3, 4, 2)]),
    ),
    "the first sync of all is an interrupted refresh of a deduplicated table": History(
        (None, cut(dedup_truncate(1)), None, dedup_truncate(1, 2), dedup(2, gen=2)),
        ([], [], [], [(1, 4, 2), (2, 4, 2)], [(1, 4, 2), (2, 5, 2)]),
    ),
    "a cancelled refresh loses nothing, old or new": History(
        (append(1), cut(truncate(2)), None, append(3, gen=2), append(4, gen=2)),
        (ONE, ONE, ONE, [(1, 1, 1), (2, 2, 2), (3, 4, 2)], [(1, 1, 1), (2, 2, 2), (3, 4, 2), (4, 5, 2)]),
    ),
    "a cancelled refresh of a deduplicated table loses nothing, old or new": History(
        (dedup(1, 2), cut(dedup_truncate(2, 3)), None, dedup(3, 4, gen=2), None),
        (TWO, TWO, TWO, *[[(1, 1, 1), (2, 2, 2), (3, 4, 2), (4, 4, 2)]] * 2),
    ),
    "a cancelled refresh is promoted by a sync without records": History(
        (append(1), cut(truncate(2)), None, append(gen=2), None),
        (ONE, ONE, ONE, *[[(1, 1, 1), (2, 2, 2)]] * 2),
    ),
    "a cancelled refresh goes on as append_dedup": History(
        (append(1), cut(truncate(1, 2)), None, dedup(2, gen=2), dedup(2, gen=2)),
        (ONE, ONE, ONE, [(1, 2, 2), (2, 4, 2)], [(1, 2, 2), (2, 5, 2)]),
    ),
    "a cancelled refresh goes on as append": History(
        (dedup(1), cut(dedup_truncate(1, 2)), None, append(2, gen=2), append(3, gen=2)),
        (
            ONE, ONE, ONE,
            [(1, 2, 2), (2, 2, 2), (2, 4, 2)],
            [(1, 2, 2), (2, 2, 2), (2, 4, 2), (3, 5, 2)],
        ),
    ),
    "a clear gives up the interrupted refresh": History(
        (append(1), cut(truncate(2)), cut(truncate(gen=3)), truncate(gen=4), None),
        (ONE, ONE, ONE, [], []),
    ),
    "another generation gives up the interrupted one": History(
        (append(1), cut(truncate(2)), cut(truncate(3, gen=4)), truncate(4, gen=3), None),
        (ONE, ONE, ONE, *[[(4, 4, 3)]] * 2),
    ),
    "another generation gives up the interrupted one of a deduplicated table": History(
        (dedup(1), cut(dedup_truncate(2)), cut(dedup_truncate(3, gen=4)), dedup_truncate(4, gen=3), None),
        (ONE, ONE, ONE, *[[(4, 4, 3)]] * 2),
    ),
    "a generation counter that restarts lower": History(
        (append(1, gen=9), None, None, truncate(2), truncate(3, gen=1)),
        (*[[(1, 1, 9)]] * 3, [(2, 4, 2)], [(3, 5, 1)]),
    ),
    "a generation counter that restarts lower in a deduplicated table": History(
        (dedup(1, gen=9), None, None, dedup_truncate(2), dedup_truncate(3, gen=1)),
        (*[[(1, 1, 9)]] * 3, [(2, 4, 2)], [(3, 5, 1)]),
    ),
    "several cancelled refreshes leave a gap in the generations": History(
        (append(1, gen=10), cut(truncate(2, gen=11)), cut(truncate(gen=12)), truncate(7, gen=13), append(8, gen=13)),
        (*[[(1, 1, 10)]] * 3, [(7, 4, 13)], [(7, 4, 13), (8, 5, 13)]),
    ),
    "the same generation refreshed twice in a deduplicated table": History(
        (dedup_truncate(1, 1), None, None, dedup_truncate(1, 2), dedup_truncate(2, 3)),
        (*[[(1, 1, 2)]] * 3, [(1, 4, 2), (2, 4, 2)], [(1, 4, 2), (2, 5, 2), (3, 5, 2)]),
    ),
    "append to append_dedup keeps one row of each key": History(
        (append(1, 1, 2), None, None, dedup(2, 3), append(2)),
        (*[[(1, 1, 1), (1, 1, 1), (2, 1, 1)]] * 3, [(1, 1, 1), (2, 4, 1), (3, 4, 1)], [(1, 1, 1), (2, 4, 1), (2, 5, 1), (3, 4, 1)]),
    ),
    "append to append_dedup with a refresh": History(
        (append(1, 1), None, None, dedup_truncate(3, 3), dedup(3, gen=2)),
        (*[[(1, 1, 1), (1, 1, 1)]] * 3, [(3, 4, 2)], [(3, 5, 2)]),
    ),
    "append_dedup to append with a refresh": History(
        (dedup(1, 1), None, None, truncate(3, 3), append(3, gen=2)),
        (*[ONE] * 3, [(3, 4, 2), (3, 4, 2)], [(3, 4, 2), (3, 4, 2), (3, 5, 2)]),
    ),
    "append_dedup to append and back": History(
        (dedup(1), None, None, append(1, 2), dedup(2)),
        (*[ONE] * 3, [(1, 1, 1), (1, 4, 1), (2, 4, 1)], [(1, 4, 1), (2, 5, 1)]),
    ),
    "an interrupted refresh goes on as append_dedup": History(
        (append(1), cut(truncate(2, 2)), None, dedup_truncate(2, 3), None),
        (ONE, ONE, ONE, *[[(2, 4, 2), (3, 4, 2)]] * 2),
    ),
    "an interrupted refresh goes on as append": History(
        (dedup(1), cut(dedup_truncate(2, 2)), None, truncate(2, 3), None),
        (ONE, ONE, ONE, *[[(2, 2, 2), (2, 2, 2), (2, 4, 2), (3, 4, 2)]] * 2),
    ),
    "an interrupted sync of a deduplicated table is merged": History(
        (dedup(1, 2), cut(dedup(2, 3)), cut(dedup(3), None), dedup(4), None),
        (TWO, [(1, 1, 1), (2, 2, 1), (3, 2, 1)], [(1, 1, 1), (2, 2, 1), (3, 3, 1)], *[[(1, 1, 1), (2, 2, 1), (3, 3, 1), (4, 4, 1)]] * 2),
    ),
    "overwrite replaces in every sync": History(
        (overwrite(1, 2), None, None, overwrite(3), overwrite()),
        (TWO, TWO, TWO, [(3, 4, 1)], []),
    ),
    "an interrupted overwrite is dropped by the next sync": History(
        (overwrite(1), cut(overwrite(2)), None, overwrite(3), None),
        (ONE, ONE, ONE, *[[(3, 4, 1)]] * 2),
    ),
    "an interrupted overwrite goes on in the next attempt of the same sync": History(
        (overwrite(1), cut(overwrite(2, sync_id=77)), None, overwrite(3, sync_id=77), None),
        (ONE, ONE, ONE, *[[(2, 2, 1), (3, 4, 1)]] * 2),
    ),
    "append_dedup to overwrite": History(
        (dedup(1, 1), None, None, overwrite(2, 2), append(3)),
        (ONE, ONE, ONE, [(2, 4, 1), (2, 4, 1)], [(2, 4, 1), (2, 4, 1), (3, 5, 1)]),
    ),
    "overwrite to append_dedup": History(
        (overwrite(1, 1), None, None, dedup(1, 2), overwrite(4)),
        (*[[(1, 1, 1), (1, 1, 1)]] * 3, [(1, 4, 1), (2, 4, 1)], [(4, 5, 1)]),
    ),
}  # fmt: skip
CASES = {f"case_{number}": case for number, case in enumerate(HISTORIES.values())}
"""By the name of their stream."""


@pytest.fixture(scope="module")
def seen(make_lake: Callable[[], Lake]) -> list[dict[str, Seen]]:
    """What readers see after each round."""
    lake = make_lake()
    connector, found = lake.connector(), []
    for number in range(5):
        streams = {name: part for name, case in CASES.items() if (part := case.rounds[number]) is not None}
        outcome = sync(connector, NAMESPACE, streams, number + 1)
        if number in (1, 2):
            outcome.expect_failure("transient_error")
            lake.verify()
        else:
            outcome.expect_success()
        assert sorted(map(repr, outcome.states)) == sorted(set(map(repr, outcome.states))), "a STATE came back twice"
        assert len(outcome.states) == len(streams)
        found.append({name: as_seen(rows) for name, rows in visible(lake, NAMESPACE).items()})
    lake.verify_at_rest()
    return found


def as_seen(rows: list[dict[str, int]]) -> Seen:
    return sorted((row["id"], row["round"], row["_airbyte_generation_id"]) for row in rows)


@each("about", HISTORIES)
def test_a_table_goes_through_its_generations(seen: list[dict[str, Seen]], about: str) -> None:
    name = f"case_{list(HISTORIES).index(about)}"
    assert tuple(found.get(name, []) for found in seen) == tuple(map(sorted, HISTORIES[about].seen))
