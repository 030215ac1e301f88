from __future__ import annotations

from pathlib import Path

from destination_s3_spark.tables.updates.resources import LocalDisk


def test_folders_differ_and_together_have_no_more_room_than_there_is(tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path, 100)

    first, too_large, second, over = disk.reserved(60), disk.reserved(41), disk.reserved(40), disk.reserved(1)

    assert first is not None
    assert second is not None
    assert first != second
    assert {first.parent, second.parent} == {tmp_path}
    assert too_large is over is None
