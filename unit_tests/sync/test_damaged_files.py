"""Files of a table that something else has overwritten: the error names the file, and other tables go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.errors import DataError
from unit_tests.cases import each
from unit_tests.lake.lake import Lake
from unit_tests.sync.dedup_lake import sync

Damage = Callable[[bytes], bytes]
DAMAGES: dict[str, Damage] = {
    "nothing but zeros": lambda body: bytes(len(body)),
    "its pages": lambda body: b"PAR1" + bytes(200) + body[204:],
    "its end": lambda body: body[:-8] + b"\xff\xff\xff\x7fPAR1",
}


@each("damage", DAMAGES)
@each("kind", [FileKind.FINAL, FileKind.DELTA])
def test_a_merge_names_the_damaged_file(make_bucket: Any, tmp_path: Any, damage: str, kind: FileKind) -> None:
    settings = make_bucket()
    waits = {"tables": {"merge": [{"stream": "users", "when_runs_mb": 1000}]}}
    lake = Lake(settings, tmp_path / settings.bucket, options=waits)
    for number in (1, 2):
        sync(lake, number, range(50))
    (file,) = lake.live(kind)
    lake.store.put(file.key, DAMAGES[damage](lake.store.get(file.key)))
    lake.store.delete([found.key for found in lake.store.list("lake/") if found.key.endswith("hint.json")])
    lake.options = {}
    with pytest.raises(DataError, match=f"'{file.key}' is damaged"):
        sync(lake, 3, range(50))
    assert any(file.key in problem for problem in lake.verified().problems) or damage == "its pages"
