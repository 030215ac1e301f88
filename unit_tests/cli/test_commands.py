from __future__ import annotations

import pytest

from destination_s3_spark.cli import OPERATOR_COMMANDS, operator_command


@pytest.mark.parametrize("command", OPERATOR_COMMANDS)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        operator_command([command, "--help"])

    assert stopped.value.code == 0
    assert f"usage: destination-s3-spark {command}" in capsys.readouterr().out


@pytest.mark.parametrize("records", ["0", "-5", "many"])
def test_the_demo_refuses_a_number_of_records_that_is_none(records: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        operator_command(["demo", "--records", records])

    assert stopped.value.code == 2
    assert "--records" in capsys.readouterr().err


def test_inspect_needs_a_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        operator_command(["inspect"])

    assert stopped.value.code == 2
    assert "--config" in capsys.readouterr().err
