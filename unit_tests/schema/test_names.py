from __future__ import annotations

import re
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from destination_s3_spark.schema.names import assign_names, safe_name
from unit_tests.cases import each

CLASHING = st.sampled_from(
    ["", "_", "a", "A", "a_1", "A_1", "a.", "a_", "ä", "_airbyte_meta", "_AIRBYTE_META", "_airbyte_meta_1", "日本", "東京"]
)


@each(
    ("source", "name"),
    [
        ("plain", "plain"),
        ("field_with_spécial_character", "field_with_special_character"),
        ("field_name_with_operator+1", "field_name_with_operator_1"),
        ("1field_with_a_leading_number", "_1field_with_a_leading_number"),
        ("Foo.Bar", "Foo_Bar"),
        ("ﬁx", "fix"),
        ("日本語", "___"),
        ("smørrebrød", "sm_rrebr_d"),
        ("ÅNGSTRÖM", "ANGSTROM"),
        ("a\tb c", "a_b_c"),
        ("²", "_2"),
        ("٣", "_"),
        ("", "_"),
    ],
)
def test_a_name_is_made_safe_for_avro(source: str, name: str) -> None:
    assert safe_name(source) == name


@given(st.text())
def test_every_safe_name_is_an_avro_name_and_safe_again(source: str) -> None:
    name = safe_name(source)
    assert re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name)
    assert safe_name(name) == name


@each("of_columns", [True, False])
def test_of_names_that_differ_only_in_case_the_first_declared_stays_and_the_others_get_a_suffix(of_columns: bool) -> None:
    assert assign_names(["foo", "Foo", "FOO"], (), of_columns=of_columns) == {"foo": "foo", "Foo": "Foo_1", "FOO": "FOO_2"}
    assert assign_names(["Foo", "FOO", "foo"], (), of_columns=of_columns) == {"Foo": "Foo", "FOO": "FOO_1", "foo": "foo_2"}
    assert assign_names(["a b", "A.B"], (), of_columns=of_columns) == {"a b": "a_b", "A.B": "A_B_1"}


def test_a_source_that_is_a_safe_name_keeps_it_before_one_that_has_to_change() -> None:
    assert assign_names(["a b", "a_b", "a_b_1"], (), of_columns=True) == {"a_b": "a_b", "a_b_1": "a_b_1", "a b": "a_b_2"}


def test_columns_named_like_the_connectors_own_get_a_suffix() -> None:
    names = assign_names(["_airbyte_raw_id", "_AIRBYTE_x", "_airbyte_raw_id_1", "_airbyt"], (), of_columns=True)
    assert names == {
        "_airbyte_raw_id": "_airbyte_raw_id_1",
        "_AIRBYTE_x": "_AIRBYTE_x_1",
        "_airbyte_raw_id_1": "_airbyte_raw_id_1_1",
        "_airbyt": "_airbyt",
    }


def test_members_of_objects_may_be_named_like_the_connectors_own_columns() -> None:
    assert assign_names(["_airbyte_meta"], (), of_columns=False) == {"_airbyte_meta": "_airbyte_meta"}


def test_a_name_that_is_taken_is_never_given_again() -> None:
    assert assign_names(["Id", "id_1"], ["id"], of_columns=False) == {"Id": "Id_2", "id_1": "id_1"}


def _assert_injective(names: Mapping[str, str], taken: list[str]) -> None:
    folded = [name.casefold() for name in [*names.values(), *taken]]
    assert len(set(folded)) == len(folded)


@given(st.lists(st.text(max_size=4) | CLASHING, unique=True), st.lists(st.text(max_size=4) | CLASHING, unique=True))
def test_names_are_injective_and_depend_on_the_order_of_the_sources_only_where_they_clash(first: list[str], later: list[str]) -> None:
    for of_columns in (True, False):
        names = assign_names(first, (), of_columns=of_columns)
        _assert_injective(names, [])
        if len({safe_name(source).casefold() for source in first}) == len(first):
            assert names == assign_names(reversed(first), (), of_columns=of_columns)
        taken = list(names.values())
        _assert_injective(assign_names(later, taken, of_columns=of_columns), taken)
