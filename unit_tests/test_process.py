"""The process of the connector: how signals end it."""

from __future__ import annotations

import signal
import subprocess
import sys

from unit_tests.cases import each

TWO_SIGNALS = """
import os, signal
from destination_s3_spark.process import Terminated, _stopping_on_signals

try:
    with _stopping_on_signals():
        try:
            signal.raise_signal(signal.{first})
            print("not stopped", flush=True)
        finally:
            print("cleaning up", flush=True)
            signal.raise_signal(signal.{second})
            print("cleaned up", flush=True)
except Terminated as stopped:
    os._exit(128 + stopped.number)
"""


@each(
    ("first", "second", "said", "code"),
    [
        ("SIGINT", "SIGINT", ["cleaning up"], 128 + signal.SIGINT),
        ("SIGTERM", "SIGINT", ["cleaning up"], 128 + signal.SIGINT),
        ("SIGINT", "SIGTERM", ["cleaning up", "cleaned up"], 128 + signal.SIGINT),
        ("SIGTERM", "SIGTERM", ["cleaning up", "cleaned up"], 128 + signal.SIGTERM),
    ],
)
def test_a_second_ctrl_c_ends_the_process_while_it_cleans_up(first: str, second: str, said: list[str], code: int) -> None:
    program = TWO_SIGNALS.format(first=first, second=second)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (ended.stdout.split("\n")[:-1], ended.returncode) == (said, code)
    assert ended.stderr == ""
