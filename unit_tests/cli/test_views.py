from __future__ import annotations

from destination_s3_spark.cli.inspection.commits import session_label, session_text


def test_a_sync_without_an_id_is_no_sync_0() -> None:
    assert [session_label(number) for number in (None, 0, 7)] == ["maintenance", "no sync id", "7"]
    assert [session_text(number) for number in (None, 0, 7)] == ["maintenance", "no sync id", "sync 7"]
