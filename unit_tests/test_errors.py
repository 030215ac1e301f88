from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable

import pytest

from destination_s3_spark.errors import frames_of, lack_error
from unit_tests.cases import each


def no_thread() -> None:
    before = threading.stack_size(2**50)  # the system's own refusal, and Python's own words for it
    try:
        threading.Thread(target=int).start()
    finally:
        threading.stack_size(before)


def no_file() -> None:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def no_memory() -> None:
    bytearray(2**62)


def another() -> None:
    raise OSError(errno.ENOENT, "customer 4711")


@each(
    ("cause", "said"), [(no_thread, "start more threads"), (no_file, "open more files"), (no_memory, "ran out of memory"), (another, None)]
)
def test_what_the_system_lacks_is_told_apart_from_other_errors(cause: Callable[[], None], said: str | None) -> None:
    with pytest.raises((RuntimeError, OSError, MemoryError)) as raised:
        cause()
    lack = lack_error(raised.value)
    assert (lack is None) == (said is None)
    if lack is not None and said is not None:
        assert said in lack.message


def test_frames_are_those_of_the_causes_too_without_a_text() -> None:
    try:
        try:
            another()
        except OSError as error:
            raise KeyError("customer 4711") from error
    except KeyError as error:
        frames = frames_of(error)

    assert frames.index("in another") < frames.index("FileNotFoundError\nwhich led to\n") < frames.index("KeyError")
