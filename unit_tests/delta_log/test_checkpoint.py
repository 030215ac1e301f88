"""Checkpoints: read back by us and by delta-rs, and refused when they hold more than is read."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_s3_spark.delta_log.actions import (
    Action,
    Malformed,
    Metadata,
    Protocol,
    Transaction,
    decode_checkpoint,
    encode_checkpoint,
)
from unit_tests.cases import each
from unit_tests.chain.bucket import Bucket
from unit_tests.delta_log.written_log import METADATA, PROTOCOL, added, adds_of, begun, in_delta_rs

FEATURES = Protocol(3, 7, reader_features=["columnMapping"], writer_features=["columnMapping"])
DIVIDED = Metadata("m", METADATA.schema_string, ["day"], {"a": "b"})
TWO = (Transaction("t", 3, 5), Transaction("other", 1))


@each(
    "contents",
    [
        [PROTOCOL, METADATA, *TWO, *(added(number, data_change=False) for number in range(3))],
        [PROTOCOL, METADATA],
        [FEATURES, DIVIDED, TWO[0], added(1, data_change=False, partition_values={"day": None}, stats=None)],
        [FEATURES, DIVIDED, TWO[0], added(1, data_change=False, partition_values={"day": "x"}, path="day=x/%25.parquet")],
    ],
)
def test_a_checkpoint_is_read_back(contents: list[Action]) -> None:
    body, size = encode_checkpoint(contents)
    assert sorted(decode_checkpoint(body), key=repr) == sorted(contents, key=repr)
    assert size == len(contents) == pq.ParquetFile(io.BytesIO(body)).metadata.num_rows


def test_delta_rs_reads_the_table_from_a_checkpoint_alone(tmp_path: Path) -> None:
    store = Bucket()
    log = begun(store, 4)
    found = log.read()
    assert found is not None
    log.write_checkpoint(3, [PROTOCOL, METADATA, *found.transactions.values(), *found.adds.values()])
    for version in range(3):
        del store.objects[f"{log.prefix}{version:020d}.json"]

    table = in_delta_rs(store, tmp_path)
    assert table.version() == 3
    assert table.transaction_version("t") == 3
    assert [field.name for field in table.schema().fields] == ["id", "name"]
    assert table.metadata().configuration == METADATA.configuration
    assert {path: (row["min.id"], row["null_count.name"]) for path, row in adds_of(table).items()} == {
        f"{number}.parquet": (number, 1) for number in range(4)
    }
    assert table.protocol().writer_features == PROTOCOL.writer_features


def test_a_checkpoint_of_delta_rs_is_read(tmp_path: Path) -> None:
    """It writes one although it does not know the writer feature."""
    store = Bucket()
    log = begun(store, 3)
    in_delta_rs(store, tmp_path).create_checkpoint()
    (written,) = tmp_path.glob("_delta_log/*.checkpoint.parquet")

    store.put(f"{log.prefix}{written.name}", written.read_bytes())
    found = log.read()
    assert found is not None
    assert (found.version, found.checkpoint, sorted(found.adds)) == (2, 2, [f"{number}.parquet" for number in range(3)])
    assert (found.metadata, found.protocol) == (METADATA, PROTOCOL)
    assert found.transactions == {"t": Transaction("t", 2, 5)}


def without(column: str) -> bytes:
    table = pq.read_table(io.BytesIO(encode_checkpoint([PROTOCOL, METADATA, *TWO, added(1)])[0]))
    return written(table.drop_columns([column]))


def written(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def with_sidecar() -> bytes:
    table = pq.read_table(io.BytesIO(encode_checkpoint([PROTOCOL, METADATA, *TWO])[0]))
    return written(table.append_column("sidecar", pa.array(["x", *[None] * (table.num_rows - 1)])))


@each("body", [b"", b"PAR1", encode_checkpoint([PROTOCOL, METADATA])[0][:-20]])
def test_a_torn_checkpoint_is_refused(body: bytes) -> None:
    with pytest.raises(Malformed):
        decode_checkpoint(body)


def test_a_checkpoint_with_parts_that_are_not_read_is_refused() -> None:
    for body in (without("protocol"), without("metaData"), without("add"), with_sidecar()):
        with pytest.raises(Malformed):
            decode_checkpoint(body)
