from __future__ import annotations

import contextlib
import os
import pty
import re
import subprocess
import sys
import threading

import pytest

from destination_s3_spark.cli import terminal
from destination_s3_spark.cli.terminal import Progress


def wait_for_lines(capsys: pytest.CaptureFixture[str], count: int) -> list[str]:
    """The lines on stderr, once there are so many."""
    lines: list[str] = []
    while len(lines) < count:
        lines += capsys.readouterr().err.splitlines()
        threading.Event().wait(0.01)
    return lines


def test_without_a_terminal_there_is_a_line_at_intervals(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("repairing tables", 1_200, line_every_s=0.02) as shown:
        first = wait_for_lines(capsys, 1)[0]
        shown.update(1_100, note="3 failed")
        shown.advance()
        later = wait_for_lines(capsys, 2)[-1]

    assert re.fullmatch(r"repairing tables: 0 of 1,200, \d+ s", first)
    assert re.fullmatch(r"repairing tables: 1,101 of 1,200, 3 failed, \d+ s", later)


def test_a_thing_without_a_number_has_its_time_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("reading the chain", line_every_s=0.02):
        line = wait_for_lines(capsys, 1)[0]

    assert re.fullmatch(r"reading the chain, \d+ s", line)


def test_what_is_over_at_once_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("reading tables", 3) as shown:
        shown.advance()

    assert capsys.readouterr().err == ""


def test_an_error_inside_ends_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="broken"), Progress("reading tables"):
        raise ValueError("broken")

    assert [thread for thread in threading.enumerate() if thread.name == "progress"] == []
    assert capsys.readouterr().err == ""


SCRIPT = """
import sys, time
from destination_s3_spark.cli import terminal
terminal.SHOWN_AFTER_S = float(sys.argv[1])
with terminal.Progress(sys.argv[2], 4) as shown:
    for number in range(4):
        time.sleep(0.3)
        sys.stdout.write(f"[{number}] done\\n")
        sys.stdout.flush()
        shown.advance()
"""


HOSTILE_SCRIPT = """
import sys, time
from destination_s3_spark.cli import terminal
from destination_s3_spark.cli import filtered_output
terminal.SHOWN_AFTER_S = float(sys.argv[1])
name = "[/nope][link=http://evil]x[/link]\\x1b]0;owned\\x07\\nline"
with filtered_output(), terminal.Progress("rewriting " + name, 2) as shown:
    time.sleep(0.4)
    sys.stdout.write(name + " is well\\n")
    sys.stderr.write(name + " is bad\\n")
    shown.update(1, note=name)
    time.sleep(0.3)
"""


def run_in_terminal(shown_after_s: float, doing: str = "repairing tables", script: str = SCRIPT, **streams: int) -> tuple[str, str]:
    """What the script writes to a terminal, and to a pipe if its stdout is one."""
    main, other = pty.openpty()
    stdout = streams.get("stdout", other)
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(shown_after_s), doing], stdout=stdout, stderr=other, stdin=other, env=environment
    )
    os.close(other)
    written = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while chunk := os.read(main, 65536):
            written += chunk
    os.close(main)
    piped = process.communicate()[0] or b""
    return written.decode(), piped.decode()


def test_on_a_terminal_there_is_a_bar_and_lines_stay_whole() -> None:
    screen, _ = run_in_terminal(0.1)

    assert "repairing tables" in screen
    assert "━" in screen
    assert [f"[{number}] done" in screen for number in range(4)] == [True] * 4


def test_names_in_and_beside_a_bar_are_neither_markup_nor_sequences() -> None:
    screen, _ = run_in_terminal(0.1, script=HOSTILE_SCRIPT)

    assert "rewriting [/nope][link=http://evil]x[/link]�]0;owned�␤line" in screen
    assert [f"�]0;owned�\nline is {word}" in screen.replace("\r", "") for word in ("well", "bad")] == [True, True]
    assert "\x1b]" not in screen
    assert "\x07" not in screen


def test_a_bar_leaves_a_piped_stdout_alone() -> None:
    screen, piped = run_in_terminal(0.1, stdout=subprocess.PIPE)

    assert "repairing tables" in screen
    assert piped == "".join(f"[{number}] done\n" for number in range(4))


def test_no_bar_is_drawn_for_what_is_over_soon() -> None:
    screen, _ = run_in_terminal(terminal.SHOWN_AFTER_S)

    assert screen.replace("\r", "") == "".join(f"[{number}] done\n" for number in range(4))


def test_names_with_square_brackets_are_shown_as_they_are() -> None:
    """Rich would take [/nope] for the end of markup that never began."""
    screen, _ = run_in_terminal(0.1, doing="looking at [/nope] and [bold]x[/bold]")

    assert "looking at [/nope] and [bold]x[/bold]" in screen
    assert "Traceback" not in screen
