"""What the process that workers are forked from has loaded, and has not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from destination_s3_spark.engine.engine import Engine
from destination_s3_spark.engine.session import SparkSettings
from destination_s3_spark.sync.runtime import TASKS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    engine = Engine(SparkSettings(1, 512, tmp_path_factory.mktemp("spark"), {}), TASKS)
    yield engine
    engine.stop()


def test_workers_find_everything_imported_before_they_were_forked(engine: Engine) -> None:
    def loaded(_: int) -> tuple[bool, bool, str]:
        import gc  # noqa: PLC0415 (travels to a worker)
        import sys  # noqa: PLC0415

        return "destination_s3_spark.tables.landing.land" in sys.modules and gc.get_freeze_count() > 0, "pandas" in sys.modules, sys.argv[0]

    ((answer,),) = engine.run(loaded, [[0]])
    has_tasks, has_pandas, daemon = answer
    assert has_tasks
    assert not has_pandas
    assert Path(daemon).name == "worker_daemon.py"


def test_workers_import_pyspark_from_where_it_is_compiled(engine: Engine) -> None:
    def place(_: int) -> str:
        import pyspark  # noqa: PLC0415 (travels to a worker)

        return pyspark.__file__

    ((path,),) = engine.run(place, [[0]])
    assert ".zip" not in path


def test_workers_take_the_memory_of_arrow_from_the_c_library(engine: Engine) -> None:
    def backend(_: int) -> str:
        import pyarrow  # noqa: PLC0415 (travels to a worker)

        return pyarrow.default_memory_pool().backend_name

    assert engine.run(backend, [[0]]) == [["system"]]


def test_pandas_kept_out_is_as_if_it_were_not_installed() -> None:
    program = (
        "from destination_s3_spark.engine.startup.worker_daemon import keep_out_pandas; keep_out_pandas()\n"
        "import sys, pyarrow as pa\n"
        "assert pa.array([1, None]).to_pylist() == [1, None] and 'pandas' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
