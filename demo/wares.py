"""Streams of the demo shop: for each one the declared schema and, per field, pools of prepared JSON texts."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from functools import lru_cache
from random import Random
from typing import Any

Schema = dict[str, Any]
Parts = tuple[tuple[str, ...], ...]

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
"""Texts per pool: more than twice the records of one stream in a chunk."""

_WORDS = (
    *(
        "amber",
        "anchor",
        "birch",
        "bright",
        "cedar",
        "clear",
        "copper",
        "coral",
        "crisp",
        "dawn",
        "dune",
        "ember",
        "fern",
        "field",
        "flint",
    ),
    *("garden", "glass", "gold", "grain", "harbour", "hazel", "indigo", "iris", "ivory", "jade", "juniper", "lake", "lantern", "linen"),
    *("maple", "marble", "meadow", "mint", "moss", "north", "oak", "ocean", "olive", "pearl", "pine", "plain", "plum", "quartz", "quiet"),
    *("rain", "reed", "ridge", "river", "rose", "rowan", "sage", "sand", "silver", "slate", "snow", "spruce", "stone", "thistle", "wool"),
)
_FIRST_NAMES = ("Ada", "Björn", "Chen", "Emil", "Fatou", "Grace", "Inés", "João", "Kofi", "Léa", "Olga", "Priya", "Yusuf", "Zoë")
_LAST_NAMES = ("Brown", "Costa", "Díaz", "García", "Haddad", "Ivanova", "Jensen", "Kim", "López", "Müller", "Okafor", "Rossi", "Šimić")
_CITIES = ("Aarhus", "Bergen", "Córdoba", "Dakar", "Fukuoka", "Graz", "Haifa", "Izmir", "Kraków", "Lyon", "Porto", "Québec", "Rīga")
_COUNTRIES = ("AT", "CA", "DE", "DK", "ES", "FI", "FR", "GB", "GH", "IL", "JP", "KR", "LV", "NL", "NO", "PL", "PT", "SE", "US")
_CURRENCIES = ("DKK", "EUR", "GBP", "JPY", "USD")
_ZONES = ("Z", "+00:00", "+02:00", "-05:00", "+09:00", "+05:30")


@dataclass(frozen=True, slots=True)
class Column:
    """A field of a stream.

    A value is the concatenation of one text from each pool in `parts`, which is JSON. Two pools give values that hardly repeat. `misfits`
    may replace texts of the last pool; the values are still JSON but do not fit the schema.
    """

    name: str
    schema: Schema
    parts: Parts
    misfits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ware:
    """A stream of the shop. Its records also have `id` (the primary key) and `updated_at` (the cursor), before the columns."""

    name: str
    columns: tuple[Column, ...]


class Season(Enum):
    """The time of the shop's life, by which its streams' columns change."""

    FIRST = "first"
    LATER = "later"
    """Products have a packaging, and customers a preferred shop."""


@lru_cache(maxsize=8)
def stock(seed: int, dirty_share: float, season: Season = Season.FIRST) -> tuple[Ware, ...]:
    """Return the three streams. About `dirty_share` of each stream's records have one value that does not fit its declared type."""
    makers = {"customers": _customers, "products": _products, "orders": _orders}
    return tuple(Ware(name, _soil(maker(seeded(seed, name)) + _new(seed, name, season), dirty_share)) for name, maker in makers.items())


def _new(seed: int, name: str, season: Season) -> tuple[Column, ...]:
    """Return the columns that a stream has later only."""
    rng = seeded(seed, name, season.value)
    match season, name:
        case Season.LATER, "products":
            return (Column("packaging", _object(material=STRING, recyclable=BOOLEAN), _packaging(rng)),)
        case Season.LATER, "customers":
            return (Column("preferred_shop", STRING, _drawn(rng, _CITIES)),)
        case _:
            return ()


def _soil(columns: tuple[Column, ...], share: float) -> tuple[Column, ...]:
    """Insert misfits into the columns' pools, so that about this share of the records has one."""
    misfits = round(POOL * share / sum(bool(column.misfits) for column in columns))
    return tuple(_soil_one(column, misfits) if column.misfits else column for column in columns)


def _soil_one(column: Column, misfits: int) -> Column:
    *parts, last = column.parts
    texts = list(last)
    for place in range(misfits):
        texts[place * POOL // misfits] = column.misfits[place % len(column.misfits)]
    return replace(column, parts=(*parts, tuple(texts)))


def _customers(rng: Random) -> tuple[Column, ...]:
    return (
        Column("first_name", STRING, _drawn(rng, _FIRST_NAMES)),
        Column("last_name", STRING, _drawn(rng, _LAST_NAMES)),
        Column("email", STRING, _joined(lambda: f'"{_slug(rng)}', lambda: f'{rng.randrange(2000)}@example.com"')),
        Column("phone", STRING, _joined(lambda: f'"+{rng.randrange(10**4, 10**5)}', lambda: f'{rng.randrange(10**6)}"')),
        Column("birth_date", DATE, _pool(lambda: _day(rng, 1940, 66)), ('"1987-02-30"', '"unknown"')),
        Column("registered_at", TIMESTAMP_WITH_TIMEZONE, _zoned(rng)),
        Column("last_visit", TIMESTAMP_WITHOUT_TIMEZONE, _or_null(rng, 0.3, lambda: f"{_day(rng, 2024, 2)}T{_clock(rng)}")),
        Column("active", BOOLEAN, _pool(lambda: rng.random() < 0.9), ('"perhaps"',)),
        Column("loyalty_points", INTEGER, _number(rng, 300), ("8446744073709551616", ".5")),
        Column("credit_limit", NUMBER, _or_null(rng, 0.5, lambda: rng.randrange(0, 10**6) / 100)),
        Column("language", STRING, _drawn(rng, ("da", "de", "en", "es", "fr", "ja", "pl", "pt"))),
        Column("address", _ADDRESS, _address(rng)),
        Column("location", _object(lat=NUMBER, lon=NUMBER), _location(rng)),
        Column("interests", _array(STRING), _pool(lambda: rng.sample(_WORDS, rng.randrange(0, 5)))),
        Column("preferences", ANY_OBJECT, _anything(rng)),
        Column("referrer_id", INTEGER, _or_null(rng, 0.7, lambda: rng.randrange(1, 10**6))),
        Column("note", STRING, _or_null(rng, 0.4, lambda: _sentence(rng, 6, 22))),
    )


def _products(rng: Random) -> tuple[Column, ...]:
    supplier = _object(name=STRING, country=STRING, contact=_object(email=STRING, phone=STRING))
    return (
        Column("sku", STRING, _joined(lambda: f'"{rng.choice(_WORDS)[:3].upper()}-', lambda: f'{rng.randrange(10**5, 10**6)}"')),
        Column("name", STRING, _joined(lambda: f'"{_sentence(rng, 1, 3)} ', lambda: f'{rng.choice(_WORDS)} {rng.randrange(1, 90)}"')),
        Column("note", STRING, _joined(lambda: f'"{_sentence(rng, 5, 12)}. ', lambda: f'{_sentence(rng, 4, 12)}."')),
        Column("category", STRING, _drawn(rng, ("bath", "bedroom", "books", "garden", "kitchen", "lighting", "office", "toys"))),
        Column("price", NUMBER, _cents(rng, 5_000)),
        Column("cost", NUMBER, _or_null(rng, 0.1, lambda: rng.randrange(50, 250_000) / 100), ('"on request"', "true")),
        Column("currency", STRING, _drawn(rng, _CURRENCIES)),
        Column("in_stock", INTEGER, _pool(lambda: rng.randrange(0, 5_000)), ("12.5", "99999999999999999999")),
        Column("weight_kg", NUMBER, _cents(rng, 40)),
        Column("size", _object(length_cm=NUMBER, width_cm=NUMBER, height_cm=NUMBER), _size(rng)),
        Column("colours", _array(STRING), _pool(lambda: rng.sample(_WORDS, rng.randrange(1, 4)))),
        Column("attributes", ANY_OBJECT, _anything(rng)),
        Column("available", BOOLEAN, _pool(lambda: rng.random() < 0.8)),
        Column("launched_on", DATE, _pool(lambda: _day(rng, 2015, 11))),
        Column("discontinued_on", DATE, _or_null(rng, 0.9, lambda: _day(rng, 2020, 6)), ('"2024-13-01"',)),
        Column("dispatch_until", TIME, _pool(lambda: f"{rng.randrange(24):02}:{rng.randrange(0, 60, 5):02}:00")),
        Column("rating", NUMBER, _or_null(rng, 0.2, lambda: rng.randrange(10, 51) / 10)),
        Column("supplier", supplier, _supplier(rng)),
    )


def _orders(rng: Random) -> tuple[Column, ...]:
    line = _object(product_id=INTEGER, quantity=INTEGER, unit_price=NUMBER, gift=BOOLEAN)
    payment = _object(method=STRING, reference=STRING, captured=BOOLEAN)
    return (
        Column("customer_id", INTEGER, _number(rng, 1_000), ("000000000000000000000", ".25")),
        Column("status", STRING, _drawn(rng, ("new", "paid", "packed", "shipped", "delivered", "returned"))),
        Column("channel", STRING, _drawn(rng, ("app", "phone", "shop", "web"))),
        Column("currency", STRING, _drawn(rng, _CURRENCIES)),
        Column("total", NUMBER, _cents(rng, 10_000)),
        Column("tax", NUMBER, _cents(rng, 1_000)),
        Column("discount", NUMBER, _or_null(rng, 0.8, lambda: rng.randrange(1, 5_000) / 100)),
        Column("placed_at", TIMESTAMP_WITH_TIMEZONE, _zoned(rng), ('25:61:00Z"', 'noon"')),
        Column("paid_at", TIMESTAMP_WITH_TIMEZONE, _or_null(rng, 0.2, lambda: f"{_day(rng, 2024, 2)}T{_clock(rng)}Z")),
        Column("packed_at", TIMESTAMP_WITHOUT_TIMEZONE, _or_null(rng, 0.4, lambda: f"{_day(rng, 2024, 2)}T{_clock(rng)}")),
        Column("deliver_on", DATE, _or_null(rng, 0.3, lambda: _day(rng, 2026, 1))),
        Column(
            "lines",
            _array(line),
            _order_lines(rng),
            ('34,"gift":false},{"product_id":7,"quantity":"a dozen","unit_price":1.5,"gift":true}]',),
        ),
        Column("ship_to", _ADDRESS, _address(rng)),
        Column("payment", payment, _payment(rng)),
        Column("coupons", _array(STRING), _pool(lambda: [rng.choice(_WORDS).upper() for _ in range(rng.choice((0, 0, 0, 1, 2)))])),
        Column("gift", BOOLEAN, _pool(lambda: rng.random() < 0.1)),
        Column("device", ANY_OBJECT, _anything(rng)),
        Column("note", STRING, _or_null(rng, 0.9, lambda: _sentence(rng, 4, 16))),
    )


def _object(**properties: Schema) -> Schema:
    return {"type": ["null", "object"], "properties": properties}


def _array(items: Schema) -> Schema:
    return {"type": ["null", "array"], "items": items}


_ADDRESS = _object(street=STRING, city=STRING, postcode=STRING, country=STRING)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _pool(make: Callable[[], Any]) -> Parts:
    """Return one pool of whole values."""
    return _joined(lambda: _text(make()))


def _or_null(rng: Random, null_share: float, make: Callable[[], Any]) -> Parts:
    return _pool(lambda: None if rng.random() < null_share else make())


def _drawn(rng: Random, values: Sequence[str]) -> Parts:
    return _pool(lambda: rng.choice(values))


def _joined(*makes: Callable[[], str]) -> Parts:
    """Return one pool per maker. Their texts form a JSON value when joined."""
    return tuple(tuple(make() for _ in range(POOL)) for make in makes)


def _number(rng: Random, most: int) -> Parts:
    return _joined(lambda: str(rng.randrange(1, most)), lambda: f"{rng.randrange(1_000):03}")


def _cents(rng: Random, most: int) -> Parts:
    return _joined(lambda: f"{rng.randrange(1, most)}.", lambda: f"{rng.randrange(10)}{rng.randrange(1, 10)}")


def _zoned(rng: Random) -> Parts:
    return _joined(lambda: f'"{_day(rng, 2024, 2)}T', lambda: f'{_clock(rng)}{rng.choice(_ZONES)}"')


def _location(rng: Random) -> Parts:
    return _joined(
        lambda: f'{{"lat":{rng.randrange(-89, 90)}.',
        lambda: f'{rng.randrange(10**5, 10**6)},"lon":{rng.randrange(-179, 180)}.',
        lambda: f"{rng.randrange(10**5, 10**6)}}}",
    )


def _address(rng: Random) -> Parts:
    return _joined(
        lambda: f'{{"street":"{rng.choice(_WORDS).title()} street {rng.randrange(1, 400)}","city":"{rng.choice(_CITIES)}",',
        lambda: f'"postcode":"{rng.randrange(1_000, 100_000)}","country":"{rng.choice(_COUNTRIES)}"}}',
    )


def _anything(rng: Random) -> Parts:
    """Return pools for objects without a declared shape: any names, any types."""
    return _joined(
        lambda: f'{{"{rng.choice(_WORDS)}":{_text(rng.choice((True, None, rng.choice(_WORDS))))},',
        lambda: f'"level":{rng.randrange(10**4)},"more":{{"{rng.choice(_WORDS)}":[{rng.randrange(100)},{rng.randrange(100)}]}}}}',
    )


def _size(rng: Random) -> Parts:
    return _joined(
        lambda: f'{{"length_cm":{rng.randrange(3_000) / 10},',
        lambda: f'"width_cm":{rng.randrange(3_000) / 10},',
        lambda: f'"height_cm":{rng.randrange(3_000) / 10}}}',
    )


def _packaging(rng: Random) -> Parts:
    return _pool(lambda: {"material": rng.choice(("card", "film", "paper")), "recyclable": rng.random() < 0.8})


def _supplier(rng: Random) -> Parts:
    return _joined(
        lambda: f'{{"name":"{_sentence(rng, 2, 4)}","country":"{rng.choice(_COUNTRIES)}",',
        lambda: f'"contact":{{"email":"{_slug(rng)}@example.net","phone":"+{rng.randrange(10**9, 10**10)}"}}}}',
    )


def _order_lines(rng: Random) -> Parts:
    def end() -> str:
        more = [_text(_order_line(rng)) for _ in range(rng.choice((0, 0, 1, 1, 2)))]
        return ",".join([f'{rng.randrange(10)}{rng.randrange(1, 10)},"gift":false}}', *more]) + "]"

    return _joined(
        lambda: f'[{{"product_id":{rng.randrange(1, 10**5)},"quantity":{rng.randrange(1, 13)},"unit_price":{rng.randrange(500)}.', end
    )


def _order_line(rng: Random) -> dict[str, Any]:
    price = rng.randrange(100, 50_000) / 100
    return {"product_id": rng.randrange(1, 10**5), "quantity": rng.randrange(1, 13), "unit_price": price, "gift": rng.random() < 0.1}


def _payment(rng: Random) -> Parts:
    return _joined(
        lambda: f'{{"method":"{rng.choice(("card", "invoice", "transfer"))}","reference":"{rng.getrandbits(32):08x}',
        lambda: f'{rng.getrandbits(32):08x}","captured":{_text(rng.random() < 0.9)}}}',
    )


def _day(rng: Random, first_year: int, years: int) -> str:
    return (date(first_year, 1, 1) + timedelta(days=rng.randrange(365 * years))).isoformat()


def _clock(rng: Random) -> str:
    return f"{rng.randrange(24):02}:{rng.randrange(60):02}:{rng.randrange(60):02}.{rng.randrange(1000):03}"


def _slug(rng: Random) -> str:
    return f"{rng.choice(_WORDS)}.{rng.choice(_WORDS)}{rng.randrange(10_000)}"


def _sentence(rng: Random, fewest: int, most: int) -> str:
    return " ".join(rng.choices(_WORDS, k=rng.randrange(fewest, most))).capitalize()


def seeded(*parts: object) -> Random:
    """Return a random generator that yields the same numbers in every run with the same parts."""
    return Random(" ".join(map(str, parts)))  # noqa: S311 - made-up data, nothing to protect


def moments(minute: int, first: int, count: int) -> list[str]:
    """Return timestamps as JSON texts for `count` records from position `first` of a minute, `minute` minutes after the shop opened."""
    text = (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minute)).strftime('"%Y-%m-%dT%H:%M:')
    return [f'{text}{place * 60 // 1000:02}.{place * 60 % 1000:03}Z"' for place in range(first, first + count)]
