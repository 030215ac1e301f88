"""Operator commands for the terminal: `demo`, `inspect`, `changes`, `repair`, `rebuild`. Airbyte never calls them."""

from __future__ import annotations

import argparse
import codecs
import io
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from destination_s3_spark.errors import ConfigError, SyncError

_PACKAGE = "destination-s3-spark"
_COMMANDS = {
    "demo": (
        "see the connector work, without an account or a bucket",
        (
            "Starts an S3 server on this machine, syncs a made-up shop's data into it with this connector, and shows the tables, the "
            "values that did not fit their type, and the chain of blocks. Takes less than a minute and leaves nothing behind. Needs moto: "
            "pip install 'moto[server]'."
        ),
    ),
    "inspect": (
        "show what is in the tables of a configuration",
        (
            "Reads the chains under the configured bucket path, which are the truth about the tables, and changes nothing. Without "
            "--stream: one line per table. With it: the table's state, its columns and its blocks."
        ),
    ),
    "changes": (
        "print the change log of a table as JSON lines",
        (
            "Reads the change log of a deduplicated table, in whatever format it is written, and prints one JSON object for each event or "
            "row, in log order. Reads only the log's own objects and changes nothing."
        ),
    ),
    "repair": (
        "clean up what a dead sync left behind, without a sync",
        (
            "Finishes or takes back the last commit of a sync that died, drops its open uploads and scratch objects, and rewrites the "
            "manifests. A table that needs nothing is not touched. A running sync of the table is stopped; run it again to continue."
        ),
    ),
    "rebuild": (
        "rebuild a final table from its raw table",
        (
            "Types every raw row of a stream's table again, deduplicates the rows if the table is deduplicated, and replaces the final "
            "table in one step. Then reports how many rows are as before. Needs a raw table that has every row."
        ),
    ),
}
"""Help of each command: a line, and a full description."""

OPERATOR_COMMANDS = tuple(_COMMANDS)
"""Names of the commands in this module; all other first arguments belong to Airbyte."""

DEMO_RECORDS = 50_000

_PLAIN = {"═": "=", "─": "-", "…": "~"}
"""Replacements for characters in reports that the terminal's character set lacks."""


def operator_command(argv: Sequence[str]) -> int:
    """Run an operator command and return its exit code: 0 for success, 1 for a failure, with a message on stderr, 130 if interrupted."""
    arguments = _parser().parse_args(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        codecs.register_error("plain", _plain)
        sys.stdout.reconfigure(errors="plain")
    try:
        code = _run(arguments)
    except SyncError as error:
        sys.stderr.write(f"{error.message}\n")
        code = 1
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        code = 130
    with suppress(BrokenPipeError):  # the reader closed the pipe early (`| head`)
        sys.stdout.flush()
    return code


def version() -> int:
    """Print the version, and by what records are typed: a question about speed begins with that."""
    from destination_s3_spark.kernel import HOW_LINES_ARE_TYPED  # noqa: PLC0415

    sys.stdout.write(f"{_PACKAGE} {metadata.version(_PACKAGE)}; records are typed {HOW_LINES_ARE_TYPED}\n")
    sys.stdout.flush()
    return 0


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Replace each character that cannot be encoded by exactly one other, so that columns stay aligned."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_PLAIN.get(character, "?") for character in error.object[error.start : error.end]), error.end


def _run(arguments: argparse.Namespace) -> int:
    """Run the chosen command, importing only what it needs."""
    if arguments.command == "demo":
        from destination_s3_spark.demo import tour  # noqa: PLC0415

        return tour.run(arguments.records, arguments.seed, tour.After.KEEP if arguments.keep else tour.After.STOP)
    if arguments.command == "repair":
        from destination_s3_spark.cli import repair_command  # noqa: PLC0415

        return repair_command.run(arguments.config, arguments.stream, arguments.namespace)
    if arguments.command == "rebuild":
        from destination_s3_spark.cli import rebuild_command  # noqa: PLC0415

        if arguments.stream is None:
            raise ConfigError("rebuild works on one table: say which with --stream.")
        return rebuild_command.run(arguments.config, arguments.stream, arguments.namespace)
    return _changes(arguments) if arguments.command == "changes" else _inspect(arguments)


def _inspect(arguments: argparse.Namespace) -> int:
    from destination_s3_spark.cli import inspect_command  # noqa: PLC0415

    if arguments.export_schema is None:
        return inspect_command.run(arguments.config, arguments.stream, arguments.namespace)
    if arguments.stream is None:
        raise ConfigError("--export-schema writes the schema of one table: say which with --stream.")
    form = inspect_command.SchemaForm(arguments.form)
    return inspect_command.export_schema(arguments.config, arguments.stream, arguments.namespace, Path(arguments.export_schema), form)


def _changes(arguments: argparse.Namespace) -> int:
    from destination_s3_spark.change_log.reading import Interval  # noqa: PLC0415
    from destination_s3_spark.cli import changes_command  # noqa: PLC0415

    if arguments.stream is None:
        raise ConfigError("changes prints the log of one table: say which with --stream.")
    wanted = changes_command.Wanted(
        key={} if arguments.key is None else changes_command.key_filter(arguments.key),
        interval=Interval(arguments.first, arguments.last),
        since=changes_command.Since.LAST_SNAPSHOT if arguments.latest_snapshot else changes_command.Since.BEGINNING,
    )
    return changes_command.run(arguments.config, arguments.stream, arguments.namespace, wanted)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_PACKAGE,
        description="Commands for operators. The Airbyte commands spec, check and write are described by `destination-s3-spark --help`.",
    )
    parsers = parser.add_subparsers(dest="command", required=True)
    commands = {name: parsers.add_parser(name, help=line, description=text) for name, (line, text) in _COMMANDS.items()}
    _add_demo_options(commands["demo"])
    _add_inspect_options(commands["inspect"])
    _add_changes_options(commands["changes"])
    _add_tables(commands["repair"], "repair this stream's table only")
    _add_tables(commands["rebuild"], "the stream whose table is rebuilt")
    return parser


def _add_demo_options(demo: argparse.ArgumentParser) -> None:
    demo.add_argument("--records", type=_positive, default=DEMO_RECORDS, help="how many records to send (default: %(default)s)")
    demo.add_argument("--seed", type=int, default=7, help="another number makes another shop (default: %(default)s)")
    demo.add_argument("--keep", action="store_true", help="leave the S3 server running and say how to read the tables")


def _add_inspect_options(inspect: argparse.ArgumentParser) -> None:
    _add_tables(inspect, "show this stream's table in detail")
    inspect.add_argument("--export-schema", metavar="FILE", help="instead, write the table's Arrow schema to this file; needs --stream")
    inspect.add_argument(
        "--form",
        choices=("ipc", "odf"),
        default="ipc",
        help="form of the file: an Arrow IPC message or Open Data Fabric's bare flatbuffer",
    )


def _add_changes_options(changes: argparse.ArgumentParser) -> None:
    _add_tables(changes, "the stream whose change log is printed")
    changes.add_argument("--key", metavar="JSON", help="only records of rows with this key, such as '{\"id\": 42}'")
    changes.add_argument("--from", dest="first", type=_positive, metavar="N", help="only records from this sequence number on")
    changes.add_argument("--to", dest="last", type=_positive, metavar="N", help="only records up to this sequence number")
    changes.add_argument("--latest-snapshot", action="store_true", help="start at the last snapshot, which is enough to build the table")


def _add_tables(command: argparse.ArgumentParser, stream: str) -> None:
    """Add the options that choose the tables of a command."""
    command.add_argument("--config", required=True, metavar="FILE", help="the connector's configuration, as for `write`")
    command.add_argument("--stream", metavar="NAME", help=stream)
    command.add_argument("--namespace", metavar="NS", help="the stream's namespace, where the name alone is not enough")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return number
