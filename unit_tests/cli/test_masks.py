"""Secrets of the environment and of the configuration in what commands show."""

from __future__ import annotations

from unit_tests.lake import messages
from unit_tests.lake.lake import Lake

SECRET = "orders-of-the-platform"
"""A stream's name: every command shows it, so what hides it is the mask."""
ENVIRONMENT = {"PLATFORM_TOKEN": SECRET}


def filled(lake: Lake) -> None:
    outcome = lake.connector(ENVIRONMENT).write(
        messages.catalog(messages.stream(SECRET)),
        [messages.record({"id": 1}, SECRET), messages.complete(SECRET), messages.state(1, SECRET)],
    )
    assert outcome.exit_code == 0
    said = [message["log"]["message"] for message in outcome.of_type("LOG")]
    assert any("****" in text for text in said)
    assert not any(SECRET in text for text in said)


COMMANDS = [
    ("inspect",),
    ("inspect", "--stream", SECRET),
    ("inspect", "--stream", f"{SECRET}s"),
    ("verify",),
    ("repair",),
    ("doctor", "--output", "json"),
]


def test_no_command_shows_a_secret_of_the_environment(lake: Lake) -> None:
    filled(lake)
    for command in COMMANDS:
        outcome = lake.connector(ENVIRONMENT).run(*command)
        said = outcome.text + outcome.stderr
        assert SECRET not in said, command
        assert "****" in said or command[0] == "doctor", command
