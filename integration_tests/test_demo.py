"""The demo as a newcomer runs it: one command, real processes, a real S3 server on this machine."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import polars
import psutil
import pytest

from demo import shop, tour
from demo.shop import Sale, Shop

RECORDS = 5_000
ROOT = Path(__file__).parents[1]


def run(module: str, arguments: list[str], scratch: Path) -> subprocess.CompletedProcess[str]:
    """Run a module from the root of the repository, with its temporary files under `scratch`."""
    environment = {**os.environ, "TMPDIR": str(scratch)}
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False, env=environment, cwd=ROOT)


def sections(output: str) -> dict[str, list[str]]:
    """The titled parts of a report: title to the lines below its rule."""
    found: dict[str, list[str]] = {}
    lines = output.splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if following and set(following) == {"═"}:
            found[line] = current = []
        elif found and line and set(line) != {"═"}:
            current.append(line)
    return found


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scratch")


@pytest.fixture(scope="module")
def demo(scratch: Path) -> subprocess.CompletedProcess[str]:
    finished = run("demo", ["--records", str(RECORDS)], scratch)
    assert finished.returncode == 0, finished.stderr
    return finished


@pytest.fixture(scope="module")
def shown(demo: subprocess.CompletedProcess[str]) -> dict[str, list[str]]:
    return sections(demo.stdout)


def test_every_stream_is_a_table_with_its_rows_and_customers_with_one_for_each_key(shown: dict[str, list[str]]) -> None:
    rows = {line.split()[0]: line.split()[2] for line in shown["Tables"][2:]}

    counts = shop.records_per_stream(RECORDS)
    keys = {json.loads(line)["record"]["data"]["id"] for line in sent_lines() if b'"stream":"customers"' in line[:80]}
    assert len(keys) < counts["customers"], "the source sends no second version of a row"
    assert rows == {f"shop.{name}": f"{count:,}" for name, count in {**counts, "customers": len(keys)}.items()}


def test_the_same_rows_are_read_through_delta_logs(shown: dict[str, list[str]]) -> None:
    of_chain = {line.split()[0].removeprefix("shop."): line.split()[2] for line in shown["Tables"][2:]}
    read = [line.split() for line in shown["Delta tables, as delta-rs reads them"][2:]]
    of_delta = {uri.removeprefix("s3://demo/lake/").rstrip("/"): rows for uri, _, rows, _ in read}
    versions = of_delta.pop("airbyte_history/shop/customers")
    assert of_delta == {f"shop/{name}": rows for name, rows in of_chain.items()}
    assert versions == f"{shop.records_per_stream(RECORDS)['customers']:,}", "not every record is a version of its row"


def test_the_versions_of_a_row_are_shown(shown: dict[str, list[str]]) -> None:
    rows = [re.split(r" {2,}", line) for line in shown["shop.customers: every version of a row"][2:]]
    assert len(rows) > 2
    assert len({row[0] for row in rows}) == 1
    assert [row[3] for row in rows] == [*(row[2] for row in rows[1:]), "null"]
    assert [row[4] for row in rows] == [*["false"] * (len(rows) - 1), "true"]


def sent_lines() -> list[bytes]:
    sale = Sale(Shop())
    return [line for visit in tour.visits(RECORDS) for chunk in sale.read(*visit) for line in chunk.lines.splitlines()]


def test_every_state_was_acknowledged(demo: subprocess.CompletedProcess[str]) -> None:
    syncs = re.findall(r"([\d,]+) records sent,.* (\d+) of +(\d+) states acknowledged", demo.stderr)

    assert "records were typed " in demo.stderr
    assert sum(int(records.replace(",", "")) for records, _, _ in syncs) == RECORDS
    assert [acknowledged for _, acknowledged, _ in syncs] == [sent for _, _, sent in syncs]
    assert all(int(sent) for _, _, sent in syncs)


def test_columns_and_rows_are_shown(shown: dict[str, list[str]]) -> None:
    types = dict(re.split(r" {2,}", line)[:2] for line in shown["shop.orders: columns"][2:])

    assert types["customer_id"] == "int64"
    assert types["placed_at"] == "timestamp[us, tz=UTC]"
    assert types["lines"].startswith("list<struct<gift: bool, product_id: int64")
    assert len(shown["shop.orders: first rows"]) == 2 + 3


def test_values_that_did_not_fit_are_told_by_field_and_reason(shown: dict[str, list[str]]) -> None:
    told = [re.split(r" {2,}", line.strip())[2:] for line in shown["shop.orders: values that were changed"][2:]]

    kinds = {(line[0], line[2]) for line in told}
    assert ("placed_at", "DESTINATION_SERIALIZATION_ERROR") in kinds
    assert ("customer_id", "DESTINATION_FIELD_SIZE_LIMITATION") in kinds
    nested = next(line for line in told if line[0] == "lines.[].quantity")
    assert nested[1:3] == ["NULLED", "DESTINATION_SERIALIZATION_ERROR"]
    assert sum(int(line[3]) for line in told if line[0] == nested[0]) == b"".join(sent_lines()).count(b'"a dozen"')
    assert nested[4].endswith(" %")


def test_the_chain_is_told_from_seed_to_close(shown: dict[str, list[str]]) -> None:
    kinds = [line.split()[3] for line in shown["shop.orders: chain"][2:]]

    assert kinds[:2] == ["Seed", "SetDataSchema"]
    assert "AddData" in kinds
    assert kinds[-1] == "Close"


def test_no_record_value_stands_beside_a_change(demo: subprocess.CompletedProcess[str]) -> None:
    assert "a dozen" not in demo.stdout


def test_nothing_is_left_behind_but_a_page(demo: subprocess.CompletedProcess[str], scratch: Path) -> None:
    page = Path(demo.stdout.splitlines()[-1].rpartition(": ")[2])
    (directory,) = (path for path in scratch.iterdir() if path.name.startswith("destination-s3-spark-demo"))
    assert list(directory.iterdir()) == [page]
    assert "shop.orders" in page.read_text()
    assert [p.pid for p in psutil.process_iter(["environ"]) if (p.info["environ"] or {}).get("TMPDIR") == str(scratch)] == []


def test_a_kept_demo_can_be_read_as_it_says(tmp_path: Path) -> None:
    finished = run("demo", ["--records", "1000", "--keep"], tmp_path)
    assert finished.returncode == 0, finished.stderr
    advice = "\n".join(finished.stdout.partition("Still running")[2].splitlines())
    process = psutil.Process(int(re.search(r"kill (\d+)", advice)[1]))  # type: ignore[index]
    try:
        options, query = re.search(r"options = (\{.*?\})\n +pl\.(.*)", advice, re.DOTALL).groups()  # type: ignore[union-attr]
        frame = eval(f"polars.{query.splitlines()[0]}", {"polars": polars, "options": eval(options)})
        config = re.search(r"--config (\S+)", advice)[1]  # type: ignore[index]
        inspected = run("destination_s3_spark", ["inspect", "orders", "--config", config], tmp_path)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)

    assert isinstance(frame, polars.DataFrame)
    assert frame.height == 5
    assert {"id", "lines", "_airbyte_raw_id"} <= set(frame.columns)
    assert inspected.returncode == 0, inspected.stderr
    assert "Table shop.orders" in inspected.stdout
