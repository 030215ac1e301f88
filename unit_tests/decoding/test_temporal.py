"""Dates and times as sources write them, by hand."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

from destination_s3_spark.schema.airbyte_type import Scalar
from unit_tests.cases import each

MICROSECOND = 1
SECOND = 1_000_000
HOUR = 3600 * SECOND
DAY = 24 * HOUR
NULLED = "DESTINATION_SERIALIZATION_ERROR"
TOO_LARGE = "DESTINATION_FIELD_SIZE_LIMITATION"


def us(*parts: int) -> int:
    year, month, day, hour, minute, second = (*parts, 0, 0, 0)[:6]
    return int((datetime(year, month, day, hour, minute, second, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()) * SECOND


def days(*parts: int) -> int:
    return (date(*parts) - date(1970, 1, 1)).days


LOCAL = us(2023, 1, 23, 12, 34, 56)


@each(
    ("text", "with_timezone", "without_timezone"),
    [
        ("2023-01-23T12:34:56Z", LOCAL, LOCAL),
        ("2023-01-23T12:34:56", LOCAL, LOCAL),
        ("2023-01-23 12:34:56", LOCAL, LOCAL),
        ("2023-01-23T12:34:56-08:00", LOCAL + 8 * HOUR, LOCAL),
        ("2023-01-23T12:34:56-0800", LOCAL + 8 * HOUR, LOCAL),
        ("2023-01-23T12:34:56-08", LOCAL + 8 * HOUR, LOCAL),
        ("2023-01-23T12:34:56+05:30", LOCAL - 5 * HOUR - HOUR // 2, LOCAL),
        ("2023-01-23T12:34:56 +05:30", LOCAL - 5 * HOUR - HOUR // 2, LOCAL),
        ("2023-01-23T12:34:56+18:00", LOCAL - 18 * HOUR, LOCAL),
        ("2023-01-23T12:34:56+18:01", NULLED, NULLED),
        ("2023-01-23T12:34:56+07:60", NULLED, NULLED),
        ("2023-01-23T12:34:56 UTC", LOCAL, LOCAL),
        ("2023-01-23T12:34:56 PST", LOCAL + 8 * HOUR, LOCAL),
        ("2023-01-23T12:34:56Europe/Berlin", LOCAL - HOUR, LOCAL),
        ("2023-07-23T12:34:56 Europe/Berlin", us(2023, 7, 23, 10, 34, 56), us(2023, 7, 23, 12, 34, 56)),
        ("2023-01-23T12:34:56 Middle/Earth", NULLED, NULLED),
        ("2023-01-23T12:34", LOCAL - 56 * SECOND, LOCAL - 56 * SECOND),
        ("2023-01-23T12:34Z", LOCAL - 56 * SECOND, LOCAL - 56 * SECOND),
        ("2023-01-23T12:34:56.1Z", LOCAL + 100_000, LOCAL + 100_000),
        ("2023-01-23T12:34:56.12Z", LOCAL + 120_000, LOCAL + 120_000),
        ("2023-01-23T12:34:56.123456Z", LOCAL + 123_456, LOCAL + 123_456),
        ("2023-01-23T12:34:56.123456999Z", LOCAL + 123_456, LOCAL + 123_456),
        ("2023-01-23T12:34:56.1234567890Z", NULLED, NULLED),
        ("2023-01-23T24:00:00Z", us(2023, 1, 24), us(2023, 1, 24)),
        ("2023-01-23T24:00:01Z", NULLED, NULLED),
        ("2023-01-23T12:34:60Z", NULLED, NULLED),
        ("2023-02-30T00:00:00Z", NULLED, NULLED),
        ("2023-13-01T00:00:00Z", NULLED, NULLED),
        ("0001-01-01T00:00:00Z", us(1, 1, 1), us(1, 1, 1)),
        ("0001-01-01T00:00:00+01:00", us(1, 1, 1) - HOUR, us(1, 1, 1)),
        ("0000-01-01T00:00:00Z", NULLED, NULLED),
        ("0001-01-01T00:00:00Z BC", us(1, 1, 1) - 366 * DAY, us(1, 1, 1) - 366 * DAY),
        ("9999-12-31T23:59:59.999999999Z", us(9999, 12, 31, 23, 59, 59) + 999_999, us(9999, 12, 31, 23, 59, 59) + 999_999),
        ("+10000-01-01T00:00:00Z", us(9999, 12, 31) + DAY, us(9999, 12, 31) + DAY),
        ("10000-01-01T00:00Z", TOO_LARGE, TOO_LARGE),
        ("+294247-01-10T04:00:54.775807Z", 2**63 - 1, 2**63 - 1),
        ("+294247-01-10T04:00:54.775808Z", TOO_LARGE, TOO_LARGE),
        ("2023-01-23", NULLED, NULLED),
        ("2023-01-23t12:34:56z", NULLED, NULLED),
        ("2023-01-23T12:34:56,5Z", NULLED, NULLED),
        ("2023-01-23T12:34:56Z[UTC]", NULLED, NULLED),
        ("20230123T123456Z", NULLED, NULLED),
        ("1674477296", NULLED, NULLED),
        ("infinity", NULLED, NULLED),
        ("", NULLED, NULLED),
        ("2023-01-23T12:34:56Z ", LOCAL, LOCAL),
        ("2023-01-23 12:34:56   ", LOCAL, LOCAL),
        ("2023-01-23T12:34:56 PST ", LOCAL + 8 * HOUR, LOCAL),
        (" 2023-01-23T12:34:56Z", NULLED, NULLED),
        ("2023-01-23T12:34:56Z\t", NULLED, NULLED),
        ("2023-01-23T12:34:56Z" + " " * 100_000, NULLED, NULLED),
    ],
)
def test_timestamps(text: str, with_timezone: int | str, without_timezone: int | str, one_value: Any, json_text: Any) -> None:
    for of, expected in ((Scalar.TIMESTAMP_WITH_TIMEZONE, with_timezone), (Scalar.TIMESTAMP_WITHOUT_TIMEZONE, without_timezone)):
        assert result(one_value(of, json_text(text))) == expected


@each(
    ("text", "with_timezone", "without_timezone"),
    [
        ("12:34:56", 45_296 * SECOND, 45_296 * SECOND),
        ("12:34", 45_240 * SECOND, 45_240 * SECOND),
        ("12:34Z", 45_240 * SECOND, 45_240 * SECOND),
        ("11:34:56-01:00", 45_296 * SECOND, 41_696 * SECOND),
        ("04:00:00+05:30", 81_000 * SECOND, 14_400 * SECOND),
        ("23:59:59.999999999Z", DAY - MICROSECOND, DAY - MICROSECOND),
        ("24:00", 0, 0),
        ("01:01:01 PST", 3_661 * SECOND, 3_661 * SECOND),
        ("12:34:56 ", 45_296 * SECOND, 45_296 * SECOND),
        ("24:01", NULLED, NULLED),
        ("1:02", NULLED, NULLED),
        ("2023-01-23T12:34:56Z", NULLED, NULLED),
    ],
)
def test_times_of_day(text: str, with_timezone: int | str, without_timezone: int | str, one_value: Any, json_text: Any) -> None:
    for of, expected in ((Scalar.TIME_WITH_TIMEZONE, with_timezone), (Scalar.TIME_WITHOUT_TIMEZONE, without_timezone)):
        assert result(one_value(of, json_text(text))) == expected


@each(
    ("text", "expected"),
    [
        ("2021-01-02", days(2021, 1, 2)),
        ("2021/01/02", days(2021, 1, 2)),
        ("2021.01.03", days(2021, 1, 3)),
        ("2021 Jan 04", days(2021, 1, 4)),
        ("21-01-01", days(2021, 1, 1)),
        ("2021-1-1", days(2021, 1, 1)),
        ("2021-1-1 BC", days(1, 1, 1) - (2021 * 365 + 491)),
        ("2024-02-29", days(2024, 2, 29)),
        ("2021-01-02 ", days(2021, 1, 2)),
        ("2021-1-1 BC  ", days(1, 1, 1) - (2021 * 365 + 491)),
        (" ", NULLED),
        ("2021-02-29", NULLED),
        ("1900-02-29", NULLED),
        ("0000-01-01", NULLED),
        ("-0001-01-01", NULLED),
        ("2021-01-02T23:59:59-08:00", days(2021, 1, 2)),
        ("2021-01-02T24:00:00", days(2021, 1, 3)),
        ("2021-01-02T25:00:00", NULLED),
        ("2021-01-02Z", NULLED),
        ("+5881580-07-11", 2**31 - 1),
        ("+5881580-07-12", TOO_LARGE),
        ("10000-01-01", TOO_LARGE),
        ("20210101", NULLED),
    ],
)
def test_dates(text: str, expected: int | str, one_value: Any, json_text: Any) -> None:
    assert result(one_value(Scalar.DATE, json_text(text))) == expected


def result(typed: tuple[Any, list[dict[str, Any]]]) -> Any:
    value, changes = typed
    if value is not None:
        assert changes == []
        return value
    (change,) = changes
    assert (change["field"], change["change"]) == ("x", "NULLED")
    return change["reason"]
