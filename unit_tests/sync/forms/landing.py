"""All cases as streams of one catalog, synced into files of one form, and what must be in them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unit_tests.lake.chain_reader import Chain, StreamName
from unit_tests.lake.corpus_cases import CaseSync, load
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import EMITTED_AT_MS
from unit_tests.lake.outcome import BUCKET_PATH, Outcome
from unit_tests.lake.shop import complete, record, stream
from unit_tests.lake.table_readers import Row
from unit_tests.sync.forms.forms import Form, Number, exact_json, rows_of
from unit_tests.sync.forms.own_cases import OWN_CASES, TYPE_TABLES

OWN, TYPES = "own", "types"
TIME_CASES = ("times", "nested")
"""The own cases that have times of day."""
TIME_FORMS = {Form.PARQUET_INT64, Form.PARQUET_LOCAL}
"""The forms that store times of day in another way."""
CASES = [
    "testBasicTypes", "testBasicWrite", "testContainerTypes", "testCoerceLegacyUnions", "testNoColumns", "testNumericTypes", "testUnions",
]  # fmt: skip
TEXT_CASES = ["testUnknownTypes", "testAppendJsonSchemaEvolution"]
"""Cases with a type that does not exist: Avro and Parquet refuse them."""
MANY_STREAMS, FORMS_OF_MANY = "testFunkyCharacters", {Form.AVRO, Form.CSV_FLAT}
"""A case with 13 streams, which is seen in Parquet elsewhere, and the forms in which it is seen here."""
DECIMALS = [{"stream": "types.decimals", "column": "decimal", "precision": 38, "scale": 2}]
TABLES = {"raw_tables": False, "union_conflicts": "union", "decimal_columns": DECIMALS}
"""Objects of a union that contradict each other (testUnions) become what destination-s3 makes of them; they end a sync by default."""
TWO_SYNCS = {Form.CSV_FLAT}
"""The forms that get the second syncs of cases too: the one among the text forms whose files have a column for each field."""


def cases_of(form: Form) -> list[str]:
    """The corpus cases that are seen in a form."""
    if form in TIME_FORMS:
        return []
    return CASES + (TEXT_CASES if form.is_text else []) + ([MANY_STREAMS] if form in FORMS_OF_MANY else [])


def own_cases_of(form: Form) -> list[str]:
    """Our own cases that are seen in a form."""
    return [name for name in OWN_CASES if form not in TIME_FORMS or name in TIME_CASES]


def case_syncs(case: str) -> list[CaseSync]:
    """The syncs of a case in a namespace of its own."""
    return [sync.in_namespace(case) for sync in load(case)]


@dataclass(slots=True)
class Landing:
    """What the syncs of a form left in a bucket. `keys` and `outcomes` have an entry per sync."""

    lake: Lake
    form: Form
    keys: list[dict[str, bytes]] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    chains: dict[StreamName, Chain] = field(default_factory=dict)

    @classmethod
    def run(cls, lake: Lake, form: Form) -> Landing:
        """File names are the same in every sync, so that only the connector keeps them apart."""
        landing = cls(lake, form)
        pattern: dict[str, Any] = {"s3_path_format": "${NAMESPACE}/${STREAM_NAME}/", "file_name_pattern": "data{format_extension}"}
        connector = lake.connector(format=form.config, tables=TABLES, **pattern)
        for catalog, messages in landing._syncs():
            landing.outcomes.append(connector.write(catalog, messages).expect_success())
            keys = lake.bucket.list_keys(f"{BUCKET_PATH}/")
            landing.keys.append({key: lake.bucket.read(key) for key in keys if "/airbyte_internal/" not in key})
        landing.chains = lake.chains()
        return landing

    def rows(self, stream_name: StreamName) -> list[Row]:
        return [row for path in self.files(stream_name) for row in rows_of(self.form, path)]

    def files(self, stream_name: StreamName) -> list[Path]:
        """Local copies of a table's files, in commit order, with the names they have in the bucket."""
        chain = self.chains.get(stream_name)
        paths = []
        for key in chain.final_keys if chain else ():
            path = self.lake.directory / "files" / key
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(self.keys[-1][key])
            paths.append(path)
        return paths

    def expected_texts(self, case: str) -> dict[StreamName, list[Row]]:
        """The rows of a case in a text form: what was sent, as it was sent."""
        found: dict[StreamName, list[Row]] = {}
        for sync in case_syncs(case)[: len(self.keys)]:
            for message in sync.messages:
                body = exact_json(message).get("record")
                if body is not None:
                    entry = next(entry for entry in sync.catalog["streams"] if _name(entry) == (body.get("namespace"), body["stream"]))
                    found.setdefault(_name(entry), []).append(self._text_row(body, entry))
        return found

    def expected_own_texts(self, name: str) -> list[Row]:
        case = OWN_CASES[name]
        messages = [exact_json(record(row.sent, name, OWN))["record"] for row in case.rows]
        return [self._text_row(body, stream(name, OWN, schema=_schema(case.properties))) for body in messages]

    def _text_row(self, body: Row, entry: Any) -> Row:
        changes = body.get("meta", {}).get("changes", [])
        return {
            "extracted_at_us": int(body["emitted_at"].digits) * 1000,
            "generation": entry["generation_id"],
            "meta": {"sync_id": entry["sync_id"], "changes": changes},
            "data": self._text_data(body["data"], entry["stream"]["json_schema"].get("properties", {})),
        }

    def _text_data(self, data: Row, declared: Row) -> Row:
        if self.form is Form.JSONL_FLAT:
            return {_beside_own(key): value for key, value in data.items()}
        if self.form is Form.CSV_FLAT:
            return {_beside_own(key): cell(data.get(key)) for key in declared}
        return data

    def _syncs(self) -> list[tuple[Row, list[bytes]]]:
        """Catalog and messages of each sync."""
        rounds: list[tuple[list[Any], list[bytes]]] = [([], []) for _ in range(2 if self.form in TWO_SYNCS else 1)]
        for case in cases_of(self.form):
            for (entries, messages), sync in zip(rounds, case_syncs(case), strict=False):
                entries.extend(sync.catalog["streams"])
                messages.extend(sync.messages + sync.completions)
        entries, messages = rounds[0]
        for name in own_cases_of(self.form):
            own = OWN_CASES[name]
            entries.append(stream(name, OWN, schema=_schema(own.properties)))
            messages += [*(record(row.sent, name, OWN) for row in own.rows), complete(name, OWN)]
        for name, types in TYPE_TABLES.items():
            entries.append(stream(name, TYPES, schema=_schema({column: of_type.schema for column, of_type in types.items()})))
            rows = zip(*([*of_type.sent, None] for of_type in types.values()), strict=True)
            messages += [*(record(dict(zip(types, row, strict=True)), name, TYPES) for row in rows), complete(name, TYPES)]
        return [({"streams": entries}, messages) for entries, messages in rounds]


def cell(value: Any) -> str:
    """A value in CSV: its text, its digits, or its JSON."""
    match value:
        case None:
            return ""
        case str():
            return value
        case Number(digits):
            return digits
    return _json(value)


def _json(value: Any) -> str:
    match value:
        case Number(digits):
            return digits
        case dict():
            return "{" + ",".join(f"{json.dumps(key, ensure_ascii=False)}:{_json(item)}" for key, item in value.items()) + "}"
        case list():
            return "[" + ",".join(map(_json, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def own_row(data: Row, changes: list[Row]) -> Row:
    """A row of an own case in the shape of `forms.rows_of`."""
    return {"extracted_at_us": EMITTED_AT_MS * 1000, "generation": 1, "meta": {"sync_id": 7, "changes": changes}, "data": data}


def _beside_own(key: str) -> str:
    return f"{key}_1" if key.lower().startswith("_airbyte_") else key


def _schema(properties: Row) -> Row:
    return {"type": "object", "properties": properties}


def _name(entry: Any) -> StreamName:
    return entry["stream"].get("namespace"), entry["stream"]["name"]
