"""The rules of typing once more, in plain Python, one record at a time, for tests to compare the product with.

Written from the rules, sharing no code with the product but the type definitions. Slow and simple on purpose: a recursive parser that
keeps each value's text, a function per type, and dates through the `datetime` module.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from decimal import Decimal as Exact
from fractions import Fraction
from typing import Any

from destination_s3_spark.schema.airbyte_type import Array, Decimal, Field, Object, Scalar, SchemalessArray, SchemalessObject, Union
from unit_tests.decoding.temporal_oracle import SERIALIZATION, SIZE, Nulled, temporal


class Unreadable(Exception):
    """The line is no record."""


@dataclass
class Node:
    """A JSON value: kind is object, array, string, number, boolean or null; `text` is how it stands in the line."""

    kind: str
    value: Any
    text: str


@dataclass
class Row:
    emitted_at: int
    data: str
    values: dict[str, Any]
    changes: list[dict[str, Any]]


def expected_row(line: bytes, fields: tuple[Field, ...]) -> Row:
    """The row of a record line; values by column name, temporals as the integers that are stored."""
    try:
        message = parse(line.decode())
    except (ValueError, IndexError, UnicodeDecodeError):
        raise Unreadable from None
    record = member(message, "record")
    data, emitted_at = member(record, "data"), member(record, "emitted_at")
    if data.kind != "object" or not re.fullmatch(r"-?\d+", emitted_at.text) or not -(2**63) <= int(emitted_at.text) < 2**63:
        raise Unreadable
    changes = source_changes(record)
    values = {}
    for field in fields:
        values[field.name] = typed(data.value.get(field.source), field.type, field.source, changes)
    return Row(int(emitted_at.text), data.text, values, changes)


def member(node: Node, key: str) -> Node:
    if node.kind != "object" or key not in node.value:
        raise Unreadable
    return node.value[key]


def source_changes(record: Node) -> list[dict[str, Any]]:
    meta = record.value.get("meta")
    if meta is None or meta.kind == "null":
        return []
    if meta.kind != "object":
        raise Unreadable
    listed = meta.value.get("changes")
    if listed is None or listed.kind == "null":
        return []
    if listed.kind != "array" or any(item.kind != "object" for item in listed.value):
        raise Unreadable
    return [{key: as_text(item.value.get(key), []) for key in ("field", "change", "reason")} for item in listed.value]


# ---- JSON with the text of every value


def parse(text: str) -> Node:
    at = blanks(text, 0)
    if text[at] != "{":
        raise ValueError
    node, at = value(text, at)
    if blanks(text, at) != len(text):
        raise ValueError
    return node


def blanks(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def value(text: str, at: int) -> tuple[Node, int]:
    start = at
    if text[at] in "{[":
        return container(text, at)
    if text[at] == '"':
        end = at + 1
        while text[end] != '"':
            end += 2 if text[end] == "\\" else 1
        end += 1
        return Node("string", json.loads(text[start:end]), text[start:end]), end
    for word, kind, known in (("true", "boolean", True), ("false", "boolean", False), ("null", "null", None)):
        if text.startswith(word, at):
            return Node(kind, known, word), at + len(word)
    for word in ("NaN", "Infinity", "-Infinity"):
        if text.startswith(word, at):
            return Node("number", None, word), at + len(word)
    match = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?").match(text, at)
    if match is None:
        raise ValueError
    return Node("number", None, match.group()), match.end()


def container(text: str, start: int) -> tuple[Node, int]:
    is_object = text[start] == "{"
    closing = "}" if is_object else "]"
    found: Any = {} if is_object else []
    at = blanks(text, start + 1)
    while text[at] != closing:
        if found or text[at] == ",":
            if not found or text[at] != ",":
                raise ValueError
            at = blanks(text, at + 1)
        if is_object:
            key, at = value(text, at)
            at = blanks(text, at)
            if key.kind != "string" or text[at] != ":":
                raise ValueError
            found[key.value], at = value(text, blanks(text, at + 1))
        else:
            item, at = value(text, at)
            found.append(item)
        at = blanks(text, at)
    return Node("object" if is_object else "array", found, text[start : at + 1]), at + 1


def compact(text: str) -> str:
    kept, inside, escaped = [], False, False
    for character in text:
        if inside or character not in " \t\r\n":
            kept.append(character)
        if inside:
            inside = escaped or character != '"'
            escaped = character == "\\" and not escaped
        else:
            inside = character == '"'
    return "".join(kept)


# ---- types


def typed(node: Node | None, of: Any, path: str, changes: list[dict[str, Any]]) -> Any:
    if node is None or node.kind == "null":
        return None
    try:
        return accepted(node, of, path, changes)
    except Nulled as nulled:
        changes.append({"field": path, "change": "NULLED", "reason": str(nulled)})
        return None


def accepted(node: Node, of: Any, path: str, changes: list[dict[str, Any]]) -> Any:  # noqa: C901 - one case per type
    match of:
        case Object(fields) if node.kind == "object":
            return {field.name: typed(node.value.get(field.source), field.type, f"{path}.{field.source}", changes) for field in fields}
        case Array(items) if node.kind == "array":
            return [typed(item, items, f"{path}.[{index}]", changes) for index, item in enumerate(node.value)]
        case SchemalessObject() if node.kind == "object":
            return compact(node.text)
        case SchemalessArray() if node.kind == "array":
            return compact(node.text)
        case Union(options):
            return of_union(node, options, path, changes)
        case Scalar.STRING:
            texts: list[dict[str, Any]] = []
            text = as_text(node, texts)
            changes.extend(change | {"field": path} for change in texts)
            return text
        case Scalar.BOOLEAN if node.kind == "boolean":
            return node.value
        case Scalar.INTEGER if node.kind == "number" or (node.kind == "string" and re.fullmatch("[+-]?[0-9]+", node.value)):
            return integer(node.text.strip('"') if node.kind == "number" else node.value)
        case Scalar.NUMBER if node.kind == "number" or (node.kind == "string" and numeric(node.value)):
            return number(node.text if node.kind == "number" else node.value)
        case Decimal(precision, scale) if node.kind == "number" or (node.kind == "string" and numeric(node.value)):
            return decimal(node.text if node.kind == "number" else node.value, precision, scale, path, changes)
        case Scalar() if node.kind == "string" and of not in (Scalar.BOOLEAN, Scalar.INTEGER, Scalar.NUMBER):
            return temporal(node.value, of)
    raise Nulled(SERIALIZATION)


def as_text(node: Node | None, changes: list[dict[str, Any]]) -> str | None:
    if node is None or node.kind == "null":
        return None
    if node.kind != "string":
        return compact(node.text)
    whole = "".join("\ufffd" if 0xD800 <= ord(character) <= 0xDFFF else character for character in node.value)
    if whole != node.value:
        changes.append({"change": "TRUNCATED", "reason": SERIALIZATION})
    return whole


def exact_value(text: str) -> Fraction:
    """The value of a numeral. Exponents beyond any use are cut, which leaves the value as huge or as tiny as before."""
    match = re.fullmatch(r"([+-]?)([0-9]*)\.?([0-9]*)(?:[eE]([+-]?[0-9]+))?", text)
    if match is None:
        raise Nulled(SERIALIZATION)
    digits = int((match[2] + match[3])[-3000:] or 0)
    exponent = max(-3000, min(3000, int((match[4] or "0")[:12]))) - len(match[3])
    return Fraction(digits) * Fraction(10) ** exponent * (-1 if match[1] == "-" else 1)


def integer(text: str) -> int:
    whole = exact_value(text)
    if whole.denominator != 1:
        raise Nulled(SERIALIZATION)
    if not -(2**63) <= whole < 2**63:
        raise Nulled(SIZE)
    return int(whole)


def numeric(text: str) -> bool:
    return bool(re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text))


def number(text: str) -> float:
    if abs(exact_value(text)) > Fraction("1.7976931348623157e308"):
        raise Nulled(SIZE)
    return 0.0 if text == "-0" else float(text)


def decimal(text: str, precision: int, scale: int, path: str, changes: list[dict[str, Any]]) -> Exact:
    given = exact_value(text) * 10**scale
    unscaled = int(abs(given) + Fraction(1, 2))
    if unscaled >= 10**precision:
        raise Nulled(SIZE)
    if unscaled != abs(given):
        changes.append({"field": path, "change": "TRUNCATED", "reason": SIZE})
    return Exact(f"{'-' if given < 0 and unscaled else ''}{unscaled}E-{scale}")


def of_union(node: Node, options: tuple[Any, ...], path: str, changes: list[dict[str, Any]]) -> dict[str, Any]:
    reasons = [SERIALIZATION]
    for option in candidates(node, options):
        own: list[dict[str, Any]] = []
        try:
            taken = accepted(node, option, path, own)
        except Nulled as nulled:
            reasons.append(str(nulled))
            continue
        changes.extend(own)
        chosen = option_name(option)
        return {"type": chosen} | {option_name(other): taken if other is option else None for other in options}
    raise Nulled(SIZE if SIZE in reasons else SERIALIZATION)


def option_name(option: Any) -> str:
    if isinstance(option, Scalar):
        return option.value
    if isinstance(option, Decimal):
        return "number"
    return "object" if isinstance(option, Object | SchemalessObject) else "array"


def candidates(node: Node, options: tuple[Any, ...]) -> list[Any]:
    integers = [option for option in options if option is Scalar.INTEGER]
    numbers = [option for option in options if option is Scalar.NUMBER or isinstance(option, Decimal)]
    match node.kind:
        case "number":
            return integers + numbers if re.fullmatch("-?[0-9]+", node.text) else numbers + integers
        case "boolean":
            return [option for option in options if option is Scalar.BOOLEAN]
        case "string":
            return [o for o in options if isinstance(o, Scalar) and o not in (Scalar.BOOLEAN, Scalar.INTEGER, Scalar.NUMBER)]
        case "object":
            return [option for option in options if isinstance(option, Object | SchemalessObject)]
    return [option for option in options if isinstance(option, Array | SchemalessArray)]


# ---- dates and times
