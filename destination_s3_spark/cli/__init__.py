"""The operator commands, for a person at a terminal: `demo` and `inspect`. Airbyte itself never calls them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from destination_s3_spark.errors import SyncError

OPERATOR_COMMANDS = ("demo", "inspect")
"""First arguments that belong to this module; all others are Airbyte's."""

DEMO_RECORDS = 50_000


def operator_command(argv: Sequence[str]) -> int:
    """Run an operator command and return the exit code: 0 done, 1 failed, with one sentence on stderr that says what to do."""
    arguments = _parser().parse_args(argv)
    try:
        if arguments.command == "demo":
            from destination_s3_spark.demo import tour  # noqa: PLC0415 (each command imports only what it needs)

            return tour.run(arguments.records, arguments.seed, tour.After.KEEP if arguments.keep else tour.After.STOP)
        from destination_s3_spark.cli import inspect_command  # noqa: PLC0415

        return inspect_command.run(arguments.config, arguments.stream, arguments.namespace)
    except SyncError as error:
        sys.stderr.write(f"{error.message}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="destination-s3-spark",
        description="Commands for operators. The Airbyte commands spec, check and write are described by `destination-s3-spark --help`.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser(
        "demo",
        help="see the connector work, without an account or a bucket",
        description=(
            "Starts an S3 server on this machine, syncs a made-up shop's data into it with this connector, and shows the tables, the "
            "values that did not fit their type, and the chain of blocks. Takes less than a minute and leaves nothing behind. Needs moto: "
            "pip install 'moto[server]'."
        ),
    )
    demo.add_argument("--records", type=_positive, default=DEMO_RECORDS, help="how many records to send (default: %(default)s)")
    demo.add_argument("--seed", type=int, default=7, help="another number makes another shop (default: %(default)s)")
    demo.add_argument("--keep", action="store_true", help="leave the S3 server running and say how to read the tables")
    inspect = commands.add_parser(
        "inspect",
        help="show what is in the tables of a configuration",
        description=(
            "Reads the chains under the configured bucket path, which are the truth about the tables, and changes nothing. Without "
            "--stream: one line per table. With it: the table's state, its columns and its blocks."
        ),
    )
    inspect.add_argument("--config", required=True, metavar="FILE", help="the connector's configuration, as for `write`")
    inspect.add_argument("--stream", metavar="NAME", help="show this stream's table in detail")
    inspect.add_argument("--namespace", metavar="NS", help="the stream's namespace, where the name alone is not enough")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return number
