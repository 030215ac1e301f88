"""Daemon that forks Spark's Python workers, with the tasks' imports already loaded: imported once, and in shared memory.

If the driver has forked a template (`worker_template`), the template becomes the daemon and this program only stays alive with it.

Spark's own daemon imports nothing, because libraries may start threads. The threads of Arrow's memory allocator handle forks themselves,
and OpenBLAS is told not to start any.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import socket
import sys
from contextlib import chdir, suppress
from importlib.abc import MetaPathFinder

TASKS_VARIABLE = "DESTINATION_S3_SPARK_TASKS"
"""Names the module of the tasks' functions."""
TEMPLATE_VARIABLE = "DESTINATION_S3_SPARK_TEMPLATE"
"""Names the template's socket, if there is a template."""
STANDARD_FILES = (0, 1, 2)
PYSPARK_ARCHIVES = "/pyspark/python/lib/"
ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    # Blocks of lines are allocated and freed by the megabyte. Pages returned to the kernel would have to be zeroed each time.
    "MALLOC_MMAP_THRESHOLD_": str(64 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": str(128 * 2**20),
    # glibc returns heaps of threads at once, and Arrow's own allocator returns pages after ten milliseconds.
    "MALLOC_ARENA_MAX": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}


def main() -> None:
    """Become Spark's daemon, or hand over to the template."""
    template = os.environ.get(TEMPLATE_VARIABLE)
    if template is not None and _hand_over(template):
        os._exit(0)
    # Spark puts a pyspark archive first on the path, and Python keeps no compiled files for an archive. The installed pyspark is the same.
    sys.path[:] = [entry for entry in sys.path if not entry.endswith(".zip") or PYSPARK_ARCHIVES not in entry]
    keep_out_pandas()
    serve()


def serve() -> None:
    """Import the missing modules and run Spark's daemon."""
    gc.disable()  # imports create many objects and no garbage
    from pyspark import daemon, worker  # noqa: F401, PLC0415 (imported for the forks)

    with suppress(ImportError):  # the functions then travel with their tasks, and workers do their own imports
        importlib.import_module(os.environ[TASKS_VARIABLE])
    gc.freeze()  # collections in forks must not touch shared pages
    gc.enable()
    daemon.manager()


def _hand_over(template: str) -> bool:
    """Give the template this process's standard files, arguments and environment, and wait until the template ends.

    Returns False if the template is gone: Spark has already used it for a daemon that died.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            directory, name = os.path.split(template)
            with chdir(directory):  # see `fork_template`
                connection.connect(name)
        except OSError:
            return False
        socket.send_fds(connection, [b"\0"], STANDARD_FILES)
        connection.sendall(json.dumps([sys.argv, dict(os.environ)]).encode())
        connection.shutdown(socket.SHUT_WR)
        for file in STANDARD_FILES:
            os.close(file)  # otherwise Spark would wait for us instead of the template
        connection.recv(1)
    return True


class _WithoutPandas(MetaPathFinder):
    def find_spec(self, name: str, *_: object) -> None:
        """Raise ModuleNotFoundError for pandas. Leave all other modules to other finders."""
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not used in this process", name=name)


def keep_out_pandas() -> None:
    """Make this process behave as if pandas were not installed. Only for the connector's own processes.

    Arrow and Spark import an installed pandas only to recognise its objects. That took a tenth of the start of a small sync.
    """
    sys.meta_path.insert(0, _WithoutPandas())


if __name__ == "__main__":
    main()
