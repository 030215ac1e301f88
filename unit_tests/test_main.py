from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec

import pytest
from airbyte_cdk.models import ConnectorSpecificationSerializer

from destination_s3_spark.__main__ import main
from destination_s3_spark.destination import DestinationS3Spark
from unit_tests.cases import each


def test_spec_without_the_cdk_is_that_of_the_cdk(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["destination-s3-spark", "spec"])

    main()

    (line,) = capfd.readouterr().out.splitlines()
    of_the_cdk = ConnectorSpecificationSerializer.dump(DestinationS3Spark().spec(logging.getLogger("airbyte")))
    assert json.loads(line) == {"type": "SPEC", "spec": {name: value for name, value in of_the_cdk.items() if value is not None}}


def test_the_exit_code_is_that_of_the_command_whatever_python_would_do_at_its_end() -> None:
    script = (
        "import atexit, os, sys; from destination_s3_spark.__main__ import main; atexit.register(os.abort); "
        "sys.argv[1:] = ['inspect', '--config', 'there-is-none.json']; main()"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert ended.returncode == 1
    assert "there-is-none.json" in ended.stderr


def test_without_a_command_there_is_the_help_and_no_traceback() -> None:
    ended = subprocess.run([sys.executable, "-m", "destination_s3_spark"], capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("Usage: destination-s3-spark [OPTIONS] COMMAND [ARGS]...")
    assert "Traceback" not in ended.stderr


@each("module", ["destination_s3_spark.__main__", "destination_s3_spark.sync.assembly", "destination_s3_spark.process"])
def test_a_sync_imports_nothing_that_is_for_a_terminal(module: str) -> None:
    script = f"import sys, {module}; print({{'click', 'rich', 'airbyte_cdk'}} & set(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert ended.stdout == "set()\n"


def test_the_specification_takes_nothing_but_json() -> None:
    script = (
        "import sys; from destination_s3_spark.__main__ import main; sys.argv[1:] = ['spec']; main(); "
        "sys.stderr.write(str({'click', 'rich', 'pydantic', 'pyarrow', 'boto3', 'airbyte_cdk'} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert ended.stderr == "set()"


def test_ctrl_c_while_modules_are_imported_leaves_no_traceback() -> None:
    script = """
import sys

class Interrupt:
    def find_spec(self, name, *_):
        if name == "destination_s3_spark.cli":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
from destination_s3_spark.__main__ import main
sys.argv[1:] = ["inspect", "--config", "config.json"]
main()
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


@each("switch", ["", "off"])
def test_the_version_says_by_what_records_are_typed(switch: str) -> None:
    environment = {**os.environ, "DESTINATION_S3_SPARK_KERNEL": switch}
    command = [sys.executable, "-m", "destination_s3_spark", "--version"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)

    assert ended.stdout.startswith(f"destination-s3-spark {version('destination-s3-spark')}; records are typed ")
    by_the_kernel = "by the native kernel" in ended.stdout
    assert by_the_kernel == (find_spec("destination_s3_spark_kernel") is not None and not switch)


def test_an_error_nobody_foresaw_leaves_its_place_on_stderr_and_not_its_text() -> None:
    script = """
import json, sys
from destination_s3_spark import process

def parse(record):
    json.loads(record)

def fail(output):
    try:
        parse(sys.argv[1])
    except ValueError as error:
        raise KeyError(sys.argv[1]) from error

raise SystemExit(process.run(fail))
"""
    ended = subprocess.run([sys.executable, "-c", script, "a record with a secret"], capture_output=True, text=True, check=False)

    assert ended.returncode == 1
    (error,) = (json.loads(line)["trace"]["error"] for line in ended.stdout.splitlines())
    assert (error["failure_type"], error["stack_trace"]) == ("system_error", ended.stderr)
    assert all(place in ended.stderr for place in ("in parse", "in decode", "JSONDecodeError", "which led to", "in fail", "KeyError"))
    assert "secret" not in ended.stdout + ended.stderr


def test_an_error_for_the_user_says_nothing_on_stderr() -> None:
    script = """
from destination_s3_spark import process
from destination_s3_spark.errors import ConfigError

def fail(output):
    raise ConfigError("Set it right.")

raise SystemExit(process.run(fail))
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stderr) == (1, "")
