"""Which kernel a process loads."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from destination_s3_spark.kernel import HOW_LINES_ARE_TYPED, KERNEL, SWITCH, kernel_library

needs_kernel = pytest.mark.skipif(KERNEL is None, reason="without the native kernel")
PROGRAM = "from destination_s3_spark.kernel import HOW_LINES_ARE_TYPED, kernel_library; print(HOW_LINES_ARE_TYPED, kernel_library())"
ROOT = Path(__file__).parents[1]


def said(*path: Path, options: tuple[str, ...] = (), switch: str = "") -> str:
    """What a process with this path says of its kernel. Without installed packages with the option -S."""
    environment = {**os.environ, "PYTHONPATH": ":".join(map(str, (*path, ROOT))), SWITCH: switch}
    done = subprocess.run([sys.executable, *options, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_switch_has_everything_typed_in_python() -> None:
    assert said(switch="off") == "in Python (DESTINATION_S3_SPARK_KERNEL=off) None"


def test_without_a_kernel_everything_is_typed_in_python() -> None:
    assert said(options=("-S",)) == "in Python (the native kernel is not installed) None"


@needs_kernel
def test_the_library_alone_is_the_kernel_wherever_it_lies(tmp_path: Path) -> None:
    library = kernel_library()
    assert library is not None
    copy = shutil.copy(library, tmp_path)
    assert said(tmp_path, options=("-S",)) == f"{HOW_LINES_ARE_TYPED} {copy}"


def test_a_library_for_another_machine_is_named_and_python_types(tmp_path: Path) -> None:
    (tmp_path / "destination_s3_spark_kernel.abi3.so").write_bytes(b"of another kind of machine")
    text = said(tmp_path, options=("-S",))
    assert text.startswith("in Python (the native kernel cannot be loaded on this ")
    assert text.endswith("None")


@needs_kernel
def test_a_library_for_another_machine_does_not_hide_the_kernel_of_this_one(tmp_path: Path) -> None:
    (tmp_path / "destination_s3_spark_kernel.abi3.so").write_bytes(b"of another kind of machine")
    assert said(tmp_path) == f"{HOW_LINES_ARE_TYPED} {kernel_library()}"
