"""Entry point of the console script, of `python -m destination_s3_spark` and of the image."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

HELP = ("-h", "--help")
EXIT_TERMINATED = 128 + signal.SIGTERM
EXIT_INTERRUPTED = 128 + signal.SIGINT


def main() -> None:
    """Run a command of Airbyte's, Spark's (`executor`) or an operator's (`cli.tree`), and exit with its code."""
    argv = sys.argv[1:]
    if argv == ["spec"]:
        return _print_specification()
    try:
        code = _run(argv)
    except KeyboardInterrupt:  # interrupted before the command installed its own handler
        code = EXIT_INTERRUPTED
    # The exit code reports on the command alone, which has flushed its output. A normal interpreter shutdown can abort the process
    # ("terminate called without an active exception") when an Arrow thread releases its buffers too late.
    os._exit(code)


def _run(argv: list[str]) -> int:
    """Dispatch the command and return its exit code. Each branch imports only the modules it needs."""
    if argv == ["executor"]:
        from destination_s3_spark.engine import executor  # noqa: PLC0415

        return executor.run()
    if argv[:1] not in (["check"], ["write"]) or not set(HELP).isdisjoint(argv):
        from destination_s3_spark import cli  # noqa: PLC0415

        return cli.operator_command(argv)
    if os.getpid() == 1:
        # A signal without a handler does not reach PID 1 of a container. A sync installs its own handler.
        signal.signal(signal.SIGTERM, lambda *_: os._exit(EXIT_TERMINATED))
    from destination_s3_spark import process  # noqa: PLC0415

    return (process.write if argv[0] == "write" else process.check)(argv[1:])


def _print_specification() -> None:
    """Print the SPEC message. Importing anything more would take longer than that."""
    from destination_s3_spark.protocol.writer import ProtocolWriter  # noqa: PLC0415

    with os.fdopen(1, "wb", closefd=False) as stdout:
        ProtocolWriter(stdout).spec(json.loads(Path(__file__).with_name("spec.json").read_bytes()))


if __name__ == "__main__":
    main()
