"""Much data and little room: the spool's bound holds, and one huge record passes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from destination_s3_spark.protocol.reader import read_blocks
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import catalog, cursor_of
from unit_tests.lake.shop import complete, record, state, stream

MB = 1 << 20
SPOOL_MB = 16
LINE_BYTES = 4096
STREAM_MB = 64
HUGE_RECORD_MB = 100


def wide_records(megabytes: int) -> Iterator[bytes]:
    """Records of about 4 KiB each, `megabytes` of them."""
    filler = "x" * (LINE_BYTES - 120)
    for number in range(megabytes * MB // LINE_BYTES):
        yield record({"id": number, "name": filler})


def bytes_below(directory: Path) -> int:
    """Size of all files in a directory that another thread is working in."""
    total = 0
    for path in directory.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size if path.is_file() else 0
    return total


def test_a_checkpoint_larger_than_the_spool_passes_through_it(lake: Lake) -> None:
    spool, peak = lake.directory / "spool", 0
    spool.mkdir()
    options = {"max_spool_gb": SPOOL_MB / 1024, "max_batch_mb": 8, "spool_dir": str(spool)}

    def watched(stdin: int) -> Iterator[bytes]:
        nonlocal peak
        for block in read_blocks(stdin):
            yield block
            peak = max(peak, bytes_below(spool))

    with patch("destination_s3_spark.process.read_blocks", watched):
        outcome = lake.connector(batching=options).write(catalog(stream()), [*wide_records(STREAM_MB), state(1), complete()])
    outcome.expect_success()
    assert [cursor_of(answer) for answer in outcome.state_lines] == [1]
    assert outcome.states[0]["destinationStats"]["recordCount"] == STREAM_MB * MB // LINE_BYTES
    assert lake.ids() == list(range(STREAM_MB * MB // LINE_BYTES))
    assert 0 < peak <= SPOOL_MB * MB * 1.25, f"{peak / MB:.0f} MB were spooled"
    assert list(spool.iterdir()) == []
    lake.verify_at_rest()


@pytest.mark.slow
def test_a_record_of_a_hundred_megabytes_arrives_whole(lake: Lake) -> None:
    text = "é" * (HUGE_RECORD_MB * MB // 2)
    messages = [
        record({"id": 1, "name": "small"}),
        record({"id": 2, "name": text}),
        record({"id": 3, "name": "small"}),
        state(3),
        complete(),
    ]
    lake.connector().write(catalog(stream()), messages).expect_success()
    names = {row["id"]: row["name"] for row in lake.rows()}
    assert names.keys() == {1, 2, 3}
    assert names[2] == text, "the text differs"
    lake.verify_at_rest()
