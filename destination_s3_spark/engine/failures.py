"""Diagnosis of Spark failures. Messages blame memory only if something is known to have run out of it."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from destination_s3_spark.engine.jvm import Jvm, quoted
from destination_s3_spark.errors import ConfigError, SyncError, TransientError

KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
"""Exit codes of a killed JVM. The kernel kills it for lack of memory; the connector does so only after all jobs have ended."""
OUT_OF_MEMORY = 52
"""Exit code of Spark's JVM after an OutOfMemoryError that nothing has caught."""
WANT_OF_MEMORY = re.compile(r"OutOfMemoryError(?!: unable to create)|OOMKilled|exit(?:ed with)? code:? (?:137|52)\b", re.IGNORECASE)
"""Messages of Spark and Java about an executor or the JVM running out of memory."""
WANT_OF_THREADS = re.compile(r"unable to create (?:new )?native thread", re.IGNORECASE)
"""Java's message, also an OutOfMemoryError, for a limit of threads."""
NO_MASTER = "All masters are unresponsive"
"""Message of a Spark that gave up finding its master. Its exception is only about parts that it had not built yet."""
END_S = 1.0
"""Seconds for a JVM with broken connections to end, so that its exit code is known."""

NO_RETRY = re.compile(
    r"unknown queue|above the max threshold|is forbidden|Unauthorized|Must specify|IllegalArgumentException|NumberFormatException"
    r"|AccessControlException|SIMPLE authentication is not enabled|No FileSystem for scheme"
)
"""Messages of Spark, Hadoop and Kubernetes about what another attempt meets again."""

_SAID = re.compile(r"^(?:: |Caused by: )(?P<words>[^\n]+)", re.MULTILINE)
_CLASS = re.compile(r"^(?:[\w$]+\.)+[\w$]+: ")
_OF_KUBERNETES = re.compile(r"Message: (?P<words>.*?)\. Received status: ")
_FAILED_TASK = re.compile(r"most recent failure: [^\n]*?: (?P<kind>[\w.$]+(?:Exception|Error))")
_LOOK = "Spark's own messages on stderr say more"
_NO_MASTER = (
    "Spark did not start: the server at spark.master did not answer as a Spark master does. Check its port (usually 7077; 8080 is that of "
    f"the master's page), and that it runs the same version of Spark. {_LOOK}."
)
_LIMIT = "The system refuses to start more threads. Raise the limit of the container (pids) or of the user (ulimit -u) and try again."


@dataclass(frozen=True, slots=True)
class Symptom:
    """Facts about a failure: a text for the user, Spark's message (empty if none), and the JVM's exit code if it has ended.

    `last_words`: the last lines that a JVM that has ended has written, as one line; empty if it wrote none or is alive.
    """

    words: str
    spark_said: str
    jvm_code: int | None
    last_words: str
    want_of_memory: bool
    want_of_threads: bool
    no_master: bool


def symptom(error: BaseException | None, jvm: Jvm | None, *, kernel_killed: bool) -> Symptom:
    """Diagnose an exception of Spark or py4j and the state of the JVM. `kernel_killed`: the kernel's OOM killer has ended processes."""
    spark_said = _java_text(error)
    code, lines = None, tuple[str, ...]()
    if jvm is not None and not spark_said:
        with suppress(subprocess.TimeoutExpired):
            code = jvm.process.wait(END_S)
            jvm.output.finish(END_S)
            lines = jvm.output.last_lines
    words = innermost(spark_said) or (str(error) if isinstance(error, OSError) else type(error).__name__)
    said = "\n".join((spark_said, *lines))
    killed = code in (*KILLED, OUT_OF_MEMORY) and WANT_OF_THREADS.search(said) is None
    return Symptom(
        words=words,
        spark_said=spark_said,
        jvm_code=code,
        last_words=quoted(lines),
        want_of_memory=killed or kernel_killed or WANT_OF_MEMORY.search(said) is not None,
        want_of_threads=WANT_OF_THREADS.search(said) is not None,
        no_master=jvm is not None and any(NO_MASTER in line for line in jvm.output.last_lines),
    )


def start_failure(seen: Symptom, conf: Mapping[str, str]) -> SyncError:
    """Return the error for a session with these properties of the user that did not start.

    No records were involved, so the message may quote Spark, unless that speaks about a property: then it names the key alone.
    """
    if seen.want_of_memory:
        return TransientError("Spark did not start for lack of memory. Give the container more (4 GiB is advised) and try again.")
    if seen.no_master:
        return TransientError(_NO_MASTER)
    if key := _refused_property(seen, conf):
        return ConfigError(f"Spark did not start: it does not take the value of {key} in spark.conf. Correct it, or remove it.")
    what = f"Spark did not start: {seen.words.rstrip('.')}"
    if seen.want_of_threads:
        return TransientError(f"{what}. {_LIMIT}")
    if seen.last_words:
        return TransientError(
            f"{what}. Its last words: {seen.last_words}. `destination-s3-spark doctor` tries Java and Spark by themselves."
        )
    return (ConfigError if NO_RETRY.search(seen.spark_said) else TransientError)(f"{what}. {_LOOK}.")


def _refused_property(seen: Symptom, conf: Mapping[str, str]) -> str | None:
    """Return the key of the property that Spark names, or whose value it does not take; None if it speaks about none."""
    said = f"{seen.spark_said}\n{seen.last_words}"
    named = [key for key in conf if _is_in(key, said)]
    if not named and NO_RETRY.search(said):
        named = [key for key, value in conf.items() if value and _is_in(value, said)]
    return max(named, key=lambda key: len(conf[key]), default=None)


def _is_in(word: str, text: str) -> bool:
    return re.search(rf"(?<![\w.-]){re.escape(word)}(?![\w-]|\.\w)", text) is not None


def job_failure(seen: Symptom, attempts: int, *, on_cluster: bool) -> TransientError:
    """Return the error for a job that Spark gave up after `attempts` attempts or lost with its JVM."""
    if seen.jvm_code is not None:
        what = f"Spark's JVM ended with code {seen.jvm_code}"
    elif not seen.spark_said:
        what = f"Spark did not accept a batch ({seen.words})"
    elif "Python worker" in seen.spark_said:
        what = f"Spark gave up on a batch: its workers died {attempts} times"
    else:
        failed = _FAILED_TASK.search(seen.spark_said)
        what = "Spark gave up on a batch" + (f": {failed['kind']}" if failed else "")
    kept = "Nothing after the last acknowledged STATE was kept."
    if seen.want_of_threads and not seen.want_of_memory:
        return TransientError(f"{what}. {kept} {_LIMIT}")
    if not seen.want_of_memory:
        last_words = f" Its last words: {seen.last_words}." if seen.last_words else ""
        return TransientError(f"{what}.{last_words} {kept} {_LOOK}; try again.")
    where = "executors more" if on_cluster and seen.spark_said else "the container more (4 GiB is advised)"
    return TransientError(f"{what}, for lack of memory. {kept} Give {where} and try again.")


def workers_failure(attempts: int, *, want_of_memory: bool) -> TransientError:
    """Return the error for a batch whose workers on this machine died `attempts` times."""
    what = f"A batch could not be landed: its workers died {attempts} times"
    kept = "Nothing after the last acknowledged STATE was kept."
    if want_of_memory:
        return TransientError(f"{what}, for lack of memory. {kept} Give the container more (4 GiB is advised) and try again.")
    return TransientError(f"{what}. {kept} {_LOOK}; try again.")


def innermost(spark_said: str) -> str:
    """Return the message of the last cause in a Java exception's text, without its class; empty if there is none."""
    said = [found["words"].strip() for found in _SAID.finditer(spark_said)]
    telling = [words for words in said if _CLASS.sub("", words)]
    if not telling:
        return ""
    of_kubernetes = _OF_KUBERNETES.search(telling[-1])
    return of_kubernetes["words"] if of_kubernetes else _CLASS.sub("", telling[-1])


def _java_text(error: BaseException | None) -> str:
    """Return the message of a Java exception, or "" for other exceptions and if py4j cannot reach the JVM."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 (spec and check must not pay for it)

    if not isinstance(error, Py4JJavaError):
        return ""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 (the text comes from the JVM, which may have ended)
        return ""
