"""A fork of the driver, made once it has imported everything and before it has threads, that becomes Spark's Python daemon.

Spark starts its daemon as a program of its own, which would import all over again what the driver has. That program (`worker_daemon`)
gives its standard files, environment and arguments to the fork instead, through a Unix socket, and stays for as long as the fork does.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import chdir, suppress
from pathlib import Path
from typing import NoReturn

from destination_s3_spark.engine.startup.worker_daemon import STANDARD_FILES

STOPPING = {signal.SIGTERM, signal.SIGINT}


def fork_template(address: Path, serve: Callable[[], None]) -> bool:
    """Fork this process; the fork sleeps until it is called at the address, then it does `serve`. It ends with this process.

    `address` is for a socket, in a directory that is ours alone: who calls, decides for whom the fork works. False where there can be no
    fork, or it would not be safe; Spark's daemon then imports for itself.
    """
    if threading.active_count() > 1:
        return False
    with suppress(OSError), socket.socket(socket.AF_UNIX) as listener:
        with chdir(address.parent):  # an address has at most 107 bytes, a path may have more
            listener.bind(address.name)
        listener.listen(1)
        lifeline, _ours = os.pipe()  # its end that is ours stays open for as long as we live
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)  # the fork must not come upon our handlers
        try:
            if os.fork() == 0:
                _wait(listener, lifeline, serve)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
            os.close(lifeline)
        return True
    return False


def _wait(listener: socket.socket, lifeline: int, serve: Callable[[], None]) -> NoReturn:
    """In the fork: wait for the call, and end with the driver."""
    code = 1
    try:
        _leave_the_driver({listener.fileno(), lifeline, *STANDARD_FILES[1:]})
        called, _, _ = select.select([listener.fileno(), lifeline], [], [])
        if listener.fileno() in called:
            _take_over(listener)
            serve()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:  # noqa: BLE001 (the end of this process: there is nobody to raise it for)
        traceback.print_exc()
    finally:
        os._exit(code)


def _leave_the_driver(kept: set[int]) -> None:
    """Give up the driver's part in the world: its signals, its log, and its other files, of which somebody may wait for the end."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
    logging.root.handlers.clear()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for file in {int(file.name) for file in Path("/dev/fd").iterdir()} - kept - {nowhere}:
        os.dup2(nowhere, file, inheritable=False)  # not closed: objects of the driver still know the number


def _take_over(listener: socket.socket) -> None:
    """Become the program that calls. The connection stays open for as long as this process and its children live."""
    connection, _ = listener.accept()
    listener.close()  # Spark's next daemon shall not wait for us
    _, files, _, _ = socket.recv_fds(connection, 1, len(STANDARD_FILES))
    with connection.makefile("rb") as told:
        arguments, environment = json.load(told)
    connection.detach()
    for target, file in zip(STANDARD_FILES, files, strict=True):
        os.dup2(file, target)
        os.close(file)
    sys.argv[:] = arguments
    os.environ.clear()
    os.environ.update(environment)
