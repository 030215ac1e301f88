"""Command `forget`: removes the rows of a person, or of anything else, from everything that a table has in the bucket.

The cascade, a file of the user, says which rows of other streams hang on forgotten ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import TypeAdapter, ValidationError

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.chain.hint import HINT_NAME
from destination_s3_spark.chain.territory import CHAIN_FOLDER, Table
from destination_s3_spark.cli.configuration import read_config, read_file, read_input
from destination_s3_spark.cli.maintenance import Workshop, chosen, overtaken, require_one_or_pattern, say, workshop
from destination_s3_spark.config.settings_model import Settings
from destination_s3_spark.errors import Bug, ConfigError, Fenced, SyncError, TransientError
from destination_s3_spark.schema.airbyte_type import Field
from destination_s3_spark.schema.column_rules import ColumnRules, Treatment
from destination_s3_spark.storage.old_versions import OldVersions, delete_versions, old_versions
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.tables.configured import column_rules
from destination_s3_spark.tables.factory import table_factory
from destination_s3_spark.tables.forgetting.course import Forgetting, referenced
from destination_s3_spark.tables.forgetting.possible import has_metadata, recorded_table
from destination_s3_spark.tables.forgetting.wanted import ByKeys, FieldTexts, Subject, barring, columns_of, digest, keys_of, wanted_rows
from destination_s3_spark.tables.open_table import OpenTable
from destination_s3_spark.tables.stream_table import StreamTable
from destination_s3_spark.tables.updates.steps import Update
from destination_s3_spark.wording import counted, size_text

WORDS = {
    FileKind.FINAL: "final",
    FileKind.ADOPTED: "adopted",
    FileKind.RAW: "raw",
    FileKind.DELTA: "waiting",
    FileKind.TOMBSTONE: "deleted keys",
    FileKind.CURRENT: "valid versions",
    FileKind.CLOSED: "ended versions",
    FileKind.CHANGES: "changes",
}
NOT_REACHED = (
    "the source, which sends the rows again if it still has them, and its STATE",
    "copies and backups of the bucket elsewhere, and what readers have copied",
    "names of folders of partitions in the table's log, and the log's hashes of whole checkpoints",
)
"""What the command cannot reach, for its record."""

Keep: TypeAlias = Callable[[dict[str, Any]], None]
"""Keeps the record of a table."""


class ReferencedColumn(Settings):
    """A column of a stream, which is named with or without its namespace."""

    stream: str
    column: str


class ReferencingColumn(ReferencedColumn):
    """A column whose values are those of a column of another stream, as a foreign key."""

    references: ReferencedColumn


@dataclass(frozen=True, slots=True)
class Link:
    """A column of `child` with values of the column `references` of `parent`. The columns are JSON keys."""

    child: Table
    column: str
    parent: Table
    references: str


Choose = Callable[[str], Sequence[Table]]
"""Returns the tables of a stream's name. Raises ConfigError if there are none."""


def parse_cascade(text: bytes, choose: Choose) -> list[Link]:
    """Parse a JSON array of `ReferencingColumn`. A table may refer to itself, but not to one that refers to it. Raises ConfigError."""
    try:
        columns = TypeAdapter(list[ReferencingColumn]).validate_json(text)
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, one['loc'])) or 'the file'}: {one['msg']}" for one in error.errors(include_input=False)]
        raise ConfigError(
            f"The file of the cascade cannot be used: {'; '.join(problems)}. It has to be a JSON array of objects such as "
            '{"stream": "orders", "column": "user_id", "references": {"stream": "users", "column": "id"}}.'
        ) from None
    links = [Link(_one(choose, one.stream), one.column, _one(choose, one.references.stream), one.references.column) for one in columns]
    _in_order([], links)
    return links


def _in_order(roots: Sequence[Table], links: Sequence[Link]) -> list[Table]:
    """Return these tables and all that hang on them, each after those on which it hangs. Raises ConfigError for a circle of links."""
    order: TopologicalSorter[StreamId] = TopologicalSorter({root.stream: () for root in roots})
    for link in links:
        if link.child.stream != link.parent.stream:
            order.add(link.child.stream, link.parent.stream)
    try:
        streams = list(order.static_order())
    except CycleError as error:
        circle = " → ".join(map(str, error.args[1]))
        raise ConfigError(
            f"The cascade is a circle: {circle}. If the command died, rows in it could not be found again. Leave one of these "
            "references out, and forget its rows by a command of their own."
        ) from None
    reached = {root.stream: root for root in roots}
    for stream in streams:
        if stream in reached:
            reached |= {link.child.stream: link.child for link in links if link.parent.stream == stream}
    return [reached[stream] for stream in streams if stream in reached]


def _one(choose: Choose, name: str) -> Table:
    found = choose(name)
    if len(found) > 1:
        names = ", ".join(sorted(str(table.stream) for table in found))
        raise ConfigError(f"The stream '{name}' of the cascade may be any of {names}. Name one, with its namespace.")
    return found[0]


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked: the subjects, whether to only look, the user's rules for columns, and the rows that hang on others.

    `forever`: whether later records with these keys are left out.
    """

    subjects: Sequence[Subject]
    dry_run: bool
    rules: ColumnRules = field(default_factory=ColumnRules)
    links: Sequence[Link] = ()
    forever: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """The rows of a table that were found. `subjects` are those of the table: its own and those that the cascade led to.

    `keys` are those to forget for good.
    """

    found: Table
    subjects: Sequence[Subject]
    forgetting: Forgetting
    keys: FieldTexts
    began: datetime

    @property
    def key_count(self) -> int:
        return sum(map(len, self.keys.values()))


def run(  # noqa: PLR0913 (one parameter per option)
    config_path: str,
    name: str,
    namespace: str | None,
    texts: Sequence[str],
    *,
    keys: str | None,
    cascade: str | None,
    record: str | None,
    forever: bool,
    dry_run: bool,
) -> int:
    """Forget rows of the table of a stream, or of those that match a pattern, one after the other. Return 1 if a table failed.

    Raises SyncError.

    `texts`: JSON objects; `keys`: a file of JSON objects, one per line. `cascade`: a file that says which rows hang on others. `forever`:
    whether later records with the keys are left out.
    `record`: a file to which what was done is added, table by table.
    """
    config = read_config(config_path)
    subjects = _subjects(texts, keys)
    factory = table_factory(config)
    every = factory.find()
    found, failed = chosen(factory, every, name, namespace, lambda _: True)
    require_one_or_pattern(name, found)
    links: Sequence[Link] = ()
    if cascade is not None:
        links = parse_cascade(read_file(cascade, "file of the cascade"), lambda stream: factory.choose(every, stream, None))
    request = Request(subjects, dry_run, column_rules(config), links, forever)
    with _added_to(record) as keep, workshop(factory, every) as tools:
        for tables in [found] if links else [[table] for table in found]:
            try:
                forget(tools, tables, request, keep)
            except SyncError as error:
                say(error.stream or tables[0].stream, f"failed. {error.message}")
                failed = True
    return 1 if failed else 0


@contextmanager
def _added_to(path: str | None) -> Iterator[Keep]:
    """Open the file of records before anything is changed. What is kept is in it at once, so that no end of the process loses it."""
    if path is None:
        yield lambda _: None
        return
    try:
        file = Path(path).open("a")  # noqa: SIM115 (closed below)
    except OSError as error:
        raise ConfigError(f"The record cannot be written to '{path}': {error.strerror}. Nothing was changed. Name another file.") from error
    with file:
        yield lambda one: print(json.dumps(one), file=file, flush=True)


def _subjects(texts: Sequence[str], keys: str | None) -> list[Subject]:
    found = [Subject.parse(text.encode(), f"number {number} of --where") for number, text in enumerate(texts, start=1)]
    if keys is not None:
        lines = enumerate(read_input(keys, "file of keys").splitlines(), start=1)
        found += [Subject.parse(line, f"line {number} of the file of keys") for number, line in lines if line.strip()]
    if not found:
        raise ConfigError("Say what is to be forgotten, with --where or --keys.")
    return found


def forget(tools: Workshop, roots: Sequence[Table], request: Request, keep: Keep) -> None:
    """Forget rows of tables and of those that hang on them, and keep a record of what was done. Raises SyncError of a stream.

    All rows are found before any goes. A table's rows go after those that hang on them: if the process dies, another one finds these again.
    """
    subjects = {table.stream: dict.fromkeys(request.subjects) for table in roots}
    cases: list[Case] = []
    for table in _in_order(roots, request.links):
        with _of_stream(table.stream):
            _look(tools, table, request, subjects, cases)
    while cases:
        case = cases.pop()
        try:
            with _of_stream(case.found.stream):
                _finish(tools, case, request, keep)
        except SyncError:
            for left in reversed(cases):
                say(left.found.stream, "left as it is until the rows that hang on its rows are gone. Run the command again")
            raise


@contextmanager
def _of_stream(stream: StreamId) -> Iterator[None]:
    """Let an error name the stream."""
    try:
        yield
    except SyncError as error:
        error.stream = error.stream or stream
        raise


def _look(tools: Workshop, found: Table, request: Request, subjects: dict[StreamId, dict[Subject, None]], cases: list[Case]) -> None:
    """Find the rows of a table, and add to the subjects of other tables what hangs on them. Raises SyncError."""
    began = datetime.now(UTC)
    table = recorded_table(tools.table(found) if request.dry_run else _ended(tools, found))
    links = [link for link in request.links if link.parent.stream == found.stream]
    columns = list(dict.fromkeys((column,) for link in links for column in columns_of(table, link.references)))
    for link in request.links:
        if link.child.stream == found.stream:
            columns_of(table, link.column)
    own = subjects.setdefault(found.stream, {})
    if not own:
        say(found.stream, "no row hangs on those rows")
        return
    rules = tuple(rule for rule in request.rules.rules if found.stream.matches(rule.stream))
    treatment = Treatment(rules, request.rules.secret)
    _old_versions(tools, table)  # before anything is changed, because they may be forbidden
    searched = 0
    while searched < len(own):  # rows may hang on others of the same table
        searched = len(own)
        forgetting = Forgetting(table, wanted_rows(table, list(own), treatment), tools.resources)
        if forgetting.to_read():
            say(found.stream, f"reads {size_text(forgetting.to_read())} whole, and of its other files those that may have the rows")
        _search(tools, table, forgetting.searched())
        values = _values(tools, forgetting, columns)
        for subject in own if columns else ():  # no row may have them any more
            values.setdefault(subject.columns, set()).add(tuple(text for _, text in subject.values))
        for link in links:
            hanging = (Subject(((link.column, text),)) for (text,) in sorted(values[link.references,]))
            subjects.setdefault(link.child.stream, {}).update(dict.fromkeys(hanging))
    keys = _keys(tools, forgetting, list(own), treatment) if request.forever else {}
    cases.append(Case(found, list(own), forgetting, keys, began))


def _search(tools: Workshop, table: OpenTable, step: Update) -> None:
    """Run a step of the search. Raises TransientError if a sync meanwhile exchanged files, which may be why one is gone."""
    try:
        tools.run(table, step, "searching")
    except SyncError as error:
        if (fenced := overtaken(table.writer, error)) is None:
            raise
        raise TransientError("A sync has just written to it. Try again.", stream=table.stream.id) from fenced


def _values(tools: Workshop, forgetting: Forgetting, columns: Sequence[tuple[Field, ...]]) -> FieldTexts:
    """Return the values of columns that the rows to forget have."""
    values: FieldTexts = {}

    def collected() -> Update:
        values.update((yield from referenced(forgetting, columns)))
        return None

    if columns:
        _search(tools, forgetting.table, collected())
    return values


def _keys(tools: Workshop, forgetting: Forgetting, subjects: Sequence[Subject], treatment: Treatment) -> FieldTexts:
    """Return the values that were asked for, and the keys of the rows of a deduplicated table that have them."""
    table = forgetting.table
    asked = keys_of(table, subjects, treatment)
    if table.spec is None or isinstance(forgetting.wanted, ByKeys):
        return asked
    found = _values(tools, forgetting, [tuple(sorted(table.spec.key, key=lambda field: field.source))])
    rows = [Subject(tuple(zip(names, texts, strict=True))) for names, of_rows in found.items() for texts in of_rows]
    for fields, texts in keys_of(table, rows, Treatment()).items():
        asked.setdefault(fields, set()).update(texts)
    return asked


def _finish(tools: Workshop, case: Case, request: Request, keep: Keep) -> None:
    """Forget the rows that were found in a table, or only count them. Raises SyncError."""
    found, forgetting, table = case.found, case.forgetting, case.forgetting.table
    counts = {WORDS[kind]: forgetting.rows(kind) for kind in WORDS}
    each = ", ".join(f"{rows:,} {what}" for what, rows in counts.items() if rows)
    said = counted(sum(counts.values()), "row") + (f" ({each})" if each else "")
    if request.dry_run:
        old = counted(len(_old_versions(tools, table)[0].versions), "old version")
        objects = counted(forgetting.objects, "file")
        say(found.stream, f"would forget {said} in {objects}, and delete {old} of its objects{_forever(case)}")
        return
    block = _exchange(tools, forgetting, case.keys)
    own, others = _old_versions(tools, table)
    if isinstance(tools.factory.store, S3Store):
        delete_versions(tools.factory.store, own)
    versions = len(own.versions)
    say(found.stream, f"forgot {said}; {counted(versions, 'old version')} of its objects deleted{_forever(case)}")
    if others:
        say(found.stream, f"{counted(others, 'old version')} of objects that this connector did not write stay in '{table.layout.root}'")
    keep(
        {
            "stream": {"namespace": found.stream.namespace, "name": found.stream.name},
            "asked": {
                "objects": len(case.subjects),
                "fields": sorted({name for subject in case.subjects for name in subject.columns}),
                "sha256": digest(case.subjects),
            },
            "references": [f"{link.parent.stream}.{link.references}" for link in request.links if link.child.stream == found.stream],
            "rows": counts,
            "keysForever": case.key_count,
            "files": forgetting.objects,
            "oldVersions": versions,
            "oldVersionsOfOthers": others,
            "began": case.began.isoformat(timespec="seconds"),
            "ended": datetime.now(UTC).isoformat(timespec="seconds"),
            "block": block,
            "notReached": NOT_REACHED,
        }
    )


def _ended(tools: Workshop, found: Table) -> StreamTable:
    """Return the table, after the end of a command that died while it worked on it."""
    closed = tools.table(found)
    state = closed.writer.state
    if state is None or state.closed or not state.opener.maintains or state.replay:
        return closed
    closed.writer.open()
    closed.writer.close(tools.factory.orphans())
    return tools.table(found)


def _forever(case: Case) -> str:
    return f"; records with {counted(case.key_count, 'key')} are left out from then on" if case.keys else ""


def _exchange(tools: Workshop, forgetting: Forgetting, keys: FieldTexts) -> Mapping[str, Any]:
    """Exchange the files with such rows, and delete what is kept of others. Return the last block of data. Raises SyncError.

    Keys to forget for good come first: rows that are gone do not tell theirs. A table in which nothing is to be done is not opened.
    """
    writer = forgetting.table.writer
    state = writer.state
    if state is None:
        raise Bug(f"Table {forgetting.table.stream.id} has no chain.")
    has_values = has_metadata(forgetting.table, state)
    bars = barring(writer.chain.barred(), keys)
    if not (forgetting.changes or state.contents.leaving or has_values or bars):
        return {"number": state.sequence_number, "hash": state.block_hash}
    try:
        now = writer.open()
        if (state.last_data, state.schema, state.barred) != (now.last_data, now.schema, now.barred):
            raise TransientError("A sync has just written to it. Try again.", stream=forgetting.table.stream.id)
        if bars is not None:
            writer.bar(bars)
        if forgetting.changes:
            tools.run(forgetting.table, forgetting.erased(), "forgetting rows of")
        done = writer.open()
        if has_values:
            writer.begin_publications_anew()
        writer.close(tools.factory.orphans(), keeps_replaced=False)
    except Fenced as fenced:
        writer.abandon()
        writer.clear_up(tools.factory.orphans())
        raise TransientError(
            "A sync has begun and taken the table over. Run the command again when it has ended; what it has done by then stays done.",
            stream=forgetting.table.stream.id,
        ) from fenced
    except SyncError:
        writer.abandon()
        raise
    return {"number": done.sequence_number, "hash": done.block_hash}


def _old_versions(tools: Workshop, table: OpenTable) -> tuple[OldVersions, int]:
    """Return the old versions of a table's objects, and the number of those whose owner nobody knows. Raises ConfigError."""
    store, layout, territory = tools.factory.store, table.layout, table.writer.chain.territory
    if not isinstance(store, S3Store):
        raise Bug("Versions can be listed in S3 only.")
    hint = f"{layout.folder}{CHAIN_FOLDER}{HINT_NAME}"
    taken_over = table.writer.taken_over()
    found = old_versions(store, (layout.folder, layout.root, layout.changes, layout.histories))
    own = found.of(lambda key: key == hint or territory.may_write(key) or key in taken_over)
    return own, len(found.of(territory.may_delete).versions) - len(own.of(territory.may_delete).versions)
