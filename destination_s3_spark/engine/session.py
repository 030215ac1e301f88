"""Spark session of a sync: one per process, started in the background while records are already being read."""

from __future__ import annotations

import importlib
import logging
import os
import pwd
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from destination_s3_spark.config.spark_conf import SUBSTITUTION, is_sensitive
from destination_s3_spark.engine.cluster import Cluster, package_archive, require_working_executors, secret_arguments
from destination_s3_spark.engine.failures import Symptom, start_failure, symptom
from destination_s3_spark.engine.jvm import LOG4J, Jvm
from destination_s3_spark.engine.machine import available_cpus, oom_kills
from destination_s3_spark.engine.manager import Manager, no_executors
from destination_s3_spark.engine.startup import shortcuts, worker_daemon
from destination_s3_spark.engine.startup.worker_template import fork_template
from destination_s3_spark.engine.variables import chosen, of_workers
from destination_s3_spark.engine.waiting import ended_without_hope
from destination_s3_spark.errors import ConfigError, SyncError
from destination_s3_spark.kernel import SWITCH, kernel_library
from destination_s3_spark.protocol.secrets import SecretFilter, secrets_of_environment

if TYPE_CHECKING:
    from pyspark import SparkContext

CLUSTER_GOODBYE_S = 3.0
"""Seconds for a cluster to release its executors. After that it notices by itself that the driver is gone."""
LAUNCH_S = 5.0
"""Seconds to wait for a JVM that is just being launched before ending it. Otherwise it would run on and recreate its directory."""
TASK_ATTEMPTS = 3
"""Attempts of a task whose Python worker dies, for example for lack of memory. Uploads of earlier attempts stay invisible."""
USER_WITHOUT_ACCOUNT = "airbyte"
NAMES_OF_USER = ("SPARK_USER", "USER", "LOGNAME")
"""Environment variables in which Spark, shells and Python look for the user's name before they look for an account."""
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Settings of the session. `local_dir` holds the scratch files of Spark and its JVM and is created if missing.

    `cores` is the number of parallel tasks inside the connector. With a cluster, its executors determine that number.
    """

    cores: int
    heap_mb: int
    local_dir: Path
    conf: Mapping[str, str]
    cluster: Cluster | None = None
    java_options: tuple[str, ...] = ()
    """Options for the JVM, in addition to the connector's."""
    progress_every_s: float = 2.0
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    """Secrets of the configuration, for what Spark's processes write."""


def local_cores(master: str) -> int:
    """Return the number of task slots of a `local[...]` master. `*` means the CPUs this process may use."""
    count = master.removeprefix("local").strip("[]").split(",")[0]
    if count == "*":
        return available_cpus()
    return int(count or 1)


def manager_of(cluster: Cluster, conf: Mapping[str, str], directory: Path) -> Manager:
    from destination_s3_spark.engine.kubernetes import Kubernetes  # noqa: PLC0415 (Spark in the connector must not pay for it)
    from destination_s3_spark.engine.yarn import Yarn  # noqa: PLC0415 (nor for this)

    kind = Kubernetes if cluster.master.startswith("k8s://") else Yarn if cluster.master == "yarn" else Manager
    return kind(cluster, conf, directory)


class DriverSession:
    """The Spark session of this process. `start` returns at once; `ready` waits for the session.

    `tasks` names the module of the functions to run. Workers import it and its dependencies while the first records are still being read.
    """

    def __init__(self, settings: SparkSettings, tasks: str) -> None:
        self.settings = settings
        cluster = settings.cluster
        self.manager = None if cluster is None else manager_of(cluster, settings.conf, settings.local_dir)
        self._tasks = tasks
        self._context: SparkContext | None = None
        self._failure: Exception | None = None
        self._jvm: Jvm | None = None
        self._starter: threading.Thread | None = None
        self._starting = threading.Lock()
        self._template: Path | None = None
        self._oom_kills_before = oom_kills()
        self._masks = SecretFilter()
        self._masks.add((*settings.secrets, *secrets_of_environment(os.environ)))

    @property
    def starting(self) -> bool:
        return self._starter is not None and self._context is None and self._failure is None

    def launch(self) -> None:
        """Launch the JVM and import the modules that talk to it, without leaving a thread behind.

        The process has more to import, and then to fork. An error here is suppressed, because `start` comes next, fails the same way and
        reports it.
        """

        def launch() -> None:
            with suppress(OSError, SyncError):
                self._jvm = self._launch(())

        # Signal handlers do not interrupt another thread: `stop` finds the JVM or waits for it.
        self._starter = threading.Thread(target=launch, name="spark-launch", daemon=True)
        self._starter.start()
        from pyspark import daemon, worker  # noqa: F401, PLC0415 (for the fork)

        self._starter.join()
        self._starter = None

    def fork_template(self) -> None:
        """Fork the process that will fork the workers, with the modules imported so far. This process must not have threads yet."""
        self.settings.local_dir.mkdir(parents=True, exist_ok=True)
        address = self.settings.local_dir / "template"
        if fork_template(address, worker_daemon.serve):
            self._template = address

    def start(self) -> None:
        """Start the session in the background, once. Any thread may call it: updates of several tables ask for the cluster at once."""
        with self._starting:
            if self._starter is None:
                self._starter = threading.Thread(target=self._start, name="spark-start", daemon=True)
                self._starter.start()

    def ready(self) -> SparkContext:
        """Start the session if nobody has, and wait for it. Raises SyncError."""
        self.start()
        assert self._starter is not None  # noqa: S101 (start() has just set it)
        cluster = self.settings.cluster
        self._starter.join(None if cluster is None else cluster.start_limit_s)
        if self._context is None:
            if isinstance(self._failure, SyncError):
                raise self._failure
            if self.manager is not None and self._failure is None:
                raise no_executors(self.manager)
            raise start_failure(self.symptom(self._failure), self.settings.conf) from self._failure
        return self._context

    def stop(self) -> None:
        """Kill the JVM immediately. All results are on S3 by now, so a slow shutdown has no benefit."""
        jvm = self._launched()
        if jvm is None:
            return
        if self.settings.cluster is not None and self._context is not None:
            # A cluster that is notified frees the executors at once.
            goodbye = threading.Thread(target=_say_goodbye, args=(self._context,), name="spark-goodbye", daemon=True)
            goodbye.start()
            goodbye.join(CLUSTER_GOODBYE_S)
        jvm.process.kill()
        if self.manager is not None:
            self.manager.clean_up()
        with suppress(subprocess.TimeoutExpired):  # the machine is busy; the kernel ends the JVM anyway
            jvm.process.wait(timeout=10)
        jvm.close()
        if self._starter is not None:
            self._starter.join(CLUSTER_GOODBYE_S)  # it fails now if it was still starting
        from pyspark import SparkContext  # noqa: PLC0415 (a process that launched the JVM imports it anyway)

        # Otherwise pyspark would look for this process's next session in the dead JVM.
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None

    def _launched(self) -> Jvm | None:
        """Return the JVM, or None if there is none. Wait for one that is just being launched."""
        waiting_until = time.monotonic() + LAUNCH_S
        while self._jvm is None and self._starter is not None and self._starter.is_alive() and time.monotonic() < waiting_until:
            self._starter.join(0.01)
        return self._jvm

    def symptom(self, error: Exception | None) -> Symptom:
        return symptom(error, self._jvm, kernel_killed=oom_kills() > self._oom_kills_before)

    def _start(self) -> None:
        try:
            self._context = self._started() if self.manager is None else self._started_on(self.manager)
        except Exception as error:  # noqa: BLE001 (raised again on the thread that waits for the session)
            self._failure = error

    def _started(self) -> SparkContext:
        self._jvm = self._jvm or self._launch(())
        context = _spark_context(self._jvm.gateway(), self._conf(), self._worker_environment())
        if self._template is None:  # the template has imported everything
            self._import_in_workers(context, self.settings.cores)
        return context

    def _started_on(self, manager: Manager) -> SparkContext:
        """Return a context on a cluster whose executors have what tasks need."""
        for trial in manager.trials():
            trial.run()
        with secret_arguments(manager.cluster, self.settings.local_dir) as arguments:
            self._jvm = jvm = self._launch(arguments)
            with ended_without_hope(manager, jvm.process.kill):
                gateway = jvm.gateway()
                manager.before_session(gateway)
                context = _spark_context(gateway, self._conf(), self._worker_environment())
                context.addPyFile(str(package_archive(self.settings.local_dir)))
                library = kernel_library()
                if library is not None:
                    context.addFile(str(library))  # tasks import it from there, because Python imports no library from a zip file
                logger.info("The executors type records %s.", require_working_executors(context))
                self._import_in_workers(context, context.defaultParallelism)
        return context

    def _import_in_workers(self, context: SparkContext, slots: int) -> None:
        context.parallelize(range(slots), slots).map(partial(_import, self._tasks)).collect()

    def _launch(self, arguments: Sequence[str]) -> Jvm:
        self.settings.local_dir.mkdir(parents=True, exist_ok=True)
        _prepare_environment(self.settings.cluster)
        # The session takes sensitive options from its own configuration, because a command line would expose them.
        shown = {key: value for key, value in self._conf().items() if not is_sensitive(key)}
        environment = {} if self.manager is None else self.manager.environment()
        return Jvm(shown, arguments, self.settings.local_dir, environment, self._masks.masked)

    def _conf(self) -> dict[str, Any]:
        """Return the whole configuration. Raises ConfigError if Spark or Hadoop would change a value of it.

        The configuration's own are known to be sound. This also concerns what an API server says, and names of directories.
        """
        conf = {**_our_conf(self.settings, self.manager), **self.settings.conf}
        for key, value in conf.items():
            if SUBSTITUTION in str(value):
                raise ConfigError(
                    f"{key} holds {SUBSTITUTION}, for which Spark would put in a variable of this machine. Change where it is from."
                )
        return conf

    def _worker_environment(self) -> dict[str, str]:
        """Return variables for workers. Those on this machine get all of this process, of which the JVM has few; others learn none."""
        ours = of_workers(os.environ) if self.manager is None else chosen(os.environ, [SWITCH])
        if not shortcuts.enabled():
            return ours
        template = {worker_daemon.TEMPLATE_VARIABLE: str(self._template)} if self._template else {}
        return {**ours, **worker_daemon.ENVIRONMENT, worker_daemon.TASKS_VARIABLE: self._tasks, **template}


def _import(module: str, _slot: int) -> None:
    importlib.import_module(module)


def _say_goodbye(context: SparkContext) -> None:
    """Notify the cluster that the session is over. The JVM may be killed meanwhile."""
    with suppress(Exception):
        context._jsc.stop()


def _has_account() -> bool:
    """Return whether the user has an account: not in a container that runs as any user (OpenShift, `docker run --user 12345:0`)."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return True


def _prepare_environment(cluster: Cluster | None) -> None:
    if not _has_account():
        for name in NAMES_OF_USER:
            os.environ.setdefault(name, USER_WITHOUT_ACCOUNT)
    # Local workers must run this interpreter to find the connector's packages. Executors of a cluster have their own.
    os.environ["PYSPARK_PYTHON"] = sys.executable if cluster is None else cluster.python
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if cluster is None:
        os.environ["SPARK_LOCAL_HOSTNAME"] = "localhost"  # otherwise Spark resolves the host name, which may fail in a container


def _spark_context(gateway: Any, conf: Mapping[str, Any], environment: dict[str, str]) -> SparkContext:
    """Create the context in the gateway's JVM. `environment` is that of the workers."""
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 (spec and check must not pay for it)

    if not _has_account():
        # Hadoop's own lookup of the user would fail, and its variables do not prevent it.
        hadoop = gateway.jvm.org.apache.hadoop.security.UserGroupInformation
        hadoop.setLoginUser(hadoop.createRemoteUser(USER_WITHOUT_ACCOUNT))
    # Otherwise a scheduler thread that dies for lack of memory or threads would leave the rest waiting for it indefinitely.
    handler = gateway.jvm.org.apache.spark.util.SparkUncaughtExceptionHandler(False)
    gateway.jvm.java.lang.Thread.setDefaultUncaughtExceptionHandler(handler)
    context = SparkContext(conf=SparkConf(loadDefaults=False).setAll(list(conf.items())), gateway=gateway)
    context.environment |= environment  # pyspark's argument would also make properties of them
    accumulators: Any = context._accumulatorServer
    accumulators.handle_error = lambda *_: None  # it would print a traceback when its JVM ends, even if we end it
    return context


def _our_conf(settings: SparkSettings, manager: Manager | None) -> dict[str, Any]:
    # C1 only: the JVM runs for seconds and never touches a record, so the optimizing compiler costs more than it saves. Java's default
    # young generation on a large machine would be touched completely in every long sync, so it is limited.
    java_options = (
        *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmn32m", "-Xss512k", f"-Dlog4j2.configurationFile={LOG4J.as_uri()}"),
        f'"-Djava.io.tmpdir={settings.local_dir}"',  # a killed JVM leaves native libraries and a directory there
        f'"-Duser.home={settings.local_dir}"',  # a user without an account has no home, and Ivy requires one
        *(() if _has_account() else (f"-Duser.name={USER_WITHOUT_ACCOUNT}",)),
        *(() if manager is None else manager.java_options()),
    )
    inside = {
        "spark.master": f"local[{settings.cores},{TASK_ATTEMPTS}]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # Others on this machine reach the ports too: the containers of a pod share the loopback. Spark makes a secret of its own.
        "spark.authenticate": "true",
        # Executors on other machines receive the connector's package too late for a daemon module.
        **({"spark.python.daemon.module": worker_daemon.__name__} if shortcuts.enabled() else {}),
    }
    outside = {} if manager is None else {"spark.master": manager.cluster.master, "spark.task.maxFailures": str(TASK_ATTEMPTS)}
    return {
        **(inside if manager is None else {**outside, **manager.properties()}),
        "spark.app.name": "destination-s3-spark",
        "spark.driver.memory": f"{settings.heap_mb}m",
        "spark.driver.extraJavaOptions": " ".join((*java_options, *settings.java_options)),
        "spark.local.dir": str(settings.local_dir),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.worker.reuse": "true",
    }
