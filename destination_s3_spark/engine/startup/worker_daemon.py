"""The process that Spark's Python workers are forked from, with what their tasks import already in it: imported once, and shared memory.

Where the driver has a template of it (`worker_template`), that becomes the process, and this program only stays with it.

Spark's own daemon imports nothing, for fear of libraries that start threads. Those of Arrow's memory allocator take care of forks
themselves, and OpenBLAS, which would start some for nothing, is told not to.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import socket
import sys
from contextlib import chdir, suppress

from destination_s3_spark.engine.startup.without_pandas import keep_out_pandas

TASKS_VARIABLE = "DESTINATION_S3_SPARK_TASKS"
"""Names the module of the tasks' functions."""
TEMPLATE_VARIABLE = "DESTINATION_S3_SPARK_TEMPLATE"
"""Names the socket of the template, if there is one."""
STANDARD_FILES = (0, 1, 2)
PYSPARK_ARCHIVES = "/pyspark/python/lib/"
ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    # Blocks of lines come and go by the megabyte. Given back to the kernel each time, their pages would be zeroed anew each time.
    "MALLOC_MMAP_THRESHOLD_": str(64 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": str(128 * 2**20),
    # Heaps of threads are given back at once; and Arrow's own allocator gives pages back after ten milliseconds.
    "MALLOC_ARENA_MAX": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}


def main() -> None:
    """Become Spark's daemon, or let the template be it."""
    template = os.environ.get(TEMPLATE_VARIABLE)
    if template is not None and _hand_over(template):
        os._exit(0)
    # Spark puts pyspark as an archive in front of the path, and nothing in an archive is kept compiled. The installed one is the same.
    sys.path[:] = [entry for entry in sys.path if not entry.endswith(".zip") or PYSPARK_ARCHIVES not in entry]
    keep_out_pandas()
    serve()


def serve() -> None:
    """Import what is not there yet, and go on as Spark's daemon."""
    gc.disable()  # modules make many objects and no garbage
    from pyspark import daemon, worker  # noqa: F401, PLC0415 (the worker module is there for the forks)

    with suppress(ImportError):  # then the functions travel with their tasks, and workers import what they need themselves
        importlib.import_module(os.environ[TASKS_VARIABLE])
    gc.freeze()  # what is shared stays shared: no fork looks through it for garbage
    gc.enable()
    daemon.manager()


def _hand_over(template: str) -> bool:
    """Give the template this process' standard files, arguments and environment, and stay until it has ended.

    False where it is not there: Spark has had it before, for a daemon that died.
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
            os.close(file)  # or Spark would wait for us where it waits for the template
        connection.recv(1)
    return True


if __name__ == "__main__":
    main()
