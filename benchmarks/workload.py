"""The input of the benchmarks: a file of protocol lines and its catalog, generated once per size, seed and dirty share, then reused."""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo import shop
from demo.shop import Shop

CACHE = Path(tempfile.gettempdir()) / "destination-s3-spark-benchmarks"
CHECKPOINT_RECORDS = 10_000


@dataclass(frozen=True, slots=True)
class Workload:
    """`records` counts each stream's records in `path`, `size_bytes` is the file's size."""

    path: Path
    catalog_path: Path
    catalog: dict[str, Any]
    records: dict[str, int]
    size_bytes: int


def prepare(size_mb: int, seed: int, dirty_share: float) -> Workload:
    """The workload, from the cache when it was made before. All streams are appended to, with a STATE every 10,000 records."""
    CACHE.mkdir(parents=True, exist_ok=True)
    source = Shop(seed, dirty_share, CHECKPOINT_RECORDS)
    records = shop.records_for(size_mb * 10**6)
    path = CACHE / f"shop-{size_mb}mb-seed{seed}-dirty{dirty_share}.jsonl"
    if not path.exists():
        _generate(source, records, path)
    catalog = source.catalog(dict.fromkeys(shop.MIX, "append"))
    catalog_path = CACHE / "catalog-append.json"
    catalog_path.write_text(json.dumps(catalog))
    return Workload(path, catalog_path, catalog, shop.records_per_stream(records), path.stat().st_size)


def _generate(source: Shop, records: int, path: Path) -> None:
    started = time.monotonic()
    unfinished = path.with_suffix(".part")
    with unfinished.open("wb") as file:
        for chunk in source.read(records):
            file.write(chunk.lines)
    unfinished.rename(path)
    seconds = time.monotonic() - started
    print(f"generated {path.stat().st_size / 1e6:.0f} MB in {seconds:.1f} s ({path.stat().st_size / 1e6 / seconds:.0f} MB/s): {path}")
