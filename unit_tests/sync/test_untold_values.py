"""Neither a secret nor the content of a record is ever printed. (The runner looks for the secret key in every test.)"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import pytest

from unit_tests.lake.lake import Lake
from unit_tests.lake.shop import complete, record, state
from unit_tests.s3_proxy import Call, Reply, S3Proxy
from unit_tests.sync.marked import CATALOG, MARKER, marked_records, said


def test_treated_values_are_in_no_message_object_or_file(lake: Lake, tmp_path: Path) -> None:
    rules = [{"stream": "users", "column": "name", "action": "hash"}, {"stream": "*", "column": "id", "action": "null"}]
    tables = {"columns": rules, "hash_secret": "s" * 32, "raw_fields": "declared"}
    connector = lake.connector(tables=tables, batching={"spool_dir": str(tmp_path)})
    outcome = connector.write(CATALOG, [*marked_records(), state(1), complete()]).expect_success()
    broken = connector.write(CATALOG, [*marked_records(), record(MARKER), state(2), complete()]).expect_failure("system_error")  # type: ignore[arg-type]
    left = [path for path in tmp_path.rglob("*") if path.is_file()]

    assert all(MARKER not in said(one) and "s" * 32 not in said(one) for one in (outcome, broken))
    assert not [path for path in left if MARKER.encode() in path.read_bytes()]
    assert MARKER not in repr((lake.rows(), lake.raw_rows()))
    assert [row["name"] and len(row["name"]) for row in lake.rows()] == [64, 64, None, 64]


BROKEN_TAILS = [
    pytest.param(b'{"type":"RECORD","record":{"stream":"%b\n' % MARKER.encode(), id="no stream name"),
    pytest.param(b'{"type":"STATE","state":{"data":{"%b":\n' % MARKER.encode(), id="a broken state"),
    pytest.param(b"%b is no JSON at all\n{]\n" % MARKER.encode(), id="noise and a broken line"),
]


@pytest.mark.parametrize("tail", BROKEN_TAILS)
def test_a_line_that_cannot_be_read_is_not_printed(lake: Lake, tail: bytes) -> None:
    outcome = lake.connector().write(CATALOG, [*marked_records(), tail, state(1), complete()]).expect_failure("system_error")
    assert MARKER not in said(outcome)


def test_a_store_that_repeats_what_it_got_does_not_make_us_print_it(lake: Lake, s3_proxy: S3Proxy, s3_error: Callable[..., Reply]) -> None:
    repeated: list[str] = []

    def repeat(call: Call) -> Reply:
        if call.action != "CreateMultipartUpload":
            return call.forward()
        repeated.append(f"{unquote(call.target)} {call.headers['authorization']} {lake.bucket.server.secret_key}")
        error = s3_error(400, "InvalidArgument")
        return replace(error, body=error.body.replace(b"scripted", repeated[-1].encode()))

    s3_proxy.script = repeat
    connector = lake.through(replace(lake.settings, endpoint=s3_proxy.endpoint)).connector()
    outcome = connector.write(CATALOG, [*marked_records(), state(1), complete()])
    assert outcome.exit_code != 0
    assert "Signature=" in repeated[0]
    assert MARKER not in said(outcome)
    assert "Signature=" not in said(outcome)
