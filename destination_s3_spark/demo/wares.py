"""What the demo shop sells and to whom: for each stream the declared schema and, per field, a pool of ready JSON texts to draw from."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from random import Random
from typing import Any

Schema = dict[str, Any]

STRING: Schema = {"type": ["null", "string"]}
BOOLEAN: Schema = {"type": ["null", "boolean"]}
INTEGER: Schema = {"type": ["null", "integer"]}
NUMBER: Schema = {"type": ["null", "number"]}
DATE: Schema = {"type": ["null", "string"], "format": "date"}
TIME: Schema = {"type": ["null", "string"], "format": "time", "airbyte_type": "time_without_timezone"}
TIMESTAMP_WITH_TIMEZONE: Schema = {"type": ["null", "string"], "format": "date-time", "airbyte_type": "timestamp_with_timezone"}
TIMESTAMP_WITHOUT_TIMEZONE: Schema = {"type": ["null", "string"], "format": "date-time", "airbyte_type": "timestamp_without_timezone"}
ANY_OBJECT: Schema = {"type": ["null", "object"]}

POOL = 2_000
"""Distinct texts per field, so that a dictionary page does not swallow whole columns for free in a benchmark."""

_WORDS = (
    "amber anchor birch bright cedar clear copper coral crisp dawn dune ember fern field flint garden glass gold grain harbour hazel indigo iris "
    "ivory jade juniper lake lantern linen maple marble meadow mint moss north oak ocean olive pearl pine plain plum quartz quiet rain reed ridge "
    "river rose rowan sage sand silver slate snow spruce stone summer thistle timber tulip velvet violet walnut willow winter wool"
).split()
_FIRST_NAMES = (
    "Ada Björn Chen Daria Emil Fatou Grace Hana Ines João Kofi Léa Mina Nils Olga Priya Rosa Sven Tomás Ursula Wei Yusuf Zoë".split()
)
_LAST_NAMES = (
    "Andersen Brown Costa Díaz Eriksen Fischer García Haddad Ivanova Jensen Kim López Müller Nakamura Okafor Petrov Rossi Šimić".split()
)
_CITIES = "Aarhus Bergen Córdoba Dakar Essen Fukuoka Graz Haifa Izmir Kraków Lyon Málaga Nantes Oslo Porto Québec Rīga Seoul Turku Utrecht".split()
_COUNTRIES = "AT CA CH DE DK ES FI FR GB GH IL IT JP KR LV NL NO PL PT SE SN TR US".split()
_ZONES = ("Z", "+00:00", "+02:00", "-05:00", "+09:00", "+05:30")


@dataclass(frozen=True, slots=True)
class Column:
    """A field of a stream: its JSON schema, the JSON texts its values are drawn from, and texts that do not fit the schema."""

    name: str
    schema: Schema
    texts: tuple[str, ...]
    misfits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ware:
    """One stream of the shop. Its records also have `id` (the primary key) and `updated_at` (the cursor), before the columns."""

    name: str
    columns: tuple[Column, ...]


def stock(seed: int, dirty_share: float) -> tuple[Ware, ...]:
    """The three streams. About `dirty_share` of the records of each have one value that does not fit its declared type."""
    makers = {"customers": _customers, "products": _products, "orders": _orders}
    return tuple(Ware(name, _soil(maker(Random(f"{seed} {name}")), dirty_share)) for name, maker in makers.items())


def _soil(columns: tuple[Column, ...], share: float) -> tuple[Column, ...]:
    """The columns with misfits among their texts, so that together they spoil the given share of the records."""
    dirty = sum(bool(column.misfits) for column in columns)
    soiled = []
    for column in columns:
        misfits = round(POOL * share / dirty) if column.misfits else 0
        spread = tuple(column.misfits[place % len(column.misfits)] for place in range(misfits))
        soiled.append(replace(column, texts=column.texts[misfits:] + spread))
    return tuple(soiled)


def _customers(rng: Random) -> tuple[Column, ...]:
    location = _object(lat=NUMBER, lon=NUMBER)
    return (
        Column("first_name", STRING, _drawn(rng, _FIRST_NAMES)),
        Column("last_name", STRING, _drawn(rng, _LAST_NAMES)),
        Column("email", STRING, _pool(lambda: f"{_slug(rng)}@example.com")),
        Column("phone", STRING, _or_null(rng, 0.2, lambda: f"+{rng.randrange(10, 99)} {rng.randrange(10**8, 10**9)}")),
        Column("birth_date", DATE, _pool(lambda: _day(rng, 1940, 66)), ('"1987-02-30"', '"unknown"')),
        Column("registered_at", TIMESTAMP_WITH_TIMEZONE, _pool(lambda: _instant(rng) + rng.choice(_ZONES))),
        Column("last_visit", TIMESTAMP_WITHOUT_TIMEZONE, _or_null(rng, 0.3, lambda: _instant(rng))),
        Column("active", BOOLEAN, _pool(lambda: rng.random() < 0.9), ('"perhaps"',)),
        Column("loyalty_points", INTEGER, _pool(lambda: rng.randrange(0, 250_000)), ("18446744073709551616", '"many"')),
        Column("credit_limit", NUMBER, _or_null(rng, 0.5, lambda: rng.randrange(0, 10**6) / 100)),
        Column("language", STRING, _drawn(rng, ("da", "de", "en", "es", "fr", "ja", "pl", "pt"))),
        Column("address", _ADDRESS_SCHEMA, _pool(lambda: _address(rng))),
        Column("location", location, _or_null(rng, 0.1, lambda: {"lat": _degrees(rng, 90), "lon": _degrees(rng, 180)})),
        Column("interests", _array(STRING), _pool(lambda: rng.sample(_WORDS, rng.randrange(0, 5)))),
        Column("preferences", ANY_OBJECT, _pool(lambda: _preferences(rng))),
        Column("referrer_id", INTEGER, _or_null(rng, 0.7, lambda: rng.randrange(1, 10**6))),
        Column("note", STRING, _or_null(rng, 0.4, lambda: _sentence(rng, 6, 24))),
    )


def _products(rng: Random) -> tuple[Column, ...]:
    size = _object(length_cm=NUMBER, width_cm=NUMBER, height_cm=NUMBER)
    supplier = _object(name=STRING, country=STRING, contact=_object(email=STRING, phone=STRING))
    return (
        Column("sku", STRING, _pool(lambda: f"{rng.choice(_WORDS)[:3].upper()}-{rng.randrange(10**5, 10**6)}")),
        Column("name", STRING, _pool(lambda: _sentence(rng, 2, 5).title())),
        Column("note", STRING, _pool(lambda: _sentence(rng, 12, 30))),
        Column("category", STRING, _drawn(rng, ("bath", "bedroom", "books", "garden", "kitchen", "lighting", "office", "toys"))),
        Column("price", NUMBER, _pool(lambda: rng.randrange(100, 500_000) / 100), ('"on request"', "true")),
        Column("cost", NUMBER, _or_null(rng, 0.1, lambda: rng.randrange(50, 250_000) / 100)),
        Column("currency", STRING, _drawn(rng, ("DKK", "EUR", "GBP", "JPY", "USD"))),
        Column("in_stock", INTEGER, _pool(lambda: rng.randrange(0, 5_000)), ("12.5", "99999999999999999999")),
        Column("weight_kg", NUMBER, _pool(lambda: rng.randrange(1, 40_000) / 1000)),
        Column("size", size, _pool(lambda: {name: rng.randrange(1, 3000) / 10 for name in ("length_cm", "width_cm", "height_cm")})),
        Column("colours", _array(STRING), _pool(lambda: rng.sample(_WORDS, rng.randrange(1, 5)))),
        Column("attributes", ANY_OBJECT, _pool(lambda: _preferences(rng))),
        Column("available", BOOLEAN, _pool(lambda: rng.random() < 0.8)),
        Column("launched_on", DATE, _pool(lambda: _day(rng, 2015, 11))),
        Column("discontinued_on", DATE, _or_null(rng, 0.9, lambda: _day(rng, 2020, 6)), ('"2024-13-01"',)),
        Column("dispatch_until", TIME, _pool(lambda: f"{rng.randrange(24):02}:{rng.randrange(0, 60, 5):02}:00")),
        Column("rating", NUMBER, _or_null(rng, 0.2, lambda: rng.randrange(10, 51) / 10)),
        Column("supplier", supplier, _pool(lambda: _supplier(rng))),
    )


def _orders(rng: Random) -> tuple[Column, ...]:
    line = _object(product_id=INTEGER, quantity=INTEGER, unit_price=NUMBER, gift=BOOLEAN)
    payment = _object(method=STRING, reference=STRING, captured=BOOLEAN)
    spoilt = (_text([_order_line(rng), {**_order_line(rng), "quantity": "a dozen"}]), '"none"')
    return (
        Column("customer_id", INTEGER, _pool(lambda: rng.randrange(1, 10**6)), ('"guest"',)),
        Column("status", STRING, _drawn(rng, ("new", "paid", "packed", "shipped", "delivered", "returned"))),
        Column("channel", STRING, _drawn(rng, ("app", "phone", "shop", "web"))),
        Column("currency", STRING, _drawn(rng, ("DKK", "EUR", "GBP", "JPY", "USD"))),
        Column("total", NUMBER, _pool(lambda: rng.randrange(100, 10**6) / 100)),
        Column("tax", NUMBER, _pool(lambda: rng.randrange(0, 10**5) / 100)),
        Column("discount", NUMBER, _or_null(rng, 0.8, lambda: rng.randrange(1, 5_000) / 100)),
        Column("placed_at", TIMESTAMP_WITH_TIMEZONE, _pool(lambda: _instant(rng) + rng.choice(_ZONES)), ('"2026-02-30T25:61:00Z"',)),
        Column("paid_at", TIMESTAMP_WITH_TIMEZONE, _or_null(rng, 0.2, lambda: _instant(rng) + "Z")),
        Column("packed_at", TIMESTAMP_WITHOUT_TIMEZONE, _or_null(rng, 0.4, lambda: _instant(rng))),
        Column("deliver_on", DATE, _or_null(rng, 0.3, lambda: _day(rng, 2026, 1))),
        Column("lines", _array(line), _pool(lambda: [_order_line(rng) for _ in range(rng.randrange(1, 4))]), spoilt),
        Column("ship_to", _ADDRESS_SCHEMA, _pool(lambda: _address(rng))),
        Column("payment", payment, _pool(lambda: _payment(rng))),
        Column("coupons", _array(STRING), _pool(lambda: [rng.choice(_WORDS).upper() for _ in range(rng.choice((0, 0, 0, 1, 2)))])),
        Column("gift", BOOLEAN, _pool(lambda: rng.random() < 0.1)),
        Column("device", ANY_OBJECT, _or_null(rng, 0.1, lambda: _preferences(rng))),
        Column("note", STRING, _or_null(rng, 0.8, lambda: _sentence(rng, 4, 16))),
    )


def _object(**properties: Schema) -> Schema:
    return {"type": ["null", "object"], "properties": properties}


def _array(items: Schema) -> Schema:
    return {"type": ["null", "array"], "items": items}


_ADDRESS_SCHEMA = _object(street=STRING, city=STRING, postcode=STRING, country=STRING)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _pool(make: Callable[[], Any]) -> tuple[str, ...]:
    return tuple(_text(make()) for _ in range(POOL))


def _or_null(rng: Random, null_share: float, make: Callable[[], Any]) -> tuple[str, ...]:
    return _pool(lambda: None if rng.random() < null_share else make())


def _drawn(rng: Random, values: Sequence[str]) -> tuple[str, ...]:
    return _pool(lambda: rng.choice(values))


def _day(rng: Random, first_year: int, years: int) -> str:
    return (date(first_year, 1, 1) + timedelta(days=rng.randrange(365 * years))).isoformat()


def _instant(rng: Random) -> str:
    moment = datetime(2024, 1, 1) + timedelta(milliseconds=rng.randrange(2 * 365 * 86_400_000))
    return moment.isoformat(timespec="milliseconds")


def _degrees(rng: Random, most: int) -> float:
    return round(rng.uniform(-most, most), 6)


def _slug(rng: Random) -> str:
    return f"{rng.choice(_WORDS)}.{rng.choice(_WORDS)}{rng.randrange(10_000)}"


def _sentence(rng: Random, fewest: int, most: int) -> str:
    return " ".join(rng.choices(_WORDS, k=rng.randrange(fewest, most))).capitalize()


def _address(rng: Random) -> dict[str, str]:
    return {
        "street": f"{rng.choice(_WORDS).title()} street {rng.randrange(1, 400)}",
        "city": rng.choice(_CITIES),
        "postcode": f"{rng.randrange(1_000, 100_000)}",
        "country": rng.choice(_COUNTRIES),
    }


def _supplier(rng: Random) -> dict[str, Any]:
    contact = {"email": f"{_slug(rng)}@example.net", "phone": f"+{rng.randrange(10**9, 10**10)}"}
    return {"name": _sentence(rng, 2, 4).title(), "country": rng.choice(_COUNTRIES), "contact": contact}


def _order_line(rng: Random) -> dict[str, Any]:
    return {
        "product_id": rng.randrange(1, 10**5),
        "quantity": rng.randrange(1, 13),
        "unit_price": rng.randrange(100, 50_000) / 100,
        "gift": rng.random() < 0.1,
    }


def _payment(rng: Random) -> dict[str, Any]:
    return {
        "method": rng.choice(("card", "invoice", "transfer")),
        "reference": f"{rng.getrandbits(64):016x}",
        "captured": rng.random() < 0.9,
    }


def _preferences(rng: Random) -> dict[str, Any]:
    """An object without a declared shape: any names, any types."""
    chosen: dict[str, Any] = {word: rng.choice((True, rng.randrange(1_000), rng.choice(_WORDS))) for word in rng.sample(_WORDS, 2)}
    return chosen | {"nested": {"depth": rng.randrange(5), "list": [rng.randrange(100) for _ in range(2)]}}


def moments(minute: int, first: int, count: int) -> list[str]:
    """Timestamps as JSON texts for `count` records from place `first` of a minute, `minute` minutes after the shop opened."""
    text = (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minute)).strftime('"%Y-%m-%dT%H:%M:')
    return [f'{text}{place * 60 // 1000:02}.{place * 60 % 1000:03}Z"' for place in range(first, first + count)]
