from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest
from airbyte_cdk.models import ConnectorSpecificationSerializer

from destination_s3_spark.__main__ import main
from destination_s3_spark.destination import DestinationS3Spark


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


def test_without_a_command_there_is_the_usage_and_no_traceback() -> None:
    ended = subprocess.run([sys.executable, "-m", "destination_s3_spark"], capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("usage: destination-s3-spark {spec,check,write,")
    assert len(ended.stderr.splitlines()) == 1
