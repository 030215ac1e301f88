"""Exact parsing of one date, time or timestamp: the lenient forms of destination-s3 and all fractions and offsets of ISO 8601.

    date      `2021-01-02`, `2021/1/2`, `2021.01.02`, `2021 Jan 2`, `21-01-02` (2021), `+10000-01-02`; optionally followed by ` BC` or ` AD`
    time      `HH:mm`, `HH:mm:ss`, up to nine fractional digits; `24:00` is the next day's midnight
    zone      `Z`, `+08`, `+0800`, `+08:00`, `+08:00:00` up to 18 h, `UTC+8`, `PST`, `Europe/Berlin`, optionally preceded by a blank

Date and time are separated by a `T`, a blank, or both. Trailing blanks are ignored. A text without a zone is in UTC. A day that does not
exist is an error and is never moved to another day.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from functools import cache
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

CYCLE_DAYS = 146_097
"""Days of 400 years, after which the calendar repeats. Python's dates are those of 10,000 years only."""

ABBREVIATIONS: Mapping[str, int] = (
    dict.fromkeys(("Z", "UTC", "GMT", "UT", "WET"), 0)
    | {"BST": 1, "WEST": 1, "CET": 1, "MET": 1, "CEST": 2, "MEST": 2, "EET": 2, "EEST": 3, "MSK": 3, "JST": 9, "KST": 9}
    | {"EST": -5, "EDT": -4, "CST": -6, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7, "AKST": -9, "AKDT": -8, "HST": -10}
)
"""UTC offset in hours of each unambiguous zone abbreviation (those of RFC 5322 and of Europe). Ambiguous ones are left out."""


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
    match = (_TIME_OF_DAY if kind in _TIMES else _MOMENT).fullmatch(text.rstrip(" "))
    if match is None:
        return Reason.SERIALIZATION
    try:
        return _time_of_day(kind, match) if kind in _TIMES else _moment(kind, match)
    except ValueError:
        return Reason.SERIALIZATION
    except OverflowError:
        return Reason.SIZE


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


def _time_of_day(kind: Scalar, match: re.Match[str]) -> int:
    """Return the stored value of a time. Raises ValueError for one that does not exist."""
    time_us, zone = _time_us(match), match["zone"]
    if zone and zone not in ABBREVIATIONS and zone not in _zones():
        raise ValueError
    # Without a date, a named zone has no known offset. Drop the zone and keep the local time, as destination-s3 does.
    offset = 0 if zone else _numeric_offset(match)
    return (time_us - offset * SECOND_US if kind is Scalar.TIME_WITH_TIMEZONE else time_us) % DAY_US


def _moment(kind: Scalar, match: re.Match[str]) -> int:
    """Return the stored value of a date or timestamp. Raises ValueError for one that does not exist, OverflowError for one too far away."""
    year = _year(match)
    month = int(match["month"]) if match["month"] else _MONTHS.get(match["name"].lower(), 0)
    day = int(match["day"])
    days = _days_since_1970(year, month, day)
    time_us, offset = 0, 0
    if match["hour"] is not None:
        time_us = _time_us(match)
        offset = _zone_offset(match["zone"], (year, month, day), time_us) if match["zone"] else _numeric_offset(match)
    if len(match["year"]) > 4 and match["year"][0] != "+":
        raise OverflowError  # a year above 9999 needs a sign; without one, Airbyte expects this reason
    if kind is Scalar.DATE:
        return _of_bits(32, days + time_us // DAY_US)
    if match["hour"] is None:
        raise ValueError
    local = days * DAY_US + time_us
    return _of_bits(64, local - offset * SECOND_US if kind is Scalar.TIMESTAMP_WITH_TIMEZONE else local)


def _of_bits(bits: int, value: int) -> int:
    if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise OverflowError
    return value


def _year(match: re.Match[str]) -> int:
    """Return the proleptic year (1 BC is 0). Raises ValueError for a year 0 or two eras."""
    digits = match["year"]
    year = int(digits) + (2000 if len(digits) == 2 else 0) if len(digits) < 25 else 10**25
    eras = [era for era in (match["era"], match["last_era"]) if era]
    if year == 0 or len(eras) > 1:
        raise ValueError
    return 1 - year if eras == ["BC"] else year


def _time_us(match: re.Match[str]) -> int:
    """Return the microseconds of the day, with digits below a microsecond cut. 24:00 is its end. Raises ValueError for an invalid time."""
    hour, minute, second = int(match["hour"]), int(match["minute"]), int(match["second"] or 0)
    nanoseconds = (match["fraction"] or "").ljust(9, "0")
    if minute > 59 or second > 59 or hour > 24 or (hour == 24 and (minute or second or int(nanoseconds))):
        raise ValueError
    return (hour * 3600 + minute * 60 + second) * SECOND_US + int(nanoseconds[:6])


def _numeric_offset(match: re.Match[str]) -> int:
    """Return the offset from UTC in seconds, 0 if the text has none. Raises ValueError for an invalid offset."""
    if match["gmt_sign"]:
        sign, hours, minutes, seconds = match["gmt_sign"], match["gmt_hours"], match["gmt_minutes"], "0"
    elif match["sign"]:
        sign, hours, minutes, seconds = match["sign"], match["hours"], match["minutes"], match["seconds"]
    else:
        return 0
    minute, second = int(minutes or 0), int(seconds or 0)
    size = int(hours) * 3600 + minute * 60 + second
    if minute > 59 or second > 59 or size > OFFSET_MAX_S:
        raise ValueError
    return -size if sign == "-" else size


def _zone_offset(name: str, local_date: tuple[int, int, int], time_us: int) -> int:
    """Return the UTC offset in seconds of a named zone at a local time. Raises ValueError for an unknown zone.

    When clocks are set back, a local time occurs twice. The offset of its first occurrence applies.
    """
    if name in ABBREVIATIONS:
        return ABBREVIATIONS[name] * 3600
    if name not in _zones():
        raise ValueError
    year, month, day = local_date
    # `datetime` is limited to the years 1 to 9999. Zone rules repeat every 400 years, and any year before a zone's first rule gives its
    # local mean time.
    year = 9600 + year % 400 if year > 9999 else max(year, 4 + year % 4)
    minutes = min(time_us // (60 * SECOND_US), 24 * 60 - 1)
    offset = datetime(year, month, day, minutes // 60, minutes % 60).replace(tzinfo=ZoneInfo(name)).utcoffset()
    return int((offset or timedelta()).total_seconds())


@cache
def _zones() -> frozenset[str]:
    names = frozenset(available_timezones())
    if not names:
        raise ConfigError("Named time zones cannot be read: Python has no time zone database. Install the tzdata package on every worker.")
    return names


def _days_since_1970(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01 of a day of the proleptic Gregorian calendar. Raises ValueError for one that does not exist."""
    cycles, of_cycle = divmod(year - 2000, 400)
    return date(2000 + of_cycle, month, day).toordinal() - _EPOCH.toordinal() + cycles * CYCLE_DAYS
