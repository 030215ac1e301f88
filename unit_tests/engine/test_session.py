import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import ModuleType

import psutil
import pytest
from pyspark import SparkContext, cloudpickle

from destination_s3_spark.engine.engine import Engine
from destination_s3_spark.engine.jvm import Jvm
from destination_s3_spark.engine.machine import available_cpus, oom_kills
from destination_s3_spark.engine.outcome import outcome_of
from destination_s3_spark.engine.session import DriverSession, SparkSettings, local_cores
from destination_s3_spark.errors import Bug, ConfigError, DataError, SyncError, TransientError
from destination_s3_spark.stream_id import StreamId
from unit_tests.cases import each

pytestmark = pytest.mark.slow

# The workers cannot import a test module, so its functions travel whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file in which the kernel counts what it has killed, as it seems to the engine."""
    file = tmp_path_factory.mktemp("cgroup") / "memory.events"
    file.write_text("oom_kill 0\n")
    return file


@pytest.fixture
def one_is_killed(killed: Path) -> Iterator[None]:
    killed.write_text("oom_kill 1\n")
    yield
    killed.write_text("oom_kill 0\n")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory, killed: Path) -> Iterator[Engine]:
    settings = SparkSettings(2, 512, tmp_path_factory.mktemp("spark") / "scratch files", {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("destination_s3_spark.engine.session.oom_kills", partial(oom_kills, (killed,)))
        engine = Engine(settings)
        engine.start()
        yield engine
        engine.stop()


def _double(number: int) -> int:
    return 2 * number


def _refuse(number: int) -> int:
    raise DataError(f"number {number} is refused", stream=StreamId(None, "numbers"))


def _quote(record: str) -> str:
    raise ValueError(f"cannot parse {record}")


def _sleep(seconds: float) -> None:
    time.sleep(seconds)


def _die_once(marker: str) -> int:
    path = Path(marker)
    if not path.exists():
        path.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


def _die(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_jvm(_: int) -> None:
    next(parent for parent in psutil.Process().parents() if parent.name() == "java").kill()


def test_a_session_can_be_stopped_at_any_moment_of_its_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    half_imported = ModuleType("pyspark")
    monkeypatch.setitem(sys.modules, "pyspark", half_imported)
    Engine(SparkSettings(1, 512, tmp_path, {})).stop()


# A process has one Spark session at a time, so these come before the one that the other tests share.


def test_many_threads_may_ask_for_the_session_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started: list[str] = []

    class SlowThread(threading.Thread):
        def start(self) -> None:
            time.sleep(0.05)
            super().start()

    def fail(session: DriverSession) -> None:
        started.append("once")
        session._failure = TransientError("no Spark here")

    def ask(_: int) -> str:
        with pytest.raises(TransientError) as raised:
            session.ready()
        return raised.value.message

    monkeypatch.setattr(DriverSession, "_start", fail)
    session = DriverSession(SparkSettings(1, 512, tmp_path, {}), __name__)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(time.sleep, [0.01] * 8))  # its own threads are there
        monkeypatch.setattr("destination_s3_spark.engine.session.threading.Thread", SlowThread)
        assert set(pool.map(ask, range(8))) == {"no Spark here"}
    assert started == ["once"]


def test_after_a_stop_another_session_can_run_in_the_same_process(tmp_path: Path) -> None:
    for _ in range(2):
        engine = Engine(SparkSettings(1, 512, tmp_path, {}))
        assert engine.run(_double, [[4]]) == [[8]]
        engine.stop()


def test_a_password_for_spark_is_on_no_command_line(tmp_path: Path) -> None:
    engine = Engine(SparkSettings(1, 512, tmp_path / "spark", {"spark.ssl.keyPassword": "open sesame", "spark.task.cpus": "1"}))
    engine.run(_double, [[4]])
    (jvm,) = (child for child in psutil.Process().children() if child.name() == "java")
    command = " ".join(jvm.cmdline())
    assert "spark.task.cpus=1" in command
    assert "sesame" not in command
    context = SparkContext._active_spark_context
    assert context is not None
    assert context.getConf().get("spark.ssl.keyPassword") == "open sesame"
    engine.stop()


def test_a_jvm_that_is_being_launched_is_ended_before_its_directory_goes(tmp_path: Path) -> None:
    engine = Engine(SparkSettings(1, 512, tmp_path / "spark", {}))
    engine.start()
    engine.stop()
    assert [child for child in psutil.Process().children(recursive=True) if child.name() == "java"] == []
    assert {thread.name for thread in threading.enumerate()} & {"spark-start"} == set()


def test_a_jvm_launched_ahead_is_the_one_that_is_used_and_ended(tmp_path: Path) -> None:
    others = set(psutil.Process().children())
    engine = Engine(SparkSettings(1, 512, tmp_path / "spark", {}))
    engine.session.launch()
    assert {thread.name for thread in threading.enumerate()} & {"spark-launch", "spark-start"} == set()
    (launched,) = set(psutil.Process().children()) - others
    assert engine.run(_double, [[4]]) == [[8]]
    assert set(psutil.Process().children()) - others == {launched}
    engine.stop()
    assert not launched.is_running()


def test_a_jvm_that_dies_between_jobs_or_in_one_ends_the_sync_with_a_transient_error(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    engine = Engine(SparkSettings(1, 512, tmp_path / "spark", {}, progress_every_s=0.01))
    for _ in range(2):
        with pytest.raises(TransientError, match="JVM ended with code -9, for lack of memory"):
            engine.run(_kill_jvm, [[1]], lambda *_: None)
    engine.stop()  # and an exception in a thread would fail the test
    assert caplog.records == []


@pytest.mark.slow
def test_a_jvm_starts_with_any_letters_in_its_directory_whatever_the_locale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    directory = tmp_path / "Bücher"
    directory.mkdir()
    jvm = Jvm({}, [], directory, {})
    try:
        until = time.monotonic() + 60
        while not (written := list(directory.glob("*/connection"))) and time.monotonic() < until:
            time.sleep(0.1)
        assert written
    finally:
        jvm.process.kill()
        jvm.process.wait()
        jvm.close()


def test_a_jvm_launched_ahead_can_be_stopped_at_once(tmp_path: Path) -> None:
    engine = Engine(SparkSettings(1, 512, tmp_path / "spark", {}))
    engine.session.launch()
    engine.stop()
    assert [child for child in psutil.Process().children(recursive=True) if child.name() == "java"] == []


def test_a_jvm_that_cannot_be_launched_ahead_is_told_of_when_it_is_needed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "nowhere"))
    engine = Engine(SparkSettings(1, 512, tmp_path / "spark", {}))
    engine.session.launch()
    with pytest.raises(TransientError, match="Spark did not start"):
        engine.run(_double, [[1]])
    engine.stop()


def test_a_session_that_cannot_start_says_so(tmp_path: Path) -> None:
    broken = Engine(SparkSettings(1, 64, tmp_path, {}))  # less than Spark itself needs
    with pytest.raises(ConfigError, match=r"Spark did not start: .*System memory \d+ must be at least"):
        broken.run(_double, [[1]])
    broken.stop()


def test_a_jvm_that_ends_before_it_is_up_is_not_blamed_on_memory(tmp_path: Path) -> None:
    broken = Engine(SparkSettings(1, 512, tmp_path, {}, java_options=("-Xss1",)))
    with pytest.raises(TransientError, match="Spark did not start: the JVM ended with code 1 ") as raised:
        broken.run(_double, [[1]])
    assert "memory" not in raised.value.message
    broken.stop()


def test_results_keep_the_shape_of_the_groups(engine: Engine) -> None:
    assert engine.run(_double, [[1, 2], [3]]) == [[2, 4], [6]]


def test_the_jvm_leaves_its_files_where_the_sync_clears_up(engine: Engine) -> None:
    engine.run(_double, [[1]])
    context = SparkContext._active_spark_context
    assert context is not None
    assert context._jvm is not None
    directory = Path(context._jvm.System.getProperty("java.io.tmpdir"))
    assert directory.name == "scratch files"
    assert [path for path in directory.iterdir() if path.name.startswith("spark-")]


def test_our_own_error_of_a_task_is_raised_as_it_was(engine: Engine) -> None:
    with pytest.raises(DataError, match="number 7 is refused") as raised:
        engine.run(_refuse, [[7]])
    assert raised.value.stream == StreamId(None, "numbers")


def test_the_text_of_any_other_error_stays_on_the_worker(engine: Engine) -> None:
    with pytest.raises(Bug, match=r"ValueError at .*_quote") as raised:
        engine.run(_quote, [["a secret record"]])
    assert "secret" not in str(raised.value)


def test_a_worker_says_on_stderr_where_any_other_error_was_raised(capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(outcome_of(_quote, ["a secret record"]), SyncError)
    said = capsys.readouterr().err
    assert "in _quote" in said
    assert "ValueError" in said
    assert "secret" not in said


def test_a_task_whose_worker_died_runs_again_and_the_engine_remembers(engine: Engine, tmp_path: Path) -> None:
    engine.lost_attempts = False
    assert engine.run(_die_once, [[str(tmp_path / "died")]])[0][0] != os.getpid()
    assert engine.lost_attempts is True


def test_a_job_that_fails_leaves_what_its_other_tasks_have_staged(engine: Engine) -> None:
    engine.lost_attempts = False
    engine.run(_double, [[1]])
    assert engine.lost_attempts is False
    with pytest.raises(DataError):
        engine.run(_refuse, [[1], [2]])
    assert engine.lost_attempts is True


def test_workers_that_always_die_end_the_sync_with_a_transient_error(engine: Engine) -> None:
    with pytest.raises(TransientError, match="its workers died 3 times") as raised:
        engine.run(_die, [[1]])
    assert "memory" not in raised.value.message  # the kernel killed none


@pytest.mark.usefixtures("one_is_killed")
def test_where_the_kernel_killed_for_want_of_memory_the_error_says_so(engine: Engine) -> None:
    with pytest.raises(TransientError, match=r"its workers died 3 times, for lack of memory\. .* Give the container more"):
        engine.run(_die, [[1]])


def test_a_jvm_without_room_on_its_heap_is_said_to_want_memory(engine: Engine) -> None:
    engine.run(_double, [[1]])  # starts the JVM if no other test has
    context = SparkContext._active_spark_context
    assert context is not None
    assert context._jvm is not None
    with pytest.raises(TransientError, match="for lack of memory"), engine._as_transient():
        context._jvm.java.util.Collections.nCopies(2**30, "x").toArray()


@each(("master", "cores"), [("local", 1), ("local[3]", 3), ("local[*]", available_cpus())])
def test_cores_of_a_local_master(master: str, cores: int) -> None:
    assert local_cores(master) == cores


def test_an_error_of_whoever_watches_ends_the_job(engine: Engine) -> None:
    def lost(_done: int, _groups: int) -> None:
        raise DataError("the table is another one's now")

    began = time.monotonic()
    with pytest.raises(DataError, match="another one's"):
        engine.run(_sleep, [[300.0], [300.0], [300.0]], lost)
    assert engine.lost_attempts
    assert engine.run(_double, [[4], [5]]) == [[8], [10]]
    assert time.monotonic() - began < 120
