"""Values that rules treat are in no object, log, message or file of a sync, whatever holds them and whatever is done to the table."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_s3_spark.errors import ConfigError, SyncError
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.updates.resources import MergeTime
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import JsonObject, line, state, status, stream
from unit_tests.lake.messages import catalog as catalog_of
from unit_tests.sync.hidden_values import in_other_forms, unpacked

SECRET = "0123456789abcdef0123456789abcdef"
MARK, NUMBER = "qzjxvwkhgbnp", "7316004219"
"""What every treated text and number has in it."""
_TEXT = {"type": "string"}
_PERSON = {"type": "object", "properties": {"street": _TEXT, "city": _TEXT}}
PROPERTIES: dict[str, Any] = {
    "id": {"type": "integer"},
    "email": _TEXT,
    "name": _TEXT,
    "ssn": {"type": "integer"},
    "note": {"type": ["object", "string"], "properties": {"a": _TEXT}},
    "born": {"type": "string", "format": "date"},
    "price": {"type": "number", "multipleOf": 0.01},
    "address": _PERSON,
    "former": {"type": "array", "items": _PERSON},
    "anything": {"type": "object"},
    "lsn": {"type": "integer"},
    "_ab_cdc_deleted_at": {"type": "string", "format": "date-time"},
}
COLUMNS: list[dict[str, Any]] = [
    {"stream": "users", "column": "email", "action": "hash"},
    {"stream": "u*", "column": "na?e", "action": "truncate", "length": 2},
    {"stream": "*", "column": "ssn", "action": "drop"},
    {"stream": "*", "column": "note", "action": "null"},
    {"stream": "*", "column": "born", "action": "hash"},
    {"stream": "*", "column": "price", "action": "hash"},
    {"stream": "*", "column": "address.street", "action": "drop"},
    {"stream": "*", "column": "former.*", "action": "hash"},
    {"stream": "*", "column": "anything.p*", "action": "drop"},
]
RULES = {"columns": COLUMNS, "hash_secret": SECRET}


def hashed(text: str) -> str:
    return hmac.new(SECRET.encode(), text.encode(), hashlib.sha256).hexdigest()


def catalog(
    mode: str = "append",
    *,
    key: Sequence[str] = ("email", "id"),
    cursor: str = "lsn",
    sync: int = 1,
    generation: int = 1,
    minimum: int = 0,
    properties: dict[str, Any] = PROPERTIES,
) -> JsonObject:
    schema = {"type": "object", "properties": properties}
    return catalog_of(
        stream(schema=schema, mode=mode, key=key, cursor=cursor, generation=generation, minimum_generation=minimum, sync_id=sync)
    )


def record(number: int, lsn: int, **other: Any) -> str:
    data = {
        "id": number,
        "email": f"{MARK}{number}@example.org",
        "name": f"é{MARK}",
        "ssn": int(NUMBER) + number,
        "note": f"{MARK} note",
        "born": f"2741-03-{number % 28 + 1:02}",
        "price": float(f"{NUMBER}.5"),
        "address": {"street": MARK, "city": "Rome"},
        "former": [{"street": MARK, "city": MARK}, None],
        "anything": {"phone": NUMBER, "kept": 1},
        "lsn": lsn,
        "undeclared": MARK,
        MARK: 1,
    }
    return json.dumps({**data, **other}, ensure_ascii=number % 2 == 0)


def hostile(lsn: int) -> list[str]:
    """Data in which treated values come twice, under escaped names, in other types, in unions, nested otherwise, huge or as no JSON."""
    about = f'"id":99,"lsn":{lsn},"email":"{MARK}99"'
    members = [
        f'"ssn":{NUMBER},"s\\u0073n":"{MARK}","ss\\u006e" : [{NUMBER},{{"ssn":"{MARK}"}}]',
        f'"na\\u006de":["{MARK}"],"name":{{"{MARK}":1}},"name":{NUMBER}',
        f'"email":{{"{MARK}":[{NUMBER}]}},"\\u0065mail":"\\ud800{MARK}","email":"{MARK}"',
        f'"note":{{"a":"{MARK}","{MARK}":NaN}},"note":[{NUMBER}],"note":"{MARK}"',
        f'"price":{NUMBER}e400,"price":"{NUMBER}{"0" * 400}","price":Infinity,"price":-{NUMBER}.25',
        f'"born":"{MARK}","born":{NUMBER},"born":"2741-03-99"',
        f'"address":"{MARK}","former":"{MARK}"',
        f'"address":[["{MARK}",{{"street":{NUMBER}}}],{NUMBER}],"former":[["{MARK}"],{{"street":{{"city":"{MARK}"}}}}]',
        f'"address":{{"street":"{MARK}","str\\u0065et":{NUMBER},"city":"x"}},"former":[{{"city":{NUMBER}}},"{MARK}",{NUMBER}]',
        f'"anything":{{"p":"{MARK}","p{MARK}":{{"p":{NUMBER}}}}},"anything":"{MARK}"',
        f'"undeclared":{{"ssn":"{MARK}"}},"email.x":"{MARK}","address.city":"{MARK}","":"{MARK}"',
        f'"name":"{MARK * 200_000}","ssn":"{MARK * 200_000}"',
    ]
    return ["{" + about + " , " + each + " }" for each in members] + ["{" + each + "," + about + "}" for each in members]


class TreatedLake(Lake):
    syncs = 0

    def go(self, sent: Iterable[str], *, word: str = "COMPLETE", broken: bool = False, **configured: Any) -> None:
        """Sync the texts of data."""
        self.syncs += 1
        meta = {"changes": [{"field": MARK, "change": "NULLED", "reason": MARK}, {"field": "email", "change": MARK, "reason": MARK}]}
        beginning = f'{{"type":"RECORD","record":{{"stream":"users","emitted_at":{self.syncs},"meta":{json.dumps(meta)},"data":'
        blocks = [f"{beginning}{data}}}}}\n".encode() for data in sent]
        ends = [line({"type": "RECORD", "record": f"{MARK}"})] if broken else [state(self.syncs), status(word)]
        self.sync(catalog(sync=self.syncs, **configured), [*blocks, *ends])

    def objects(self) -> dict[str, bytes]:
        return self.memory.objects

    def schema(self) -> dict[str, Any]:
        chain = self.own_chain()
        assert chain.state is not None
        assert chain.state.schema is not None
        return chain.state.schema


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> TreatedLake:
    return TreatedLake(s3_settings, tmp_path, options={"tables": RULES})


def require_nowhere(lake: TreatedLake, *more: str) -> None:
    wanted = [MARK.encode(), NUMBER.encode(), b"2741-03", int(NUMBER).to_bytes(8, "little")[:5], SECRET.encode()]
    for text in wanted[:2]:
        wanted += [text.hex().encode(), *(base64.b64encode(b"x" * at + text)[4:-4] for at in range(3))]
    files = {str(path): path.read_bytes() for path in lake.directory.rglob("*") if path.is_file()}
    said = {"states and logs": json.dumps([lake.states, *more]).encode()}
    for key, body in {**lake.objects(), **files, **said}.items():
        for content in unpacked(key, body):
            for form in in_other_forms(content):
                for mark in wanted:
                    assert mark not in form, f"{key} holds {mark!r}"


CASES = {
    "Parquet": {"format_type": "Parquet"},
    "Avro": {"format_type": "Avro"},
    "JSONL": {"format_type": "JSONL"},
    "JSONL flat": {"format_type": "JSONL", "flattening": "Root level flattening"},
    "CSV flat": {"format_type": "CSV", "flattening": "Root level flattening"},
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("mode", ["append", "append_dedup"])
def test_a_treated_value_is_nowhere(name: str, mode: str, lake: TreatedLake, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "airbyte")
    parquet, deduplicated = name == "Parquet", mode == "append_dedup"
    lake.format = CASES[name]
    iceberg = {"type": "sql", "database_uri": f"sqlite:///{lake.directory}/catalog.db", "catalog_name": "lake"}
    lake.options = {
        "tables": {**RULES, "raw_fields": "declared", "cdc_deletion_mode": "soft" if parquet else "hard", "compaction": "on"},
        "change_log": {"enabled": deduplicated, "format": "jsonl", "before_image": "ALL", "after_image": "ALL"},
        "publish": {"delta": True, "symlink": True, "iceberg": iceberg, "keep_replaced_minutes": 30} if parquet else {},
    }
    lake.go([record(number, 1) for number in range(6)], mode=mode)
    lake.go([record(3, 2, name=None), *hostile(2), record(4, 3, _ab_cdc_deleted_at="2026-01-01T00:00:00Z")], mode=mode)
    require_nowhere(lake, caplog.text)
    for last in ({"word": "INCOMPLETE"}, {"broken": True}):
        with suppress(SyncError):
            lake.go([record(7, 4)], mode=mode, **last)
    lake.go([record(8, 5), *hostile(5)], mode=mode, properties={**PROPERTIES, "lsn": {"type": "number"}})
    lake.rebuild()
    require_nowhere(lake, caplog.text)
    lake.go([record(9, 6)], mode=mode, generation=2, minimum=2)
    require_nowhere(lake, caplog.text)
    assert all(MARK not in message.getMessage() for message in caplog.records)


def test_the_look_finds_what_is_not_treated(lake: TreatedLake) -> None:
    lake.options = {}
    lake.go([record(1, 1)])
    with pytest.raises(AssertionError, match="holds"):
        require_nowhere(lake)


def rows(lake: TreatedLake, folder: str = "users") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for key, body in lake.objects().items():
        if f"/{folder}/" in key and body.startswith(b"PAR1"):
            found += pq.read_table(pa.BufferReader(body)).to_pylist()
    return found


def test_tables_and_raw_rows_have_the_same_values(lake: TreatedLake) -> None:
    lake.go([record(1, 1), record(1, 2, born="no date", address=MARK)], mode="append_dedup", key=("email",))
    (row,) = rows(lake)
    raw = sorted((json.loads(one["_airbyte_data"]) for one in rows(lake, "raw")), key=lambda data: data["lsn"])

    assert (row["email"], row["name"], row["note"]) == (hashed(f"{MARK}1@example.org"), "éq", None)
    assert (row["born"], row["price"]) == (hashed("no date"), hashed(f"{NUMBER}.5"))
    assert (row["address"], "ssn" in row) == (None, False)
    changes = [{"field": "address", "change": "NULLED", "reason": "DESTINATION_SERIALIZATION_ERROR"}]
    assert row["_airbyte_meta"]["changes"][2:] == changes
    assert row["former"] == [{"street": hashed(MARK), "city": hashed(MARK)}, None]
    assert [one["email"] for one in raw] == [row["email"]] * 2
    assert raw[0]["address"] == {"city": "Rome"}
    assert (raw[1]["address"], raw[0]["anything"], raw[0]["undeclared"]) == ("", {"kept": 1}, MARK)
    types = {column["source"]: column["type"] for column in lake.schema()["fields"]}
    assert (types["born"], types["price"], types["lsn"], "ssn" in types) == ("string", "string", "integer", False)


@pytest.mark.parametrize(
    ("column", "action", "said"),
    [
        ("id", "drop", "primary key"),
        ("i*", "truncate", "primary key"),
        ("id", "null", "Choose hash"),
        ("lsn", "hash", "its cursor"),
        ("*_deleted_at", "hash", "is deleted"),
        ("name", "hash", "partition_by"),
        ("nam", "hash", "declares a column 'nam'"),
        ("address.streets", "drop", "declares a column"),
        ("note.a", "drop", "for the whole of 'note'"),
    ],
)
def test_a_rule_that_cannot_be_kept_ends_the_sync_at_its_start(column: str, action: str, said: str, lake: TreatedLake) -> None:
    rule = {"stream": "users", "column": column, "action": action, **({"length": 1} if action == "truncate" else {})}
    partition = {"stream": "users", "column": "name", "transform": "identity"}
    lake.options = {"tables": {"columns": [rule], "hash_secret": SECRET, "partition_by": [partition]}}
    with pytest.raises(ConfigError, match=r"tables\.columns") as refused:
        lake.go([record(1, 1)], mode="append_dedup", key=("id", "name"))
    assert said in str(refused.value)
    assert not lake.objects()


def test_a_rule_for_no_stream_ends_the_sync_at_its_start(lake: TreatedLake) -> None:
    lake.options = {"tables": {"columns": [*COLUMNS, {"stream": "shop.users", "column": "email", "action": "drop"}], "hash_secret": SECRET}}
    with pytest.raises(ConfigError, match=r"entry 10: no stream of the connection has the name 'shop\.users'"):
        lake.go([record(1, 1)])


def test_the_chain_notices_other_rules_and_another_secret(lake: TreatedLake, caplog: pytest.LogCaptureFixture) -> None:
    lake.options = {"tables": {"columns": COLUMNS[:3], "hash_secret": SECRET}}
    lake.go([record(1, 1)])
    first = lake.schema()["columnRules"]
    assert first["columns"] == {"email": "hash", "name": "truncate to 2", "ssn": "drop"}
    lake.go([record(2, 2)])
    assert not [message for message in caplog.messages if "hash_secret changed" in message]

    lake.options = {"tables": {"columns": COLUMNS[:3], "hash_secret": SECRET[::-1]}}
    lake.go([record(3, 3)])
    second = lake.schema()["columnRules"]
    assert {name for name in first if first[name] != second[name]} == {"digest", "secret"}
    assert any("(email: hash, now hash with another secret)" in message and "refresh" in message for message in caplog.messages)

    lake.rebuild()
    assert lake.schema()["columnRules"] == second
    lake.options = {}
    lake.go([record(4, 4)])
    assert "columnRules" not in lake.schema()
    assert any("ssn: drop, now as sent" in message for message in caplog.messages)
    assert {row["email"] for row in rows(lake)} >= {hashed(f"{MARK}1@example.org"), f"{MARK}4@example.org"}

    caplog.clear()
    lake.options = {"tables": RULES}
    lake.go([record(5, 5)], generation=2, minimum=2)
    assert not [message for message in caplog.messages if "hash_secret changed" in message]
    assert lake.schema()["columnRules"]["columns"]["anything.p*"] == "drop"


def test_keys_that_are_treated_otherwise_need_a_refresh(lake: TreatedLake) -> None:
    lake.options = {"tables": {"columns": COLUMNS[:1], "hash_secret": SECRET}}
    lake.go([record(1, 1)], mode="append_dedup", key=("email",))
    for other in ({"columns": COLUMNS[:1], "hash_secret": SECRET[::-1]}, {}):
        lake.options = {"tables": other}
        with pytest.raises(ConfigError, match=r"'email' is in its primary key and was treated otherwise.*refresh"):
            lake.go([record(1, 2)], mode="append_dedup", key=("email",))
    lake.go([record(1, 3)], mode="append_dedup", key=("email",), generation=2, minimum=2)
    assert [row["email"] for row in rows(lake)] == [f"{MARK}1@example.org"]
    lake.options = {"tables": RULES}
    with pytest.raises(ConfigError, match="as sent, now hash"):
        lake.go([record(1, 4)], mode="append_dedup", key=("email",), generation=2)


def test_a_refresh_may_treat_keys_otherwise_while_another_one_waits(lake: TreatedLake) -> None:
    lake.options = {}
    lake.go([record(1, 1)], mode="append_dedup", key=("email",))
    lake.merge_limits = {"time": MergeTime(timedelta())}
    lake.go([record(1, 2), record(2, 2)], mode="append_dedup", key=("email",), generation=2, minimum=2)
    assert len(rows(lake)) == 1
    lake.options, lake.merge_limits = {"tables": RULES}, {}
    lake.go([record(3, 3)], mode="append_dedup", key=("email",), generation=3, minimum=3)
    assert [row["email"] for row in rows(lake)] == [hashed(f"{MARK}3@example.org")]
