"""Tests of the output of Spark's JVM."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from destination_s3_spark.engine import jvm
from destination_s3_spark.engine.jvm import NOISE, Jvm, JvmOutput, quoted

DEADLINE_S = 10


def test_lines_pass_on_without_those_of_every_start(capfd: pytest.CaptureFixture[str]) -> None:
    reader, writer = os.pipe()
    output = JvmOutput(os.fdopen(reader, "rb"))
    output.follow()
    os.write(writer, NOISE[0] + b"\nOutOfMemoryError: Java heap space\n\tat java.base/java.util.Arrays.copyOf(Arrays.java:1)\n")
    os.close(writer)
    output.finish(DEADLINE_S)

    assert capfd.readouterr().err.splitlines()[0] == "OutOfMemoryError: Java heap space"
    assert quoted(output.last_lines) == "OutOfMemoryError: Java heap space"


def test_without_a_thread_to_follow_it_the_output_can_be_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    reader, writer = os.pipe()
    pipe = os.fdopen(reader, "rb")
    output = JvmOutput(pipe)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="start new thread"):
        output.follow()
    output.finish(DEADLINE_S)

    assert pipe.closed
    os.close(writer)


def test_the_output_can_be_finished_while_another_thread_begins_to_follow_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    reader, writer = os.pipe()
    output = JvmOutput(os.fdopen(reader, "rb"))
    finisher = threading.Thread(target=output.finish, args=(DEADLINE_S,))
    begin = threading.Thread.start

    def start_late(thread: threading.Thread) -> None:
        begin(finisher)
        finisher.join(0.1)
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", start_late)
    output.follow()
    os.write(writer, b"OutOfMemoryError: Java heap space\n")
    os.close(writer)
    finisher.join(DEADLINE_S)

    assert capfd.readouterr().err.splitlines() == ["OutOfMemoryError: Java heap space"]


def test_finished_output_is_not_followed() -> None:
    reader, writer = os.pipe()
    output = JvmOutput(os.fdopen(reader, "rb"))
    output.finish(DEADLINE_S)
    output.follow()
    output.finish(DEADLINE_S)

    assert output.last_lines == ()
    os.close(writer)


def test_a_jvm_that_accepts_no_connection_is_not_waited_for_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    submit = tmp_path / "bin" / "spark-submit"
    submit.parent.mkdir()
    submit.write_text("#!/bin/sh\nexec sleep 600\n")
    submit.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setattr(jvm, "CONNECTION_LIMIT_S", 0.1)
    hung = Jvm({}, (), tmp_path, {})
    with pytest.raises(OSError, match="accepted no connection"):
        hung.gateway()
    assert hung.process.wait(DEADLINE_S) < 0
    hung.close()
