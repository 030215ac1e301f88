"""The rules of dates and times once more, through the `datetime` module, for the oracle of typing."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from destination_s3_spark.schema.airbyte_type import Scalar

SERIALIZATION = "DESTINATION_SERIALIZATION_ERROR"


SIZE = "DESTINATION_FIELD_SIZE_LIMITATION"


DAY_US = 24 * 60 * 60 * 1_000_000


ZONES = {"UTC": 0, "GMT": 0, "Z": 0, "PST": -8, "EST": -5, "CET": 1, "CEST": 2}


class Nulled(Exception):
    """The value becomes null for this reason."""


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
