"""Fork of the driver that becomes Spark's Python daemon, made after all imports and before any thread exists.

Spark starts its daemon as a separate program, which would repeat the driver's imports. Instead, that program (`worker_daemon`) passes its
standard files, environment and arguments to the fork through a Unix socket, and stays alive as long as the fork does.
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
    """Fork this process. The fork sleeps until a caller connects to `address`, then runs `serve`. It ends with this process.

    `address` names a socket in a directory that only this user can access: the caller decides for whom the fork works. Returns False if
    forking is impossible or unsafe. Spark's daemon then does its own imports.
    """
    if threading.active_count() > 1:
        return False
    with suppress(OSError), socket.socket(socket.AF_UNIX) as listener:
        with chdir(address.parent):  # a socket address has at most 107 bytes, a path may be longer
            listener.bind(address.name)
        listener.listen(1)
        lifeline, _ours = os.pipe()  # the driver's end stays open as long as the driver lives
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)  # the driver's handlers must not run in the fork
        try:
            if os.fork() == 0:
                _wait(listener, lifeline, serve)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
            os.close(lifeline)
        return True
    return False


def _wait(listener: socket.socket, lifeline: int, serve: Callable[[], None]) -> NoReturn:
    """Wait in the fork for the caller. End when the driver ends."""
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
    except BaseException:  # noqa: BLE001 (the process ends here: no caller could handle it)
        traceback.print_exc()
    finally:
        os._exit(code)


def _leave_the_driver(kept: set[int]) -> None:
    """Detach the fork from the driver's signals, log and other open files, so that no reader waits for their end."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
    logging.root.handlers.clear()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for file in {int(file.name) for file in Path("/dev/fd").iterdir()} - kept - {nowhere}:
        os.dup2(nowhere, file, inheritable=False)  # not closed: objects of the driver still refer to the number


def _take_over(listener: socket.socket) -> None:
    """Take over the files, arguments and environment of the caller.

    The connection stays open as long as this process and its children live.
    """
    connection, _ = listener.accept()
    listener.close()  # so that Spark's next daemon does not wait for us
    _, files, _, _ = socket.recv_fds(connection, 1, len(STANDARD_FILES))
    with connection.makefile("rb") as received:
        arguments, environment = json.load(received)
    connection.detach()
    for target, file in zip(STANDARD_FILES, files, strict=True):
        os.dup2(file, target)
        os.close(file)
    sys.argv[:] = arguments
    os.environ.clear()
    os.environ.update(environment)
