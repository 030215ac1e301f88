"""Environment variables of Spark's processes on this machine.

Spark and Hadoop can put variables of their JVM into the values of properties, and whoever writes the configuration writes properties. So
the JVM gets the variables that it needs, and no other: a secret that it does not have cannot leave through it. Python's workers need the
rest to reach the store. They get it with the session.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

OWN = {"LC_ALL": "C.UTF-8", "SPARK_CONNECT_MODE": "0"}
"""Variables that the JVM gets from here. Like Python, Java reads names of files as UTF-8 in this locale only. With
another locale Java may never finish starting."""
NEEDED = re.compile(
    r"PATH|HOME|TMPDIR|TZ|LANG|LANGUAGE|LC_\w+"
    r"|USER|LOGNAME|SPARK_USER"  # of users without an account too
    r"|LD_LIBRARY_PATH|LD_PRELOAD|NSS_WRAPPER_PASSWD|NSS_WRAPPER_GROUP"  # the last three may give such a user a name
    r"|JAVA_HOME|JAVA_TOOL_OPTIONS|JDK_JAVA_OPTIONS"
    r"|SPARK_CONF_DIR|SPARK_LOCAL_HOSTNAME|SPARK_LOCAL_IP|PYSPARK_PYTHON|PYSPARK_DRIVER_PYTHON"
)
"""Variables that Java, Spark's scripts and its driver need on every master."""


def of_jvm(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of this process that the JVM needs, and its own."""
    return {**chosen(environ, filter(NEEDED.fullmatch, environ)), **OWN}


def of_workers(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of this process that workers on this machine do not inherit from the JVM.

    One that is not UTF-8 is left out, because the way to a worker is through Java.
    """
    return {name: value for name, value in environ.items() if not NEEDED.fullmatch(name) and name not in OWN and _is_text(name + value)}


def chosen(environ: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Return the variables with these names, as far as there are any."""
    return {name: environ[name] for name in names if name in environ}


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
