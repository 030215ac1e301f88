"""What a benchmark's figures were taken on, to be printed with them."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from pathlib import Path

import psutil

PACKAGES = ("destination-s3-spark", "pyspark", "pyarrow", "msgspec", "boto3", "duckdb", "moto")


def describe_machine() -> str:
    """The machine, how busy it is before the benchmark starts, and the versions that matter, in a few lines."""
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
    memory = psutil.virtual_memory().total / 2**30
    uncompiled = "\nPYTHONDONTWRITEBYTECODE is set: what is not compiled yet is compiled at every start" if sys.dont_write_bytecode else ""
    return (
        f"machine: {len(os.sched_getaffinity(0))} CPUs ({_processor()}), {memory:.0f} GiB, Python {platform.python_version()}\n"
        f"{versions}{uncompiled}"
    )


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
