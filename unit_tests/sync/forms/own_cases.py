"""Cases of our own beside the corpus: every kind of time, odd unions and containers, names that meet.

What is sent, and the rows of a Parquet and an Avro table after it, dates and times as the integers that are stored. What the text forms
must hold follows from what is sent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from unit_tests.lake.messages import JsonObject
from unit_tests.lake.table_readers import Row

NULLED = "DESTINATION_SERIALIZATION_ERROR"
TOO_LARGE = "DESTINATION_FIELD_SIZE_LIMITATION"
HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US

TEXT, NUMBER, INTEGER, BOOLEAN, ANY_OBJECT, ANY_ARRAY = (
    {"type": name} for name in ("string", "number", "integer", "boolean", "object", "array")
)
DATE = {"type": "string", "format": "date"}
MOMENT = {"type": "string", "format": "date-time"}
CLOCK = {"type": "string", "format": "time"}
MOMENT_TZ, MOMENT_LOCAL = ({**MOMENT, "airbyte_type": f"timestamp_{kind}_timezone"} for kind in ("with", "without"))
CLOCK_TZ, CLOCK_LOCAL = ({**CLOCK, "airbyte_type": f"time_{kind}_timezone"} for kind in ("with", "without"))


def of(**properties: Any) -> JsonObject:
    return {"type": "object", "properties": properties}


def array(items: Any) -> JsonObject:
    return {"type": "array", "items": items}


def one_of(*options: Any) -> JsonObject:
    return {"oneOf": list(options)}


def nulled(**reasons: str) -> list[JsonObject]:
    return [{"field": name.replace("__", "."), "change": "NULLED", "reason": reason} for name, reason in reasons.items()]


@dataclass(frozen=True, slots=True)
class OwnRow:
    """A record's data, the columns it becomes (nulls left out), and what was changed. `avro` None: as in Parquet."""

    sent: JsonObject
    parquet: Row
    avro: Row | None = None
    changes: list[JsonObject] = field(default_factory=list)

    def expected(self, *, avro: bool) -> Row:
        return self.avro if avro and self.avro is not None else self.parquet


@dataclass(frozen=True, slots=True)
class OwnCase:
    """A stream."""

    properties: JsonObject
    rows: list[OwnRow]


TIMES = OwnCase(
    {
        "day": DATE, "moment": MOMENT, "moment_tz": MOMENT_TZ, "moment_local": MOMENT_LOCAL, "clock": CLOCK, "clock_tz": CLOCK_TZ,
        "clock_local": CLOCK_LOCAL,
    },
    [
        OwnRow(
            {"day": "2025-03-04", "moment": "2025-03-04T05:06:07Z", "moment_tz": "2025-03-04T05:06:07+02:00",
             "moment_local": "2025-03-04T05:06:07", "clock": "05:06:07Z", "clock_tz": "05:06:07+02:00", "clock_local": "05:06:07"},
            {"day": 20151, "moment": 1741064767000000, "moment_tz": 1741057567000000, "moment_local": 1741064767000000,
             "clock": 18367000000, "clock_tz": 11167000000, "clock_local": 18367000000},
        ),
        OwnRow(  # what has no offset is in UTC; an offset of what has no time zone is dropped
            {"moment": "2025-03-04T05:06:07.5", "moment_tz": "2025-03-04 05:06", "moment_local": "2025-03-04T05:06:07-08:00",
             "clock": "05:06:07.000001", "clock_tz": "05:06", "clock_local": "05:06:07-08:00"},
            {"moment": 1741064767500000, "moment_tz": 1741064760000000, "moment_local": 1741064767000000, "clock": 18367000001,
             "clock_tz": 18360000000, "clock_local": 18367000000},
        ),
        # The three lines of the migration guide; its second value lacks a zero.
        OwnRow({"clock_tz": "12:00:00-01:00"}, {"clock_tz": 46_800_000_000}),
        OwnRow({"clock_tz": "04:00:00+02:00"}, {"clock_tz": 7_200_000_000}),
        OwnRow({"clock_tz": "04:00:00+05:30"}, {"clock_tz": 81_000_000_000}),
        OwnRow(
            {"day": "2025-02-29", "moment": "2025-03-04", "moment_tz": 1741064767, "clock": "25:00", "clock_tz": "+10000-01-01",
             "moment_local": "10000-01-01T00:00"},
            {},
            changes=nulled(clock=NULLED, clock_tz=NULLED, day=NULLED, moment=NULLED, moment_local=TOO_LARGE, moment_tz=NULLED),
        ),
    ],
)  # fmt: skip

_PERSON, _PET = of(id=INTEGER, name=TEXT), of(name=TEXT, good=BOOLEAN)
ODD_TYPES = OwnCase(
    {
        "any_object": ANY_OBJECT, "empty_properties": of(), "null_properties": {"type": "object", "properties": None},
        "any_array": ANY_ARRAY, "typed_object": _PERSON,
        "listed": {"type": ["string", "integer"]}, "one_of": one_of(TEXT, INTEGER), "with_null": {"type": ["string", "null"]},
        "one_of_null": one_of(TEXT, {"type": "null"}), "only_null": {"type": ["null", "null"]},
        "same_objects": one_of(_PERSON, _PERSON), "merged_objects": {"allOf": [_PERSON, _PET]},
        "apart_objects": {"anyOf": [of(id=INTEGER), of(note=TEXT)]},
        "compact": {"type": ["object", "integer"], "properties": _PERSON["properties"]},
        "mixed_items": array([INTEGER, ANY_OBJECT]), "union_items": array([one_of(INTEGER, ANY_ARRAY)]),
        "date_or_text": one_of(DATE, TEXT), "guide": array(one_of(INTEGER, TEXT)),
    },
    [
        OwnRow(
            {"any_object": {"a": [1.50, "x y"]}, "empty_properties": {"b": 1}, "null_properties": {}, "any_array": [1, None, {"c": 2}],
             "typed_object": {"id": 1, "name": "Ann", "undeclared": True}, "listed": "one", "one_of": 10, "with_null": "text",
             "one_of_null": "text", "only_null": None, "same_objects": {"id": 2}, "merged_objects": {"id": 3, "good": True},
             "apart_objects": {"note": "n"}, "compact": {"id": 4, "name": "Tom"}, "mixed_items": [15, None, {"d": "e"}],
             "union_items": [25, None, ["f", "g h"]], "date_or_text": "2025-03-04", "guide": [1, "Alice"]},
            {"any_object": '{"a":[1.5,"x y"]}', "empty_properties": '{"b":1}', "null_properties": "{}", "any_array": '[1,null,{"c":2}]',
             "typed_object": {"id": 1, "name": "Ann"}, "listed": {"type": "string", "string": "one"},
             "one_of": {"type": "integer", "integer": 10}, "with_null": "text", "one_of_null": "text", "same_objects": {"id": 2},
             "merged_objects": {"id": 3, "good": True}, "apart_objects": {"note": "n"},
             "compact": {"type": "object", "object": {"id": 4, "name": "Tom"}},
             "mixed_items": [{"type": "integer", "integer": 15, "object": None}, None,
                             {"type": "object", "integer": None, "object": '{"d":"e"}'}],
             "union_items": [{"type": "integer", "integer": 25, "array": None}, None,
                             {"type": "array", "integer": None, "array": '["f","g h"]'}],
             "date_or_text": {"type": "date", "date": 20151},
             "guide": [{"type": "integer", "integer": 1, "string": None}, {"type": "string", "integer": None, "string": "Alice"}]},
            {"any_object": '{"a":[1.5,"x y"]}', "empty_properties": '{"b":1}', "null_properties": "{}", "any_array": '[1,null,{"c":2}]',
             "typed_object": {"id": 1, "name": "Ann"}, "listed": "one", "one_of": 10, "with_null": "text", "one_of_null": "text",
             "same_objects": {"id": 2}, "merged_objects": {"id": 3, "good": True}, "apart_objects": {"note": "n"},
             "compact": {"id": 4, "name": "Tom"}, "mixed_items": [15, None, '{"d":"e"}'], "union_items": [25, None, '["f","g h"]'],
             "date_or_text": 20151, "guide": [1, "Alice"]},
        ),
        OwnRow(
            {"any_object": [1], "any_array": {"a": 1}, "listed": 20, "one_of": True, "with_null": 7, "only_null": 8, "compact": 4444,
             "typed_object": "here", "date_or_text": "someday", "guide": [1, False], "mixed_items": [], "same_objects": {}},
            {"listed": {"type": "integer", "integer": 20}, "with_null": "7", "only_null": "8",
             "compact": {"type": "integer", "integer": 4444}, "date_or_text": {"type": "string", "string": "someday"},
             "guide": [{"type": "integer", "integer": 1, "string": None}, None], "mixed_items": [], "same_objects": {}},
            {"listed": 20, "with_null": "7", "only_null": "8", "compact": 4444, "date_or_text": "someday", "guide": [1, None],
             "mixed_items": [], "same_objects": {}},
            [*nulled(any_array=NULLED, any_object=NULLED), {"field": "guide.[1]", "change": "NULLED", "reason": NULLED},
             *nulled(one_of=NULLED, typed_object=NULLED)],
        ),
        OwnRow({}, {}),
    ],
)  # fmt: skip

NESTED = OwnCase(
    {
        "texts": array(TEXT), "numbers": array(NUMBER), "flags": array(BOOLEAN), "days": array(DATE), "moments": array(MOMENT),
        "clocks": array(CLOCK), "matrix": array(array(INTEGER)),
        "orders": array(of(id=INTEGER, lines=array(of(sku=TEXT, at=MOMENT, price=one_of(NUMBER, TEXT))))),
        "deep": of(a=of(b=of(c=of(d=INTEGER)))),
        "either": one_of(of(label=TEXT, inner=of(any=ANY_OBJECT, choice=one_of(TEXT, BOOLEAN))), TEXT),
    },
    [
        OwnRow(
            {"texts": ["a", None, ""], "numbers": [1, 2.5, "3"], "flags": [True, "no"], "days": ["1970-01-02", "soon"],
             "moments": ["1970-01-01T00:00:01Z"], "clocks": ["00:00:01"], "matrix": [[1, 2], [], None, ["x"]],
             "orders": [{"id": "7", "lines": [{"sku": 8, "at": "1970-01-01T00:00:00+01:00", "price": 9.5}, None, {"price": "on request"}]}],
             "deep": {"a": {"b": {"c": {"d": 1e3}}}}},
            {"texts": ["a", None, ""], "numbers": [1.0, 2.5, 3.0], "flags": [True, None], "days": [1, None], "moments": [1_000_000],
             "clocks": [1_000_000], "matrix": [[1, 2], [], None, [None]],
             "orders": [{"id": 7, "lines": [
                 {"sku": "8", "at": -HOUR_US, "price": {"type": "number", "number": 9.5, "string": None}}, None,
                 {"sku": None, "at": None, "price": {"type": "string", "number": None, "string": "on request"}},
             ]}],
             "deep": {"a": {"b": {"c": {"d": 1000}}}}},
            {"texts": ["a", None, ""], "numbers": [1.0, 2.5, 3.0], "flags": [True, None], "days": [1, None], "moments": [1_000_000],
             "clocks": [1_000_000], "matrix": [[1, 2], [], None, [None]],
             "orders": [{"id": 7, "lines": [{"sku": "8", "at": -HOUR_US, "price": 9.5}, None,
                                            {"sku": None, "at": None, "price": "on request"}]}],
             "deep": {"a": {"b": {"c": {"d": 1000}}}}},
            [{"field": where, "change": "NULLED", "reason": NULLED} for where in ("days.[1]", "flags.[1]", "matrix.[3].[0]")],
        ),
        OwnRow({"deep": {"a": {"b": 5}}, "orders": []}, {"deep": {"a": {}}, "orders": []}, changes=nulled(deep__a__b=NULLED)),
        OwnRow(
            {"either": {"label": "a", "inner": {"any": {"k": "v"}, "choice": True}}},
            {"either": {"type": "object",
                        "object": {"label": "a", "inner": {"any": '{"k":"v"}', "choice": {"type": "boolean", "boolean": True}}}}},
            {"either": {"label": "a", "inner": {"any": '{"k":"v"}', "choice": True}}},
        ),
        OwnRow(
            {"either": {"inner": {"any": '{"k":"v"}', "choice": 5}}},
            {"either": {"type": "object", "object": {"inner": {}}}},
            {"either": {"inner": {}}},
            nulled(either__inner__any=NULLED, either__inner__choice=NULLED),
        ),
        OwnRow({"either": "x"}, {"either": {"type": "string", "string": "x"}}, {"either": "x"}),
    ],
)  # fmt: skip

NAMES_GIVEN = {
    "A_B": "A_B", "a_b": "a_b_1", "A b": "A_b_2", "_airbyte_meta": "_airbyte_meta_1", "_AIRBYTE_raw_id": "_AIRBYTE_raw_id_1",
    "__": "__", "日本": "___1", "1st": "_1st", "é": "e", "select": "select", "x.y/z": "x_y_z",
}  # fmt: skip
"""The column of each key: safe, different also when case does not count, and never one of the connector's own."""
_NUMBERED = {source: number for number, source in enumerate(NAMES_GIVEN)}
NAMES = OwnCase(
    {**dict.fromkeys(NAMES_GIVEN, INTEGER), "inner": of(**{"x y": INTEGER, "x_y": INTEGER, "_airbyte_meta": INTEGER})},
    [
        OwnRow(
            {**_NUMBERED, "inner": {"x y": 1, "x_y": 2, "_airbyte_meta": 3}},
            {**{NAMES_GIVEN[source]: number for source, number in _NUMBERED.items()}, "inner": {"x_y_1": 1, "x_y": 2, "_airbyte_meta": 3}},
        )
    ],
)

OWN_CASES: Mapping[str, OwnCase] = {"times": TIMES, "odd_types": ODD_TYPES, "nested": NESTED, "names": NAMES}


@dataclass(frozen=True, slots=True)
class TypeCase:
    """A type of the documentation's tables: values as they are sent, as they are stored, and in Avro where that is not the same."""

    schema: JsonObject
    sent: list[Any]
    stored: list[Any]
    avro: list[Any] | None = None

    @property
    def of_texts(self) -> list[list[Any]]:
        """What a reader of text files may make of the values: the stored ones, those sent, texts, JSON texts, a date as its midnight."""
        as_json = [json.dumps(value, separators=(",", ":")) for value in self.sent]
        texts = [value if isinstance(value, str) else text for value, text in zip(self.sent, as_json, strict=True)]
        midnights = [[days * DAY_US for days in self.stored]] if self.schema == DATE else []
        return [self.stored, self.sent, texts, as_json, *midnights]


_MOMENTS = ["1969-12-31T23:59:59.999999Z", "2024-02-29T12:00:00Z"]
_HOUSE, _OTHER_HOUSE = {"number": 5, "street": "High St"}, {"number": 6, "street": "Low St"}
TYPE_TABLES: Mapping[str, Mapping[str, TypeCase]] = {
    "plain": {
        "string": TypeCase(TEXT, ["é\n\"', x", "x"], ["é\n\"', x", "x"]),
        "boolean": TypeCase(BOOLEAN, [True, False], [True, False]),
        "integer": TypeCase(INTEGER, [2**63 - 1, -(2**63)], [2**63 - 1, -(2**63)]),
        "number": TypeCase(NUMBER, [0.1, -1e300], [0.1, -1e300]),
        "date": TypeCase(DATE, ["1969-12-31", "9999-12-31"], [-1, 2932896]),
        "timestamp_with_timezone": TypeCase(MOMENT_TZ, _MOMENTS, [-1, 1_709_208_000_000_000]),
        "timestamp_without_timezone": TypeCase(MOMENT_LOCAL, [text[:-1] for text in _MOMENTS], [-1, 1_709_208_000_000_000]),
        "object_without_schema": TypeCase(ANY_OBJECT, [{"a": 1}, {"a": 2}], ['{"a":1}', '{"a":2}']),
        "array_without_schema": TypeCase(ANY_ARRAY, [[1], [2]], ["[1]", "[2]"]),
    },
    "decimals": {
        "decimal": TypeCase(NUMBER, [-123456789012.34, 0.1], [Decimal("-123456789012.34"), Decimal("0.10")]),
    },
    "clocks": {
        "time_with_timezone": TypeCase(CLOCK_TZ, ["23:59:59.999999Z", "00:00:00Z"], [DAY_US - 1, 0]),
        "time_without_timezone": TypeCase(CLOCK_LOCAL, ["23:59:59.999999", "00:00:00"], [DAY_US - 1, 0]),
    },
    "nested": {
        "object": TypeCase(of(number=INTEGER, street=TEXT), [_HOUSE, _OTHER_HOUSE], [_HOUSE, _OTHER_HOUSE]),
        "array": TypeCase(array(INTEGER), [[1, 2], [3]], [[1, 2], [3]]),
        "array_of_objects": TypeCase(array(of(sku=TEXT)), [[{"sku": "a"}], [{"sku": "b"}]], [[{"sku": "a"}], [{"sku": "b"}]]),
    },
    "unions": {
        "union": TypeCase(
            one_of(INTEGER, TEXT),
            [1, "one"],
            [{"type": "integer", "integer": 1, "string": None}, {"type": "string", "integer": None, "string": "one"}],
            [1, "one"],
        ),
    },
}
"""A table for each group of types that a reader may not be able to read, so that it shows with which it cannot."""
