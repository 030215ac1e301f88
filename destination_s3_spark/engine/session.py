"""The Spark session of a sync: started in the background while records are already being read, one per process.

Spark schedules, retries, isolates and scales functions over tasks, inside this process's machine or on a cluster. The records themselves
stay in the Python workers: a task carries file extents and keys, never rows.
"""

from __future__ import annotations

import importlib
import os
import pwd
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from destination_s3_spark.config.spark_conf import is_sensitive
from destination_s3_spark.engine.cluster import (
    Cluster,
    conf_of,
    giving_up_without_executors,
    no_executors,
    package_archive,
    require_working_executors,
    told_the_secret,
)
from destination_s3_spark.engine.cpus import available_cpus
from destination_s3_spark.engine.failures import Symptom, job_failure, start_failure, symptom
from destination_s3_spark.engine.jvm import Jvm
from destination_s3_spark.engine.memory import OOM_KILL_FILES, oom_kills
from destination_s3_spark.engine.outcome import Failed, guarded
from destination_s3_spark.engine.startup import shortcuts, worker_daemon
from destination_s3_spark.engine.startup.worker_template import fork_template
from destination_s3_spark.errors import SyncError

if TYPE_CHECKING:
    from pyspark import SparkContext

Task = TypeVar("Task")
Result = TypeVar("Result")

Progress = Callable[[int, int], None]
"""Takes the number of groups of tasks that are done, and of all of them."""

Groups = Sequence[Sequence[Any]]
"""Tasks of a job; those of a group run one after the other on one worker."""

GOODBYE_S = 3.0
"""How long a cluster may take to let go of its executors; later it notices by itself that the driver has gone."""
LAUNCH_S = 5.0
"""How long to wait for a JVM that is about to be launched, to end it: it would go on for a moment, and make its directory anew."""
TASK_ATTEMPTS = 3
"""A task whose Python worker died (killed for memory, say) is tried again; its uploads of earlier attempts stay invisible."""
USER_WITHOUT_ACCOUNT = "airbyte"
LOG4J = Path(__file__).with_name("log4j2.properties")


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """What the session needs. `local_dir` holds the scratch files of Spark and its JVM; it is made if need be.

    `cores` is the number of tasks that run at once inside the connector; on a cluster, if one is given, its executors decide.
    """

    cores: int
    heap_mb: int
    local_dir: Path
    conf: Mapping[str, str]
    cluster: Cluster | None = None
    java_options: tuple[str, ...] = ()
    """For the JVM, beside our own."""
    progress_every_s: float = 10.0


def local_cores(master: str) -> int:
    """The number of task slots of a `local[...]` master; `*` means the CPUs this process may use."""
    count = master.removeprefix("local").strip("[]").split(",")[0]
    if count == "*":
        return available_cpus()
    return int(count or 1)


class Engine:
    """Runs functions over tasks on Spark. `start` returns at once; `run` waits for the session.

    `tasks` names the module of these functions: workers have it imported, with all it needs, while the first records are still being
    read.
    `prepare` is given the tasks of each job before they leave this process, and returns them as executors shall have them.
    """

    def __init__(
        self,
        settings: SparkSettings,
        tasks: str = __name__,
        prepare: Callable[[Groups], Groups] = lambda groups: groups,
        oom_kill_files: tuple[Path, ...] = OOM_KILL_FILES,
    ) -> None:
        self._settings = settings
        self._tasks = tasks
        self._prepare = prepare
        self._context: SparkContext | None = None
        self._failure: Exception | None = None
        self._jvm: Jvm | None = None
        self._starter: threading.Thread | None = None
        self._template: Path | None = None
        self._oom_kill_files = oom_kill_files
        self._oom_kills_before = oom_kills(oom_kill_files)
        self.lost_attempts = False
        """Whether a task's worker died and the task ran again, or a request to begin an upload did: either may have left one behind."""

    @property
    def cores(self) -> int:
        """How many tasks run at once. On a cluster this waits for the session."""
        if self._settings.cluster is None:
            return self._settings.cores
        context = self._ready()
        with self._told_as_transient():
            return int(context.defaultParallelism)

    def launch(self) -> None:
        """Launch the JVM, and import what speaks with it; no thread is left: for a process that has the rest to import, and to fork.

        What goes wrong here goes wrong again in `start`, which is next, and is told from there.
        """

        def launch() -> None:
            with suppress(OSError):
                self._jvm = self._launch(())

        # On a thread, which no handler of a signal interrupts: `stop` finds the JVM, or waits for it.
        self._starter = threading.Thread(target=launch, name="spark-launch", daemon=True)
        self._starter.start()
        from pyspark import daemon, worker  # noqa: F401, PLC0415 (for the fork)

        self._starter.join()
        self._starter = None

    def fork_template(self) -> None:
        """Fork the process that workers are to be forked from, with what this one has imported. It must not have threads yet."""
        self._settings.local_dir.mkdir(parents=True, exist_ok=True)
        address = self._settings.local_dir / "template"
        if fork_template(address, worker_daemon.serve):
            self._template = address

    def start(self) -> None:
        """Begin starting the session in the background, once."""
        if self._starter is None:
            self._starter = threading.Thread(target=self._start, name="spark-start", daemon=True)
            self._starter.start()

    def run(
        self, function: Callable[[Task], Result], groups: Sequence[Sequence[Task]], progress: Progress | None = None
    ) -> list[list[Result]]:
        """Apply the function to every task; the tasks of a group run one after the other on one worker. Results keep the shape.

        `progress` is told now and then how many groups are done. Raises the first SyncError a task raised, as it was; any other exception
        of a task becomes a Bug without its text.
        """
        if not groups:
            return []
        context = self._ready()
        prepared = list(self._prepare(groups))
        with (
            self._told_as_transient(),
            self._not_for_ever(context),
            _watched(context, len(prepared), progress, self._settings.progress_every_s),
        ):
            outcomes = context.parallelize(prepared, len(prepared)).map(guarded(function)).collect()
        done: list[list[Result]] = []
        for outcome in outcomes:
            if isinstance(outcome, Failed):
                raise outcome.error
            self.lost_attempts = self.lost_attempts or outcome.lost_attempts
            done.append(outcome.results)
        return done

    def _not_for_ever(self, context: SparkContext) -> AbstractContextManager[None]:
        """Spark itself would wait for a cluster's executors until the end of days."""
        cluster = self._settings.cluster
        return nullcontext() if cluster is None else giving_up_without_executors(context, cluster, self._settings.conf)

    @contextmanager
    def _told_as_transient(self) -> Iterator[None]:
        """Raise a TransientError for whatever else goes wrong with Spark inside."""
        try:
            yield
        except SyncError:
            raise
        except Exception as error:
            raise job_failure(self._symptom(error), TASK_ATTEMPTS, on_cluster=self._settings.cluster is not None) from error

    def _symptom(self, error: Exception | None) -> Symptom:
        return symptom(error, self._jvm, kernel_killed=oom_kills(self._oom_kill_files) > self._oom_kills_before)

    def stop(self) -> None:
        """End the JVM at once: everything that must last is in S3 by now, and a slow goodbye helps nobody."""
        jvm = self._launched()
        if jvm is None:
            return
        if self._settings.cluster is not None and self._context is not None:
            # A cluster that is told gives the executors to others at once.
            goodbye = threading.Thread(target=_say_goodbye, args=(self._context,), name="spark-goodbye", daemon=True)
            goodbye.start()
            goodbye.join(GOODBYE_S)
        jvm.process.kill()
        with suppress(subprocess.TimeoutExpired):  # a busy machine; the kernel ends it all the same
            jvm.process.wait(timeout=10)
        if self._starter is not None:
            self._starter.join(GOODBYE_S)  # it fails now, if it was not done
        from pyspark import SparkContext  # noqa: PLC0415 (whoever launched the JVM imports it next)

        # Or the next session of this process, ours or another's, would be looked for in the JVM that is gone.
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None

    def _launched(self) -> Jvm | None:
        """The JVM, if there is one. If it is just about to be launched, it is waited for."""
        waiting_until = time.monotonic() + LAUNCH_S
        while self._jvm is None and self._starter is not None and self._starter.is_alive() and time.monotonic() < waiting_until:
            self._starter.join(0.01)
        return self._jvm

    def _ready(self) -> SparkContext:
        self.start()
        assert self._starter is not None  # noqa: S101 (start() has just set it)
        cluster = self._settings.cluster
        self._starter.join(None if cluster is None else cluster.start_limit_s)
        if self._context is None:
            if isinstance(self._failure, SyncError):
                raise self._failure
            if cluster is not None and self._failure is None:
                raise no_executors(cluster, self._settings.conf)
            raise start_failure(self._symptom(self._failure)) from self._failure
        return self._context

    def _start(self) -> None:
        try:
            with told_the_secret(self._settings.cluster, self._settings.local_dir) as arguments:
                self._jvm = self._jvm or self._launch(arguments)
                context = _spark_context(self._jvm, self._conf(), self._worker_environment())
            slots = self._settings.cores
            if self._settings.cluster is not None:
                context.addPyFile(str(package_archive(self._settings.local_dir)))
                require_working_executors(context)
                slots = context.defaultParallelism
            if self._template is None:  # which has imported everything
                context.parallelize(range(slots), slots).map(partial(_import, self._tasks)).collect()
            self._context = context
        except Exception as error:  # noqa: BLE001 (raised again, on the thread that waits for the session)
            self._failure = error

    def _launch(self, arguments: Sequence[str]) -> Jvm:
        self._settings.local_dir.mkdir(parents=True, exist_ok=True)
        _prepare_environment(self._settings.cluster)
        # The session has these from its own configuration, which does not pass by a command line.
        shown = {key: value for key, value in self._conf().items() if not is_sensitive(key)}
        return Jvm(shown, arguments, self._settings.local_dir)

    def _conf(self) -> dict[str, Any]:
        return {**_our_conf(self._settings), **self._settings.conf}

    def _worker_environment(self) -> dict[str, str]:
        if not shortcuts.enabled():
            return {}
        template = {worker_daemon.TEMPLATE_VARIABLE: str(self._template)} if self._template else {}
        return {**worker_daemon.ENVIRONMENT, worker_daemon.TASKS_VARIABLE: self._tasks, **template}


def _import(module: str, _slot: int) -> None:
    importlib.import_module(module)


@contextmanager
def _watched(context: SparkContext, groups: int, progress: Progress | None, every_s: float) -> Iterator[None]:
    """Tell `progress` what Spark says of the job that is run inside."""
    if progress is None:
        yield
        return
    name = uuid4().hex
    over = threading.Event()

    def watch() -> None:
        while not over.wait(every_s):
            try:
                done = _completed_tasks(context, name)
            except Exception:  # noqa: BLE001 (the JVM has gone, and its job says so)
                return
            progress(done, groups)

    context.setJobGroup(name, "progress is watched")
    watcher = threading.Thread(target=watch, name="spark-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()


def _completed_tasks(context: SparkContext, group: str) -> int:
    """Of the jobs of a group."""
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(int(stage)) for job in jobs if job is not None for stage in job.stageIds]
    return sum(stage.numCompletedTasks for stage in stages if stage is not None)


def _say_goodbye(context: SparkContext) -> None:
    """Tell the cluster that the session is over. A JVM that is killed meanwhile has had its time."""
    with suppress(Exception):
        context._jsc.stop()


def _name_the_user() -> None:
    """Give Spark a name for a user that has no account, as in a container that runs as any user: it would ask the system, and fail."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        os.environ.setdefault("SPARK_USER", USER_WITHOUT_ACCOUNT)


def _prepare_environment(cluster: Cluster | None) -> None:
    _name_the_user()
    # Workers must run this very interpreter, or they would not find our packages. Those of a cluster have packages of their own.
    os.environ["PYSPARK_PYTHON"] = sys.executable if cluster is None else cluster.python
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if cluster is None:
        os.environ["SPARK_LOCAL_HOSTNAME"] = "localhost"  # or Spark asks for the host name's address, which a container need not have


def _spark_context(jvm: Jvm, conf: Mapping[str, Any], environment: dict[str, str]) -> SparkContext:
    """`environment` is for the workers."""
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 (spec and check must not pay for it)

    gateway = jvm.gateway()
    # Or a thread of the scheduler that dies for want of memory, or of threads, would leave the rest waiting for it for ever.
    handler = gateway.jvm.org.apache.spark.util.SparkUncaughtExceptionHandler(False)
    gateway.jvm.java.lang.Thread.setDefaultUncaughtExceptionHandler(handler)
    context = SparkContext(conf=SparkConf(loadDefaults=False).setAll(list(conf.items())), environment=environment, gateway=gateway)
    accumulators: Any = context._accumulatorServer
    accumulators.handle_error = lambda *_: None  # it would print a traceback when its JVM goes away, also when we end it
    return context


def _our_conf(settings: SparkSettings) -> dict[str, Any]:
    # C1 only: the JVM runs for seconds and never touches a record, so the optimizing compiler costs more than it returns.
    # A young generation as large as Java makes it by itself on a large machine would be walked through once in every long sync.
    java_options = (
        *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmn32m", "-Xss512k", f"-Dlog4j2.configurationFile={LOG4J.as_uri()}"),
        f'"-Djava.io.tmpdir={settings.local_dir}"',  # a JVM that is killed leaves native libraries and a directory where it has them
        f'"-Duser.home={settings.local_dir}"',  # a user without an account has none, and Ivy insists on it
    )
    inside = {
        "spark.master": f"local[{settings.cores},{TASK_ATTEMPTS}]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # Executors elsewhere get our package too late for it.
        **({"spark.python.daemon.module": worker_daemon.__name__} if shortcuts.enabled() else {}),
    }
    return {
        **(inside if settings.cluster is None else {**conf_of(settings.cluster), "spark.task.maxFailures": str(TASK_ATTEMPTS)}),
        "spark.app.name": "destination-s3-spark",
        "spark.driver.memory": f"{settings.heap_mb}m",
        "spark.driver.extraJavaOptions": " ".join((*java_options, *settings.java_options)),
        "spark.local.dir": str(settings.local_dir),
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.worker.reuse": "true",
    }
