"""Every mix of generations and modes over three syncs, against the plain meaning of the catalog's numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.errors import ConfigError, TransientError
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import JsonObject, record, state, status, stream
from unit_tests.lake.messages import catalog as catalog_of
from unit_tests.places import table_of
from unit_tests.sampling import chance, rounds

APPEND, DEDUP, OVERWRITE = "append", "append_dedup", "overwrite"
SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, "round": {"type": "integer"}}}


class Step(NamedTuple):
    """A stream's part in one sync."""

    mode: str
    generation: int
    minimum: int
    complete: bool
    sends: bool

    def __str__(self) -> str:
        return f"{self.mode} {self.generation}/{self.minimum}{'' if self.complete else ' cut'}{'' if self.sends else ' empty'}"


class Row(NamedTuple):
    """`run`: which of the stretches of syncs of one generation it landed in. Numbers may come again when a stream is set up anew."""

    id: int
    round: int
    run: int


Sequence3 = tuple[Step, Step, Step]


def sent(number: int) -> list[int]:
    return [1, 10 + number, 10 + number]


def plain_steps() -> list[Step]:
    """Mode `overwrite` with a minimum is what `append` with one is."""
    kinds = [(mode, generation, minimum) for mode in (APPEND, DEDUP) for generation in (1, 2) for minimum in (0, generation)]
    kinds += [(OVERWRITE, generation, 0) for generation in (1, 2)]
    return [Step(*kind, complete, sends) for kind in kinds for complete, sends in product((True, False), repeat=2)]


def sequences() -> Iterator[Sequence3]:
    for first, second, third in product(plain_steps(), repeat=3):
        comes_again = first.generation == third.generation != second.generation
        if first.sends and (second.sends or not comes_again):  # a sync without records may leave no trace, so nothing tells the runs apart
            yield first, second, third


@dataclass
class Meaning:
    """What readers are to see of one table. `landed` are the rows that came in since it was last replaced, `shown` those that are there.

    `waiting` are rows that are the table's and not merged yet, `mode` that of the last sync that opened it; `pending` those that are to
    replace it: `begun` says by what, `pending_run` in which run.
    """

    run: int = 0
    mode: str = APPEND
    generation: int | None = None
    shown: list[Row] = field(default_factory=list)
    landed: list[Row] = field(default_factory=list)
    waiting: list[Row] = field(default_factory=list)
    pending: list[Row] | None = None
    begun: tuple[str, int] | None = None
    pending_run: int = -1

    def take(self, step: Step, number: int) -> None:
        if step.generation != self.generation:
            self.run += 1
            self.generation = step.generation
        rows = [Row(one, number, self.run) for one in sent(number)] if step.sends else []
        if step.minimum:
            self._refresh(step, rows, ("generation", self.run), [row for row in self.landed if row.run == self.run])
        elif step.mode == OVERWRITE:
            self._refresh(step, rows, ("sync", number), [])
        else:
            self._add(self.pending or [], DEDUP)
            self.pending = None
            # What waits under a key is merged by it, even if the table has none from now on, and what joins a table with a key by that.
            self._merge(DEDUP if step.mode == DEDUP else self.mode)
            self._add(rows, step.mode)
            self._merge(step.mode)
        if step.sends or step.complete:
            self.mode = step.mode

    def _refresh(self, step: Step, rows: list[Row], what: tuple[str, int], kept: list[Row]) -> None:
        if not (step.sends or step.complete):
            return  # it leaves no trace
        if self.pending is None and kept == self.landed:
            if step.mode != DEDUP:
                self._merge(self.mode)  # what waits under a key is merged by it
            self._add(rows, step.mode)  # nothing else is there, so nothing has to wait
            if step.complete:
                self._merge(step.mode)
            return
        same = self.pending is not None and (self.begun == what or (what[0] == "generation" and self.pending_run == what[1]))
        self.pending = [*(self.pending or [] if same else []), *rows]
        self.begun = what
        self.pending_run = self.run
        if step.complete:
            self.shown, self.waiting, self.pending = [], [*kept, *self.pending], None
            self.landed = list(self.waiting)
            self._merge(step.mode)

    def _add(self, rows: list[Row], mode: str) -> None:
        self.landed += rows
        (self.waiting if mode == DEDUP else self.shown).extend(rows)

    def _merge(self, mode: str) -> None:
        if self.waiting:
            found = [*self.shown, *self.waiting]
            self.shown = list({row.id: row for row in sorted(found, key=lambda row: row.round)}.values()) if mode == DEDUP else found
            self.waiting = []


def catalog(parts: Sequence[tuple[str, Step]], number: int, schema: dict[str, Any] = SCHEMA) -> JsonObject:
    def described(name: str, step: Step) -> JsonObject:
        ids: dict[str, Any] = {"generation": step.generation, "minimum_generation": step.minimum, "sync_id": number}
        return stream(name, schema=schema, mode=step.mode, key="id", **ids)

    return catalog_of(*(described(*part) for part in parts))


def messages(parts: Iterable[tuple[str, Step]], number: int) -> Iterator[bytes]:
    for name, step in parts:
        for one in sent(number) if step.sends else []:
            yield record({"id": one, "round": number}, name, emitted_at=1000 * number)
        yield state(number, name)
        if not step.complete:
            yield record({"id": -1, "round": number}, name, emitted_at=1000 * number)
        yield status("COMPLETE" if step.complete else "INCOMPLETE", name)


def shown(lake: Lake, names: Iterable[str]) -> dict[str, list[tuple[Any, ...]]]:
    store, found = lake.store, {name: list[tuple[Any, ...]]() for name in names}
    for one in store.list("lake/"):
        name = one.key.split("/")[1]
        if name in found and one.key.endswith(".parquet"):
            table = pq.read_table(pa.BufferReader(store.get(one.key)))
            found[name] += zip(table["id"].to_pylist(), table["round"].to_pylist(), strict=True)
    return {name: sorted(rows) for name, rows in found.items()}


def check(lake: Lake, cases: Sequence[Sequence3]) -> None:
    """Run the sequences side by side, each a stream of its own, and compare after each sync."""
    meanings = {f"s{number:05}": Meaning() for number in range(len(cases))}
    wrong: dict[str, str] = {}
    for number in (1, 2, 3):
        parts = [(name, case[number - 1]) for name, case in zip(meanings, cases, strict=True)]
        whole, cut = ([part for part in parts if part[1].complete is complete] for complete in (True, False))
        if whole:
            lake.sync(catalog(whole, number), messages(whole, number))
        if cut:
            with pytest.raises(TransientError):
                lake.sync(catalog(cut, number), messages(cut, number))
        for name, step in parts:
            meanings[name].take(step, number)
        found = shown(lake, meanings)
        for (name, meaning), case in zip(meanings.items(), cases, strict=True):
            wanted = sorted((row.id, row.round) for row in meaning.shown)
            if found[name] != wanted:
                steps = ", ".join(map(str, case[:number]))
                wrong.setdefault(name, f"{steps}: wanted {wanted}, found {found[name]}")
    assert not wrong, f"{len(wrong)} of {len(cases)}:\n" + "\n".join(list(wrong.values())[:20])


def of(mode: str, generation: int, minimum: int = 0, *, complete: bool = True, sends: bool = True) -> Step:
    return Step(mode, generation, minimum, complete, sends)


NAMED: list[Sequence3] = [
    (of(APPEND, 1), of(APPEND, 2), of(OVERWRITE, 2, 2)),
    (of(APPEND, 1), of(APPEND, 2), of(APPEND, 2, 2, sends=False)),
    (of(APPEND, 1), of(APPEND, 2, complete=False), of(APPEND, 2, 2)),
    (of(DEDUP, 1), of(DEDUP, 2), of(DEDUP, 2, 2)),
    (of(DEDUP, 1), of(DEDUP, 2), of(APPEND, 2, 2)),
    (of(APPEND, 1), of(APPEND, 2), of(DEDUP, 2, 2)),
    (of(APPEND, 1), of(APPEND, 2, 2, complete=False), of(APPEND, 2)),
    (of(APPEND, 2, complete=False), of(APPEND, 2, 2, complete=False), of(APPEND, 2, 2)),
    (of(APPEND, 2), of(APPEND, 1), of(APPEND, 2, 2)),
    (of(DEDUP, 1, 1), of(DEDUP, 2, 2, complete=False), of(APPEND, 2, 2)),
    (of(DEDUP, 1), of(OVERWRITE, 1, complete=False, sends=False), of(APPEND, 1, 1)),
    (of(OVERWRITE, 1), of(OVERWRITE, 1, complete=False, sends=False), of(DEDUP, 1, 1, sends=False)),
    (of(DEDUP, 1), of(DEDUP, 2, 2, complete=False), of(APPEND, 2)),
    (of(OVERWRITE, 1), of(DEDUP, 2, 2, complete=False), of(APPEND, 2, complete=False, sends=False)),
]


def test_rows_below_the_minimum_go_and_those_of_the_generation_stay(lake: Lake) -> None:
    check(lake, NAMED)

    for number, case in enumerate(NAMED):
        chain = Chain(lake.store, table_of(f"s{number:05}"))
        chain.read()
        contents, live = chain.head.contents, chain.live_files()
        assert contents.landed == sum(file.rows for file in live.of(FileKind.RAW)), f"{case}: the raw table has other rows than the table"
        assert (contents.pending, live.dropped) == (None, ())


def one(lake: Lake, step: Step, number: int, schema: dict[str, Any] = SCHEMA) -> None:
    lake.sync(catalog([("users", step)], number, schema), messages([("users", step)], number))


def test_without_a_raw_table_files_of_the_generation_stay_as_they_are(lake: Lake) -> None:
    lake.options = {"tables": {"raw_tables": False}}
    for number, step in enumerate((of(APPEND, 1), of(APPEND, 2), of(APPEND, 2, 2)), start=1):
        one(lake, step, number)

    assert shown(lake, ["users"])["users"] == [(1, 2), (1, 3), (12, 2), (12, 2), (13, 3), (13, 3)]


def test_merged_rows_of_two_generations_need_the_raw_table_to_be_told_apart(lake: Lake) -> None:
    lake.options = {"tables": {"raw_tables": False}}
    one(lake, of(DEDUP, 1), 1)
    one(lake, of(DEDUP, 2), 2)
    before = shown(lake, ["users"])
    with pytest.raises(ConfigError, match=r"refresh \(generation 2\) continues, but a merge .* Run a new refresh"):
        one(lake, of(DEDUP, 2, 2), 3)
    assert shown(lake, ["users"]) == before

    one(lake, of(DEDUP, 3, 3), 4)
    assert shown(lake, ["users"])["users"] == [(1, 4), (14, 4)]


@pytest.mark.parametrize("merges", [False, True])
def test_rows_that_another_sync_completed_stay_with_a_warning(lake: Lake, caplog: pytest.LogCaptureFixture, *, merges: bool) -> None:
    step = of(DEDUP if merges else APPEND, 1, 1)
    one(lake, step, 7)
    one(lake, step, 7)
    assert "keeps the rows" not in caplog.text
    one(lake, step, 8)
    assert "stream users: its table keeps the rows of sync 7, because that one completed the same generation 1." in caplog.text
    caplog.clear()
    one(lake, of(step.mode, 2, 2), 9)
    assert "keeps the rows" not in caplog.text
    assert set(shown(lake, ["users"])["users"]) == {(1, 9), (19, 9)}


@pytest.mark.parametrize("mode", [APPEND, DEDUP])
def test_rows_that_stay_take_the_types_of_the_refresh(lake: Lake, mode: str) -> None:
    as_text = {"type": "object", "properties": {"id": {"type": "integer"}, "round": {"type": "string"}}}
    one(lake, of(mode, 1), 1)
    one(lake, of(mode, 2), 2)
    one(lake, of(mode, 2, 2), 3, as_text)

    merged, appended = [(1, "3"), (12, "2"), (13, "3")], [(1, "2"), (1, "3"), (12, "2"), (12, "2"), (13, "3"), (13, "3")]
    assert shown(lake, ["users"])["users"] == (merged if mode == DEDUP else appended)


def test_any_three_syncs_show_what_their_generations_mean(lake: Lake) -> None:
    check(lake, chance("three syncs").sample([*sequences()], rounds(100, 1_000)))
