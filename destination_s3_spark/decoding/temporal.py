"""Exact parsing of one date, time or timestamp: the lenient forms of destination-s3 and all fractions and offsets of ISO 8601.

    date      `2021-01-02`, `2021/1/2`, `2021.01.02`, `2021 Jan 2`, `21-01-02` (2021), `+10000-01-02`; optionally followed by ` BC` or ` AD`
    time      `HH:mm`, `HH:mm:ss`, up to nine fractional digits; `24:00` is the next day's midnight
    zone      `Z`, `+08`, `+0800`, `+08:00`, `+08:00:00` up to 18 h, `UTC+8`, `PST`, `Europe/Berlin`, optionally preceded by a blank

Date and time are separated by a `T`, a blank, or both. Trailing blanks are ignored. A text without a zone is in UTC. A day that does not
exist is an error and is never moved to another day.
"""

from __future__ import annotations

import re
from calendar import isleap
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from destination_s3_spark.decoding.changes import Reason
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.schema.airbyte_type import Scalar

DAY_US = 86_400_000_000
"""Microseconds in a day."""
SECOND_US = 1_000_000
OFFSET_MAX_S = 18 * 3600
"""The largest offset from UTC, as in java.time, with which destination-s3 parses."""

BEYOND_DATE = r"[1-9]:|[1-9]\d:|\d:.*[1-9]"
"""Regex that matches the text of a date if it has a time of day or an offset other than zero."""
BEYOND_MICROSECONDS = r"\.\d{6}\d*[1-9]"
"""Regex that matches the text of a time if it has nonzero digits below a microsecond, which are cut."""
_LONGEST_TEXT = 120
"""Length above which a text is refused unparsed. The longest zone name has 32 characters."""

TEMPORAL = frozenset(
    (
        Scalar.DATE,
        Scalar.TIME_WITH_TIMEZONE,
        Scalar.TIME_WITHOUT_TIMEZONE,
        Scalar.TIMESTAMP_WITH_TIMEZONE,
        Scalar.TIMESTAMP_WITHOUT_TIMEZONE,
    )
)
_TIMES = frozenset((Scalar.TIME_WITH_TIMEZONE, Scalar.TIME_WITHOUT_TIMEZONE))

_USUAL = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|[+-]\d\d:[0-5]\d)?)?", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND, _OFFSET_MAX = timedelta(microseconds=1), timedelta(seconds=OFFSET_MAX_S)

_ERA = r"(?: ?(?P<{}>BC|AD))?"
_SEPARATOR = r"-?/?\.? ?"
_DATE = (
    rf"(?P<year>\+\d{{5,19}}|\d{{2}}|\d{{4,}})(?:(?=[-/. ]){_SEPARATOR}(?P<month>\d{{1,2}})(?=[-/. ])|{_SEPARATOR}(?P<name>[A-Za-z]{{3}}))"
    rf"{_SEPARATOR}(?P<day>\d{{1,2}})(?!\d)" + _ERA.format("era")
)
_ZONE = (
    r"(?: ?(?:(?P<sign>[+-])(?P<hours>\d{2})(?::?(?P<minutes>\d{2})(?::?(?P<seconds>\d{2}))?)?"
    r"|(?:GMT|UTC|UT)(?P<gmt_sign>[+-])(?P<gmt_hours>\d{1,2})(?::?(?P<gmt_minutes>\d{2}))?"
    r"|(?P<zone>[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*?)))??"
)
_TIME = r"(?P<hour>\d{2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:\.(?P<fraction>\d{0,9}))?)?" + _ZONE
_MOMENT = re.compile(rf"{_DATE}(?:(?: ?T| ){_TIME}{_ERA.format('last_era')})?", re.ASCII)
_TIME_OF_DAY = re.compile(_TIME, re.ASCII)

_MONTHS = {"jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6, "jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11, "dec": 12}
_MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)

ABBREVIATIONS: Mapping[str, int] = (
    dict.fromkeys(("Z", "UTC", "GMT", "UT", "WET"), 0)
    | {"BST": 1, "WEST": 1, "CET": 1, "MET": 1, "CEST": 2, "MEST": 2, "EET": 2, "EEST": 3, "MSK": 3, "JST": 9, "KST": 9}
    | {"EST": -5, "EDT": -4, "CST": -6, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7, "AKST": -9, "AKDT": -8, "HST": -10}
)
"""UTC offset in hours of each unambiguous zone abbreviation (those of RFC 5322 and of Europe). Ambiguous ones are left out."""


class Moment(NamedTuple):
    """A parsed text.

    `days` counts from 1970-01-01 and is 0 for a time of day. `time_us` is in microseconds of that day, or None for a date alone. `offset_s`
    is the offset from UTC in seconds.
    """

    days: int
    time_us: int | None
    offset_s: int


def temporal(kind: Scalar, text: str) -> int | Reason:
    """Parse a text to its stored value, or return the Reason why it becomes null.

    The stored value is in days since the epoch for a date, in microseconds since the epoch for a timestamp, and in microseconds of the day
    for a time.
    """
    if len(text) > _LONGEST_TEXT:
        return Reason.SERIALIZATION
    usual = _usual(kind, text)
    if usual is not None:
        return usual
    text = text.rstrip(" ")
    if kind in _TIMES:
        match = _TIME_OF_DAY.fullmatch(text)
        moment = Reason.SERIALIZATION if match is None else _time_of_day(match)
    else:
        match = _MOMENT.fullmatch(text)
        moment = Reason.SERIALIZATION if match is None else _moment(match)
    return moment if isinstance(moment, Reason) else _stored(kind, moment)


def _usual(kind: Scalar, text: str) -> int | None:
    """Parse the usual forms, several times as fast. Return None for any other form, and for a value that does not exist."""
    if kind in _TIMES or not _USUAL.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if abs(moment.utcoffset() or timedelta()) > _OFFSET_MAX:
        return None
    if kind is Scalar.DATE:
        return moment.toordinal() - _EPOCH.toordinal()
    if len(text) == len("yyyy-MM-dd"):
        return None
    if kind is Scalar.TIMESTAMP_WITHOUT_TIMEZONE or moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MICROSECOND


def _stored(kind: Scalar, moment: Moment) -> int | Reason:
    if kind is Scalar.DATE:
        days = moment.days + (moment.time_us or 0) // DAY_US
        return days if -(2**31) <= days < 2**31 else Reason.SIZE
    if moment.time_us is None:
        return Reason.SERIALIZATION
    if kind is Scalar.TIME_WITHOUT_TIMEZONE:
        return moment.time_us % DAY_US
    if kind is Scalar.TIME_WITH_TIMEZONE:
        return (moment.time_us - moment.offset_s * SECOND_US) % DAY_US
    local = moment.days * DAY_US + moment.time_us
    value = local - moment.offset_s * SECOND_US if kind is Scalar.TIMESTAMP_WITH_TIMEZONE else local
    return value if -(2**63) <= value < 2**63 else Reason.SIZE


def _time_of_day(match: re.Match[str]) -> Moment | Reason:
    time_us = _time_us(match)
    if time_us is None:
        return Reason.SERIALIZATION
    if match["zone"]:
        # Without a date, a named zone has no known offset. Drop the zone and keep the local time, as destination-s3 does.
        return Moment(0, time_us, 0) if match["zone"] in ABBREVIATIONS or match["zone"] in _zones() else Reason.SERIALIZATION
    offset = _numeric_offset(match)
    return Reason.SERIALIZATION if offset is None else Moment(0, time_us, offset)


def _moment(match: re.Match[str]) -> Moment | Reason:
    year = _year(match)
    month = int(match["month"]) if match["month"] else _MONTHS.get(match["name"].lower(), 0)
    day = int(match["day"])
    if year is None or not 1 <= month <= 12 or not 1 <= day <= _MONTH_DAYS[month - 1] + (month == 2 and isleap(year)):
        return Reason.SERIALIZATION
    time_us, offset = None, None
    if match["hour"] is not None:
        time_us = _time_us(match)
        if time_us is None:
            return Reason.SERIALIZATION
        offset = _zone_offset(match["zone"], (year, month, day), time_us) if match["zone"] else _numeric_offset(match)
        if offset is None:
            return Reason.SERIALIZATION
    if len(match["year"]) > 4 and match["year"][0] != "+":
        return Reason.SIZE  # a year above 9999 needs a sign; without one, Airbyte expects this reason
    return Moment(days_from_civil(year, month, day), time_us, offset or 0)


def _year(match: re.Match[str]) -> int | None:
    """Return the proleptic year (1 BC is 0), or None for a year 0 or two eras."""
    digits = match["year"]
    year = int(digits) + (2000 if len(digits) == 2 else 0) if len(digits) < 25 else 10**25
    eras = [era for era in (match["era"], match["last_era"]) if era]
    if year == 0 or len(eras) > 1:
        return None
    return 1 - year if eras == ["BC"] else year


def _time_us(match: re.Match[str]) -> int | None:
    """Return the microseconds of the day, with digits below a microsecond cut, or None for an invalid time.

    24:00 is the end of the day.
    """
    hour, minute, second = int(match["hour"]), int(match["minute"]), int(match["second"] or 0)
    nanoseconds = (match["fraction"] or "").ljust(9, "0")
    if minute > 59 or second > 59 or hour > 24 or (hour == 24 and (minute or second or int(nanoseconds))):
        return None
    return (hour * 3600 + minute * 60 + second) * SECOND_US + int(nanoseconds[:6])


def _numeric_offset(match: re.Match[str]) -> int | None:
    """Return the offset from UTC in seconds, 0 if the text has none, or None for an invalid offset."""
    if match["gmt_sign"]:
        sign, hours, minutes, seconds = match["gmt_sign"], match["gmt_hours"], match["gmt_minutes"], "0"
    elif match["sign"]:
        sign, hours, minutes, seconds = match["sign"], match["hours"], match["minutes"], match["seconds"]
    else:
        return 0
    minute, second = int(minutes or 0), int(seconds or 0)
    size = int(hours) * 3600 + minute * 60 + second
    if minute > 59 or second > 59 or size > OFFSET_MAX_S:
        return None
    return -size if sign == "-" else size


def _zone_offset(name: str, date: tuple[int, int, int], time_us: int) -> int | None:
    """Return the UTC offset in seconds of a named zone at a local time, or None for an unknown zone.

    When clocks are set back, a local time occurs twice. The offset of its first occurrence applies.
    """
    if name in ABBREVIATIONS:
        return ABBREVIATIONS[name] * 3600
    if name not in _zones():
        return None
    year, month, day = date
    # `datetime` is limited to the years 1 to 9999. Zone rules repeat every 400 years, and any year before a zone's first rule gives its
    # local mean time.
    year = 9600 + year % 400 if year > 9999 else max(year, 4 + year % 4)
    minutes = min(time_us // (60 * SECOND_US), 24 * 60 - 1)
    offset = datetime(year, month, day, minutes // 60, minutes % 60).replace(tzinfo=ZoneInfo(name)).utcoffset()
    return None if offset is None else int(offset.total_seconds())


@cache
def _zones() -> frozenset[str]:
    names = frozenset(available_timezones())
    if not names:
        raise ConfigError("Named time zones cannot be read: Python has no time zone database. Install the tzdata package on every worker.")
    return names


def days_from_civil(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01 of a day of the proleptic Gregorian calendar, in any year."""
    years = year - (month <= 2)
    era, year_of_era = divmod(years, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468
