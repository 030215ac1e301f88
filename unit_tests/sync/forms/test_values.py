"""What every case leaves in files of every form: typed values in Parquet and Avro, in the text forms what was sent, as it was sent."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from unit_tests.lake.corpus_cases import AVRO_VARIANTS, PARQUET_VARIANTS, load
from unit_tests.lake.lake import Lake
from unit_tests.lake.table_readers import Row
from unit_tests.sync.forms.fixtures import Landed
from unit_tests.sync.forms.forms import Form
from unit_tests.sync.forms.landing import OWN, case_syncs, cases_of, own_cases_of, own_row
from unit_tests.sync.forms.own_cases import NULLED, OWN_CASES

TYPED = (Form.PARQUET, Form.AVRO)
TEXTS = (Form.JSONL, Form.JSONL_FLAT, Form.CSV, Form.CSV_FLAT)
OURS: dict[str, list[tuple[Row, list[Row]]]] = {
    "testNumericTypes": [
        ({"id": 1, "number": 5e-10}, []),
        ({"id": 2, "number": -5e-10}, []),
        ({"id": 3, "number": 1.2345678912345679e28}, []),
        ({"id": 4, "number": -1.2345678912345679e28}, []),
    ],
    "testCoerceLegacyUnions": [({}, [{"field": "x", "change": "NULLED", "reason": NULLED}])] * 2,
}
"""Cases that leave open what destination-s3 writes: the data and the changes of each row."""


def parts(forms: tuple[Form, ...], names: Callable[[Form], list[str]]) -> list[Any]:
    """A parameter set for each form and each case that is seen in it."""
    return [pytest.param(form, name, id=f"{form.value}-{name}") for form in forms for name in names(form)]


@pytest.mark.parametrize(("form", "case"), parts(TYPED, cases_of))
def test_a_case_is_typed(landed: Landed, form: Form, case: str) -> None:
    landing = landed(form)
    sync = case_syncs(case)[0]
    expected = sync.expected_rows(AVRO_VARIANTS if form is Form.AVRO else PARQUET_VARIANTS)
    if case in OURS:
        (name,) = sync.streams
        found = landing.rows(name)
        assert [(row["data"], row["meta"]["changes"]) for row in found] == OURS[case]
    assert expected or case in OURS
    for name, rows in expected.items():
        assert [comparable_changes(row) for row in landing.rows(name)] == [comparable_changes(row) for row in rows], name


@pytest.mark.parametrize(("form", "case"), parts(TEXTS, cases_of))
def test_a_case_passes_through(landed: Landed, form: Form, case: str) -> None:
    landing = landed(form)
    expected = landing.expected_texts(case)
    assert expected
    for name, rows in expected.items():
        assert landing.rows(name) == rows, name


@pytest.mark.parametrize(("form", "name"), parts((*TYPED, Form.PARQUET_INT64, Form.PARQUET_LOCAL), own_cases_of))
def test_our_own_cases_are_typed(landed: Landed, form: Form, name: str) -> None:
    expected = [own_row(row.expected(avro=form is Form.AVRO), row.changes) for row in OWN_CASES[name].rows]
    assert [comparable_changes(row) for row in landed(form).rows((OWN, name))] == expected


@pytest.mark.parametrize(("form", "name"), parts(TEXTS, own_cases_of))
def test_our_own_cases_pass_through(landed: Landed, form: Form, name: str) -> None:
    landing = landed(form)
    assert landing.rows((OWN, name)) == landing.expected_own_texts(name)


@pytest.mark.parametrize(
    ("form", "case", "said"),
    [
        (Form.PARQUET, "testUnions", 'field "union_of_objects_with_properties_contradicting.id"'),
        (Form.AVRO, "testUnknownTypes", 'field "name": its JSON schema has the unknown type "potato"'),
    ],
)
def test_a_schema_no_type_fits_fails_before_anything_is_written(lake: Lake, form: Form, case: str, said: str) -> None:
    (sync,) = load(case)
    outcome = lake.connector(format=form.config).write(sync.catalog, [*sync.messages, *sync.completions])
    assert said in outcome.expect_failure("config_error").error_message
    assert lake.bucket.list_keys() == []


def comparable_changes(row: Row) -> Row:
    """The row with its changes in one order: upstream's is that of the schema, ours that of the table's columns."""
    changes: list[Any] = sorted(row["meta"]["changes"], key=json.dumps)
    return {**row, "meta": {**row["meta"], "changes": changes}}
