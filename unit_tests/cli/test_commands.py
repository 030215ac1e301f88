from __future__ import annotations

import inspect
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import cast

import pytest

from destination_s3_spark.cli import operator_command
from destination_s3_spark.cli.tree import COMPLETION_VARIABLE, SHELLS, tree
from unit_tests.cases import each

COMMAND = [sys.executable, "-m", "destination_s3_spark"]
AIRBYTE_COMMANDS = ("spec", "check", "write")
OPERATOR_COMMANDS = [name for name, command in tree.commands.items() if command.callback]


@each("command", [*AIRBYTE_COMMANDS, *OPERATOR_COMMANDS])
@each("option", ["-h", "--help"])
def test_every_command_explains_itself(command: str, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert operator_command([command, option]) == 0
    assert f"Usage: destination-s3-spark {command}" in capsys.readouterr().out


@each("command", [name for name in OPERATOR_COMMANDS if name != "completion"])
def test_the_function_of_a_command_has_its_options_as_parameters(command: str) -> None:
    place = inspect.getclosurevars(cast("FunctionType", tree.commands[command].callback)).nonlocals
    function = getattr(import_module(f"destination_s3_spark.cli.{place['module']}"), place["function"])

    assert set(inspect.signature(function).parameters) == {parameter.name for parameter in tree.commands[command].params}


def test_the_help_lists_every_command_with_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert operator_command(["--help"]) == 0

    _, airbyte, operators = capsys.readouterr().out.split("Commands for ")
    assert [line.split()[0] for line in airbyte.splitlines()[1:] if line] == list(AIRBYTE_COMMANDS)
    assert [line.split()[0] for line in operators.splitlines()[1:] if line] == OPERATOR_COMMANDS
    assert all(len(line.split()) > 3 for line in [*airbyte.splitlines()[1:], *operators.splitlines()[1:]] if line)


@each("command", AIRBYTE_COMMANDS)
def test_the_help_of_airbytes_commands_does_not_run_them(command: str) -> None:
    ended = subprocess.run([*COMMAND, command, "--help"], capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith(f"Usage: destination-s3-spark {command}")


@each(("wrong", "meant"), [("inspekt", "inspect"), ("chek", "check"), ("rebiuld", "rebuild"), ("wirte", "write")])
def test_a_wrong_command_is_answered_with_the_nearest(wrong: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert operator_command([wrong, "--config", "config.json"]) == 2
    assert f"No such command '{wrong}'. Did you mean '{meant}'?" in capsys.readouterr().err


@each("command", [command for command in OPERATOR_COMMANDS if command in ("inspect", "report", "changes", "repair", "rebuild")])
def test_commands_on_tables_need_a_configuration(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert operator_command([command]) == 2
    assert "--config" in capsys.readouterr().err


@each("command", ["changes", "rebuild"])
def test_commands_on_one_table_need_its_stream(command: str, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert operator_command([command, "--config", str(config)]) == 2
    assert "say which with --stream" in capsys.readouterr().err


@each("shell", SHELLS)
def test_each_shell_has_a_completion_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert operator_command(["completion", shell]) == 0

    script = capsys.readouterr().out
    assert f"{COMPLETION_VARIABLE}={shell}_complete" in script
    assert "destination-s3-spark" in script


@each(
    ("words", "completions"),
    [
        ("destination-s3-spark in", ["inspect"]),
        ("destination-s3-spark re", ["report", "registry", "repair", "rebuild"]),
        ("destination-s3-spark wr", ["write"]),
        ("destination-s3-spark check --co", ["--config"]),
    ],
)
def test_a_shell_is_told_the_completions(words: str, completions: list[str]) -> None:
    asked = {COMPLETION_VARIABLE: "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    ended = subprocess.run(COMMAND, capture_output=True, text=True, check=False, env={**os.environ, **asked})

    assert [line.removeprefix("plain,") for line in ended.stdout.splitlines()] == completions


def test_bash_completes_with_the_script() -> None:
    """The script is sourced by a real bash, which runs the installed command to complete a word."""
    completing = """
eval "$(destination-s3-spark completion bash)"
COMP_WORDS=(destination-s3-spark ins) COMP_CWORD=1
_destination_s3_spark_completion destination-s3-spark
echo "${COMPREPLY[@]}"
"""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    ended = subprocess.run(["bash", "-c", completing], capture_output=True, text=True, check=False, env=environment)

    assert (ended.stdout, ended.stderr) == ("inspect\n", "")


@pytest.mark.usefixtures("served_settings")
def test_the_commands_need_none_of_the_packages_that_the_image_lacks(config: Path) -> None:
    lines = Path("scripts/trim-packages").read_text().partition("unused_packages=(")[2].partition(")")[0].split()
    names = [{"markdown-it-py": "markdown_it"}.get(name, name.replace("-", "_")) for name in lines]
    script = f"""
import sys
sys.modules.update(dict.fromkeys({names!r}))
from destination_s3_spark.cli import operator_command
raise SystemExit(operator_command(["inspect", "--config", {str(config)!r}]))
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert "No tables under" in ended.stdout
