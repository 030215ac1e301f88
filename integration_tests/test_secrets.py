"""Neither a secret nor the content of a record is ever printed. (The runner looks for the secret key in every test.)"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from integration_tests.lake import ProcessLake
from integration_tests.s3_proxy import Fault, S3Call, S3Proxy
from unit_tests.lake.messages import catalog
from unit_tests.lake.outcome import Outcome
from unit_tests.lake.shop import complete, record, state, stream

MARKER = "jane.doe-0815@example.org"
CATALOG = catalog(stream(schema={"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}}))


def marked_records() -> list[bytes]:
    """Records that hold the marker where it fits, where it does not fit, in an undeclared field and in a key."""
    return [
        record({"id": 1, "name": MARKER}),
        record({"id": MARKER, "name": {"nested": MARKER}}),
        record({"id": 2, "undeclared": MARKER, MARKER: 1}),
        record({"id": 3, "name": "x"}, meta={"changes": [{"field": MARKER, "change": "NULLED", "reason": "SOURCE_RETRIEVAL_ERROR"}]}),
    ]


def said(outcome: Outcome) -> str:
    return json.dumps(outcome.messages, ensure_ascii=False) + outcome.stderr


def test_a_sync_that_goes_well_prints_no_record(moto_lake: ProcessLake) -> None:
    outcome = moto_lake.connector().write(CATALOG, [*marked_records(), state(1), complete()]).expect_success()
    assert MARKER not in said(outcome)


def test_treated_values_are_in_no_message_object_or_file(moto_lake: ProcessLake, tmp_path: Path) -> None:
    rules = [{"stream": "users", "column": "name", "action": "hash"}, {"stream": "*", "column": "id", "action": "null"}]
    tables = {"columns": rules, "hash_secret": "s" * 32, "raw_fields": "declared"}
    connector = moto_lake.connector(tables=tables, batching={"spool_dir": str(tmp_path)})
    outcome = connector.write(CATALOG, [*marked_records(), state(1), complete()]).expect_success()
    broken = connector.write(CATALOG, [*marked_records(), record(MARKER), state(2), complete()]).expect_failure("system_error")  # type: ignore[arg-type]
    left = [path for path in tmp_path.rglob("*") if path.is_file()]

    assert all(MARKER not in said(one) and "s" * 32 not in said(one) for one in (outcome, broken))
    assert not [path for path in left if MARKER.encode() in path.read_bytes()]
    assert MARKER not in repr((moto_lake.rows(), moto_lake.raw_rows()))
    assert [row["name"] and len(row["name"]) for row in moto_lake.rows()] == [64, 64, None, 64]


BROKEN_TAILS = [
    pytest.param(b'{"type":"RECORD","record":{"stream":"%b\n' % MARKER.encode(), id="no stream name"),
    pytest.param(b'{"type":"STATE","state":{"data":{"%b":\n' % MARKER.encode(), id="a broken state"),
    pytest.param(b"%b is no JSON at all\n{]\n" % MARKER.encode(), id="noise and a broken line"),
]


@pytest.mark.parametrize("tail", BROKEN_TAILS)
def test_a_line_that_cannot_be_read_is_not_printed(moto_lake: ProcessLake, tail: bytes) -> None:
    outcome = moto_lake.connector().write(CATALOG, [*marked_records(), tail, state(1), complete()]).expect_failure("system_error")
    assert MARKER not in said(outcome)


def test_a_store_that_repeats_what_it_got_does_not_make_us_print_it(moto_lake: ProcessLake, proxy: S3Proxy) -> None:
    def repeat(call: S3Call) -> str:
        return f"{call.key} {call.headers['authorization']} {moto_lake.bucket.server.secret_key}"

    proxy.inject(Fault("CreateMultipartUpload", status=400, code="InvalidArgument", message=repeat))
    outcome = moto_lake.connector(proxy.endpoint).write(CATALOG, [*marked_records(), state(1), complete()])
    assert outcome.exit_code != 0
    assert MARKER not in said(outcome)
    assert "Signature=" not in said(outcome)
