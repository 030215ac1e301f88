"""The tables of docs/formats.md, and of text formats beside this file, are what readers do with the files of a sync, type by type."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from integration_tests.formats.readers import REFUSALS, Column, Reader, read, readers_of
from unit_tests.sync.forms.fixtures import Landed
from unit_tests.sync.forms.forms import Form
from unit_tests.sync.forms.landing import TIME_FORMS, TYPES, Landing
from unit_tests.sync.forms.own_cases import TYPE_TABLES, TypeCase

DOCUMENTS = (Path(__file__).parents[2] / "docs" / "formats.md", Path(__file__).with_name("inferred_types.md"))
SECTIONS: Mapping[str, Form] = {
    "Parquet": Form.PARQUET,
    "Parquet with `time_encoding: int64`": Form.PARQUET_INT64,
    "Parquet with `time_encoding: local`": Form.PARQUET_LOCAL,
    "Avro": Form.AVRO,
    "JSON Lines, root level flattening": Form.JSONL_FLAT,
    "CSV, root level flattening": Form.CSV_FLAT,
}
NOT_READ, OTHER_VALUES = "file not read", "other values"
TIMES_OF_DAY = tuple(TYPE_TABLES["clocks"])


@pytest.fixture(scope="session")
def plain_spark(spark_session: Any) -> Any:
    """Spark as it comes, without the switch for its own TIME type."""
    session = spark_session.newSession()
    session.conf.unset("spark.sql.timeType.enabled")
    assert session.conf.get("spark.sql.timeType.enabled") == "false"
    return session


@pytest.mark.parametrize("title", SECTIONS)
def test_the_documented_table_is_what_the_readers_do(landed: Landed, plain_spark: Any, title: str) -> None:
    form = SECTIONS[title]
    section = "\n".join([f"## {title}", "", *table(landed(form), plain_spark)])
    document = DOCUMENTS[form.is_text]
    assert f"{section}\n" in document.read_text(encoding="utf-8"), f"{document.name} must say:\n\n{section}"


def test_every_type_is_read_by_every_parquet_reader_once_times_are_integers(landed: Landed, plain_spark: Any) -> None:
    landing = landed(Form.PARQUET_INT64)
    for reader in readers_of(landing.form):
        cells = cells_of(landing, reader, plain_spark)
        assert not {NOT_READ, OTHER_VALUES} & set(cells.values()), reader
        assert {cells[name].lower() for name in TIMES_OF_DAY} <= {"int64", "bigint"}, reader


def test_spark_reads_times_of_day_as_integers_when_told_so(landed: Landed, plain_spark: Any) -> None:
    (path,) = landed(Form.PARQUET).files((TYPES, "clocks"))
    schema = ", ".join(f"{name} BIGINT" for name in TIMES_OF_DAY)
    columns = zip(*plain_spark.read.schema(schema).parquet(str(path)).collect(), strict=True)
    assert [list(values) for values in columns] == [[*TYPE_TABLES["clocks"][name].stored, None] for name in TIMES_OF_DAY]


def test_spark_has_a_type_for_local_times_of_day_when_told_so(landed: Landed, spark_session: Any) -> None:
    landing = landed(Form.PARQUET_LOCAL)
    (path,) = landing.files((TYPES, "clocks"))
    assert {name: kind for name, kind in spark_session.read.parquet(str(path)).dtypes if name in TIMES_OF_DAY} == dict.fromkeys(
        TIMES_OF_DAY, "time(6)"
    )
    columns = read(Reader.SPARK, landing.form, path, spark_session)
    assert all(is_right(columns[name], TYPE_TABLES["clocks"][name], landing.form) for name in TIMES_OF_DAY)


def table(landing: Landing, session: Any) -> list[str]:
    """The lines of a table in Markdown: a row for types that all readers read alike, a column for each reader."""
    readers = readers_of(landing.form)
    cells = {reader: cells_of(landing, reader, session) for reader in readers}
    shown = TIMES_OF_DAY if landing.form in TIME_FORMS else cells[readers[0]]  # the other types are as without the option
    alike: dict[str, list[str]] = {}
    for name in shown:
        alike.setdefault(" | ".join(cells[reader][name] for reader in readers), []).append(name)
    rows = [f"| {', '.join(names)} | {read_as} |" for read_as, names in alike.items()]
    return [f"| type | {' | '.join(reader.value for reader in readers)} |", "|---" * (len(readers) + 1) + "|", *rows]


def cells_of(landing: Landing, reader: Reader, session: Any) -> dict[str, str]:
    """What the reader does with each type: its own name of it, if the values are right."""
    cells: dict[str, str] = {}
    for name, types in TYPE_TABLES.items():
        (path,) = landing.files((TYPES, name))
        try:
            columns = read(reader, landing.form, path, session)
        except REFUSALS:
            cells.update(dict.fromkeys(types, NOT_READ))
            continue
        for column, of_type in types.items():
            cells[column] = str(columns[column].type) if is_right(columns[column], of_type, landing.form) else OTHER_VALUES
    return cells


def is_right(column: Column, of_type: TypeCase, form: Form) -> bool:
    """Whether the values are those that are stored or, in a text form, those that were sent, also as texts."""
    *values, last = column.values
    if last is not None and not (last == "" and form is Form.CSV_FLAT):
        return False
    if form.is_text:
        return values in of_type.of_texts
    return values == (of_type.avro if form is Form.AVRO and of_type.avro is not None else of_type.stored)
