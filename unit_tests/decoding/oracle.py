"""The rules of typing once more, in plain Python, one record at a time, for tests to compare the product with.

Written from the rules, sharing no code with the product but the type definitions. Slow and simple on purpose: a recursive parser that
keeps each value's text, a function per type, and dates through the `datetime` module.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

from destination_s3_spark.schema.airbyte_type import Array, Field, Object, Scalar, SchemalessArray, SchemalessObject, Union

SERIALIZATION = "DESTINATION_SERIALIZATION_ERROR"
SIZE = "DESTINATION_FIELD_SIZE_LIMITATION"
DAY_US = 24 * 60 * 60 * 1_000_000
ZONES = {"UTC": 0, "GMT": 0, "Z": 0, "PST": -8, "EST": -5, "CET": 1, "CEST": 2}


class Unreadable(Exception):
    """The line is no record."""


class Nulled(Exception):
    """The value becomes null for this reason."""


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
    return "object" if isinstance(option, Object | SchemalessObject) else "array"


def candidates(node: Node, options: tuple[Any, ...]) -> list[Any]:
    numbers = [Scalar.INTEGER, Scalar.NUMBER] if re.fullmatch("-?[0-9]+", node.text) else [Scalar.NUMBER, Scalar.INTEGER]
    match node.kind:
        case "number":
            return [option for option in numbers if option in options]
        case "boolean":
            return [option for option in options if option is Scalar.BOOLEAN]
        case "string":
            return [o for o in options if isinstance(o, Scalar) and o not in (Scalar.BOOLEAN, Scalar.INTEGER, Scalar.NUMBER)]
        case "object":
            return [option for option in options if isinstance(option, Object | SchemalessObject)]
    return [option for option in options if isinstance(option, Array | SchemalessArray)]


# ---- dates and times


def temporal(text: str, of: Scalar) -> int:
    text = without_blanks_behind(text)
    if "time_of_day" in of.name.lower() or of in (Scalar.TIME_WITH_TIMEZONE, Scalar.TIME_WITHOUT_TIMEZONE):
        time_us, offset = clock(text, None)
        return (time_us - (offset if of is Scalar.TIME_WITH_TIMEZONE else timedelta(0)) // timedelta(microseconds=1)) % DAY_US
    day_text, time_text, era = split_moment(text)
    year, month, day, unsigned_far = calendar(day_text)
    if era == "BC":
        year = 1 - year
    days = day_number(year, month, day)
    if time_text is None:
        if unsigned_far:
            raise Nulled(SIZE)
        if of is not Scalar.DATE:
            raise Nulled(SERIALIZATION)
        time_us, offset = 0, timedelta(0)
    else:
        time_us, offset = clock(time_text, (year, month, day))
        if unsigned_far:
            raise Nulled(SIZE)
    if of is Scalar.DATE:
        stored, bits = days + time_us // DAY_US, 32
    else:
        shift = offset if of is Scalar.TIMESTAMP_WITH_TIMEZONE else timedelta(0)
        stored, bits = days * DAY_US + time_us - shift // timedelta(microseconds=1), 64
    if not -(2 ** (bits - 1)) <= stored < 2 ** (bits - 1):
        raise Nulled(SIZE)
    return stored


def without_blanks_behind(text: str) -> str:
    if len(text) > 120:
        raise Nulled(SERIALIZATION)
    while text.endswith(" "):
        text = text[:-1]
    return text


def split_moment(text: str) -> tuple[str, str | None, str | None]:
    """The date, the time with its zone, and the era, which may stand behind either, once."""
    eras = re.findall(r"BC|AD", text)
    if len(eras) > 1:
        raise Nulled(SERIALIZATION)
    match = re.fullmatch(r"(.*?\d)(?: ?(BC|AD))?(?:(?: T|T| )(\d\d:.*?))?", text)
    if match is None:
        raise Nulled(SERIALIZATION)
    day_text, era, time_text = match.groups()
    if time_text is not None and era is None and (late := re.fullmatch(r"(.*?) ?(BC|AD)", time_text)):
        time_text, era = late.groups()
    return day_text, time_text, era


def calendar(text: str) -> tuple[int, int, int, bool]:
    separator = r"-?/?\.? ?"
    match = re.fullmatch(rf"([+]?)([0-9]+)({separator})([0-9]{{1,2}}|[A-Za-z]{{3}})({separator})([0-9]{{1,2}})", text)
    if match is None:
        raise Nulled(SERIALIZATION)
    sign, digits, before, month_text, behind, day_text = match.groups()
    if month_text.isdigit():
        if not before or not behind:
            raise Nulled(SERIALIZATION)
        month = int(month_text)
    else:
        names = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
        if month_text.capitalize() not in names:
            raise Nulled(SERIALIZATION)
        month = names.index(month_text.capitalize()) + 1
    if (sign and not 5 <= len(digits) <= 19) or len(digits) in (1, 3):
        raise Nulled(SERIALIZATION)
    year = int(digits) + (2000 if len(digits) == 2 else 0)
    if year == 0:
        raise Nulled(SERIALIZATION)
    return year, month, int(day_text), not sign and len(digits) > 4


def day_number(year: int, month: int, day: int) -> int:
    cycles, within = divmod(year - 1, 400)  # the calendar repeats every 400 years of 146097 days
    try:
        return date(within + 1, month, day).toordinal() - date(1970, 1, 1).toordinal() + cycles * 146_097
    except ValueError:
        raise Nulled(SERIALIZATION) from None


def clock(text: str, day: tuple[int, int, int] | None) -> tuple[int, timedelta]:
    """Microseconds of the day and the offset from UTC."""
    match = re.fullmatch(r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{0,9}))?)?(.*)", text)
    if match is None:
        raise Nulled(SERIALIZATION)
    hour, minute, second = int(match[1]), int(match[2]), int(match[3] or 0)
    fraction = int(((match[4] or "") + "000000")[:6])
    spent = timedelta(hours=hour, minutes=minute, seconds=second)
    if minute > 59 or second > 59 or spent > timedelta(days=1) or (hour == 24 and (match[4] or "0").strip("0")):
        raise Nulled(SERIALIZATION)
    zone = match[5].removeprefix(" ")
    if match[5] == " ":
        raise Nulled(SERIALIZATION)
    return spent // timedelta(microseconds=1) + fraction, zone_offset(
        zone, day, hour % 24 if hour < 24 else 23, minute if hour < 24 else 59
    )


def zone_offset(zone: str, day: tuple[int, int, int] | None, hour: int, minute: int) -> timedelta:
    if not zone:
        return timedelta(0)
    numeric_zone = re.fullmatch(r"([+-])([0-9]{2})(?::?([0-9]{2})(?::?([0-9]{2}))?)?", zone)
    if numeric_zone is None:
        numeric_zone = re.fullmatch(r"(?:GMT|UTC|UT)([+-])([0-9]{1,2})(?::?([0-9]{2}))?()", zone)
    if numeric_zone is not None:
        sign, hours, minutes, seconds = numeric_zone.groups()
        size = timedelta(hours=int(hours), minutes=int(minutes or 0), seconds=int(seconds or 0))
        if int(minutes or 0) > 59 or int(seconds or 0) > 59 or size > timedelta(hours=18):
            raise Nulled(SERIALIZATION)
        return -size if sign == "-" else size
    if zone in ZONES:
        return timedelta(0) if day is None else timedelta(hours=ZONES[zone])
    try:
        region = ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        raise Nulled(SERIALIZATION) from None
    if day is None:
        return timedelta(0)
    year = day[0] if 1 <= day[0] <= 9999 else (day[0] % 400 + 9600 if day[0] > 9999 else day[0] % 4 + 4)
    return datetime(year, day[1], day[2], hour, minute, tzinfo=region).utcoffset() or timedelta(0)
