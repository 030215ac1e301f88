"""Tree of all commands with their options and help."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import click
from click.shell_completion import get_completion_class, shell_complete

PACKAGE = "destination-s3-spark"
COMPLETION_VARIABLE = "_DESTINATION_S3_SPARK_COMPLETE"
"""Environment variable through which a shell asks for completions."""
SHELLS = ("bash", "zsh", "fish")
VIEWS = ("files", "schema", "syncs", "values", "commits")
ENGINES = ("athena", "trino", "spark", "duckdb", "clickhouse", "redshift", "databricks", "snowflake")

Option = Callable[[Callable[..., None]], Callable[..., None]]


class _Tree(click.Group):
    """The group of all commands. Its help lists Airbyte's commands apart from the operators'."""

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 (click's signature)
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the commands in two sections, in the order of their definition."""
        sections: dict[str, list[tuple[str, str]]] = {"Commands for Airbyte": [], "Commands for operators": []}
        limit = formatter.width - 6 - max(map(len, self.commands))
        for name, command in self.commands.items():
            title = "Commands for Airbyte" if command.callback is None else "Commands for operators"
            sections[title].append((name, command.get_short_help_str(limit)))
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        """List the commands in the order of their definition."""
        return list(self.commands)


def run(argv: Sequence[str]) -> int:
    """Run the command line and return its exit code. A wrong usage is reported on stderr."""
    asked = os.environ.get(COMPLETION_VARIABLE)
    if asked:
        return shell_complete(tree, {}, PACKAGE, COMPLETION_VARIABLE, asked)
    try:
        with tree.make_context(PACKAGE, list(argv)) as context:
            code: int = tree.invoke(context)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return code


def _print_version(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    """Print the version, and by what records are typed: a question about speed begins with that."""
    if wanted:
        from destination_s3_spark.kernel import HOW_LINES_ARE_TYPED  # noqa: PLC0415

        click.echo(f"{PACKAGE} {metadata.version(PACKAGE)}; records are typed {HOW_LINES_ARE_TYPED}")
        context.exit()


@click.group(cls=_Tree, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show the version and exit.")
def tree() -> None:
    """Airbyte destination for typed tables on plain S3, and commands to look after the tables."""


def _runs(place: str) -> Callable[[Callable[..., None]], click.Command]:
    """Make a command of a function that has its name and help. `place`: the module of this package and in it the function that runs.

    That one gets the options by their names, and returns the exit code. Its module is imported then, because most take seconds.
    """
    module, _, function = place.rpartition(".")

    def run(**options: Any) -> int:
        code: int = getattr(import_module(f"{__package__}.{module}"), function)(**options)
        return code

    def add(described: Callable[..., None]) -> click.Command:
        command = tree.command()(described)
        command.callback = run
        return command

    return add


_FILE = click.Path(path_type=Path)
_CONFIG_HELP = "The connector's configuration."
_config_option: Option = click.option("--config", "config_path", required=True, metavar="FILE", type=click.Path(), help=_CONFIG_HELP)


def _table_options(text: str, *, pattern: bool = True, needed: str | None = None) -> Option:
    """Return the options that choose the tables of a command. `needed`: what is said where it cannot do without a stream."""
    text += " It may be a pattern with * and ?." if pattern else ""

    def given(_context: click.Context, _parameter: click.Parameter, name: str | None) -> str | None:
        if name is None and needed is not None:
            raise click.UsageError(needed)
        return name

    def add(command: Callable[..., None]) -> Callable[..., None]:
        about = "The stream's namespace, where the name alone is not enough. '' is for a stream without one."
        command = click.option("--namespace", metavar="NS", help=about)(command)
        command = click.option("--stream", "name", metavar="NAME", callback=given, help=text)(command)
        return _config_option(command)

    return add


def _blocks_option(text: str) -> Option:
    blocks = click.IntRange(min=1)
    return click.option("--blocks", "most_blocks", type=blocks, default=1_000, show_default=True, metavar="N", help=text)


_CONFIG = click.Option(["--config"], required=True, metavar="FILE", type=click.Path(), help=_CONFIG_HELP)
_CATALOG = click.Option(["--catalog"], required=True, metavar="FILE", type=click.Path(), help="The configured catalog.")
_FORGET = click.Option(["--forget"], is_flag=True, help="Also try the permissions that forget needs.")
# `__main__` runs Airbyte's commands itself: here are only their help and their completion.
tree.add_command(click.Command("spec", help="Print the specification of the configuration."))
tree.add_command(click.Command("check", params=[_CONFIG, _FORGET], help="Check that a sync can use the bucket and the Spark cluster."))
tree.add_command(click.Command("write", params=[_CONFIG, _CATALOG], help="Sync the messages on standard input into the tables."))


@_runs("inspect_command.run")
@click.argument("table", required=False)
@click.argument("view", required=False, type=click.Choice(VIEWS))
@_table_options("Another way to name TABLE, for names with a dot.", pattern=False)
@click.option("--output", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True, help="Form of the output.")
@click.option("--wide", is_flag=True, help="Let lines be longer than the terminal is wide.")
@_blocks_option("Read the newest N blocks for the history.")
@click.option("--ddl", "engine", type=click.Choice(ENGINES), help="Print the statement that defines the table in this engine.")
@click.option("--export-schema", "schema_file", metavar="FILE", type=_FILE, help="Write the table's Arrow schema to this file.")
@click.option(
    "--form",
    type=click.Choice(["ipc", "odf"]),
    default="ipc",
    show_default=True,
    help="Form of that file: an Arrow IPC message, or Open Data Fabric's bare flatbuffer.",
)
def inspect() -> None:
    """Show what is in the tables of a configuration.

    Reads the chains under the configured bucket path, which are the truth about the tables, and changes nothing. Without TABLE: one line
    per table. With it: the table's state, its files by kind, its columns and its last syncs. TABLE is the stream's name, with or without
    its namespace: orders or shop.orders.

    \b
    VIEW shows more of one table:
      files    each file with its rows, size, key range and commit
      schema   columns with their whole types, and every schema so far
      syncs    when each ran, what it brought, how it ended
      values   the fields with values that were nulled or cut, and why
      commits  the blocks of the table's chain
    """


@_runs("report.page.run")
@_config_option
@click.option("--out", metavar="FILE", type=_FILE, default="report.html", show_default=True, help="Write the page to this file.")
@_blocks_option("Read the newest N blocks of each table.")
def report() -> None:
    """Write a page with charts about all tables.

    One HTML file, which needs no network: growth, files by size, duration and speed of syncs, values that did not fit their type, schemas,
    how the last syncs ended, and what needs a look. The numbers are those of inspect. Reads the chains and changes nothing.
    """


@_runs("diagnosis.run")
@_config_option
@click.option(
    "--catalog",
    "catalog_path",
    metavar="FILE",
    type=click.Path(),
    help="A configured catalog: show where each stream's table is or will be.",
)
@click.option("--output", type=click.Choice(["table", "json"]), default="table", show_default=True, help="Form of the output.")
def doctor() -> None:
    """Say what is right and wrong about a configuration.

    Tries everything that a sync needs, each by itself: the options, the endpoint, the clock, every permission, conditional writes, Java and
    Spark, the spool directory and the memory. What it writes into the bucket is removed. The exit code is 1 if a sync cannot work.
    """


@_runs("registry_command.print_catalog")
@click.argument("discovered", default="-", type=click.Path())
@click.option("--select", multiple=True, metavar="NAME", help="Only this stream: a name, with or without its namespace, or a pattern (*).")
@click.option("--sync-mode", type=click.Choice(["full_refresh", "incremental"]), help="Instead of the best that the source offers.")
@click.option(
    "--destination-sync-mode",
    type=click.Choice(["append", "append_dedup", "overwrite"]),
    help="Instead of append_dedup for incremental streams with a key, append for those without, and overwrite for the others.",
)
def catalog() -> None:
    """Make a configured catalog from what a source discovers.

    Reads the output of the source's discover from the file DISCOVERED or from standard input, and prints the catalog that both the source's
    read and this connector's write take. Keys and cursors are the source's.

    \b
    some-source discover --config source.json | destination-s3-spark catalog > catalog.json
    """


@_runs("registry_command.run")
@click.option("--base", metavar="FILE", type=click.Path(), help="A registry, or - for standard input: print a copy that has the entry.")
@click.option("--image", metavar="NAME:TAG", help="The connector's image, where it has another name or tag than in this release.")
def registry() -> None:
    """Make an entry for a connector registry of one's own.

    Prints the connector's entry, or with --base a copy of Airbyte's oss_registry.json that has it, for CONNECTOR_REGISTRY_BASE_URL. A
    connector of the registry gets generations, stream statuses, refreshes and its memory limits from Airbyte, a custom one does not.

    \b
    destination-s3-spark registry --base oss_registry.json > with_s3_spark.json
    """


@_runs("changes_command.run")
@_table_options(
    "The stream whose change log is printed.", pattern=False, needed="changes prints the log of one table: say which with --stream."
)
@click.option("--key", metavar="JSON", help="Only records of rows with this key, such as '{\"id\": 42}'.")
@click.option("--from", "first", type=click.IntRange(min=1), metavar="N", help="Only records from this sequence number on.")
@click.option("--to", "last", type=click.IntRange(min=1), metavar="N", help="Only records up to this sequence number.")
@click.option("--latest-snapshot", is_flag=True, help="Start at the last snapshot, which is enough to build the table.")
def changes() -> None:
    """Print the change log of a table as JSON lines.

    Reads the change log of a deduplicated table, in whatever format it is written, and prints one JSON object for each event or row, in log
    order. Reads only the log's own objects and changes nothing.
    """


@_runs("repair_command.repair_tables")
@_table_options("Repair the tables of this stream only.")
def repair() -> None:
    """Clean up what a dead sync left behind, without a sync.

    Finishes or takes back the last commit of a sync that died, drops its open uploads and scratch objects, and publishes the tables again.
    A table that needs nothing is not touched. A running sync of the table is stopped; start it again to continue.
    """


@_runs("maintenance.accept")
@_table_options("Only the rows held back for this stream.")
def accept() -> None:
    """Publish rows that a sync held back.

    A sync that cannot tell whether its source finished holds a full refresh back if it has far fewer rows than the table
    (tables.unproven_replacement). The rows wait beside the table until this command lets them replace it, discard drops them, or the
    stream's next sync begins anew.
    """


@_runs("maintenance.discard")
@_table_options("Only the rows held back for this stream.")
def discard() -> None:
    """Drop rows that a sync held back, see accept. The tables keep their rows."""


@_runs("repair_command.verify_tables")
@_table_options("Verify the tables of this stream only.")
def verify() -> None:
    """Check whole tables, and change nothing.

    Reads every block of a table's chain and checks its hash, then every file: that it is there with its size, that its footer counts the
    rows that the chain says, that keys are sorted and no two files share a key or a row. Takes about a minute for 30,000 blocks and files.
    Of histories and their tables it also reads keys and times: each row has one valid version, and no versions of a key overlap.
    """


@_runs("maintenance.rebuild")
@_table_options("The stream whose table is rebuilt.", pattern=False, needed="rebuild works on one table: say which with --stream.")
def rebuild() -> None:
    """Rebuild a final table from its raw table.

    Types every raw row of a stream's table again, deduplicates the rows if the table is deduplicated, and replaces the final table in one
    step. Then reports how many rows are as before. Needs a raw table that has every row.
    """


@_runs("maintenance.merge")
@_table_options("Merge the tables of this stream only.")
@click.option("--take-over", is_flag=True, help="Also merge tables that a sync has not closed. A sync that is running is stopped.")
def merge() -> None:
    """Merge the new rows of deduplicated tables that wait.

    Merges what syncs have left to wait (tables.merge, tables.merge_limit_minutes), whether it is due or not, and takes the time it needs.
    Syncs go first: a table that a sync may be writing to is left alone, and a sync that begins meanwhile takes its tables over. The exit
    code is then 1, nothing is lost, and the other tables are merged.
    """


@_runs("forget_command.run")
@_table_options("The stream whose rows are forgotten.", needed="forget needs the stream: say which with --stream.")
@click.option("--where", "texts", multiple=True, metavar="JSON", help="Rows with these values, such as '{\"id\": 42}'. May be given often.")
@click.option("--keys", metavar="FILE", type=click.Path(), help="A file of such JSON objects, one per line, or - for standard input.")
@click.option("--cascade", metavar="FILE", type=click.Path(), help="A JSON file that says which rows of other streams go with them.")
@click.option("--forever", is_flag=True, help="Also leave out later records with these keys, by salted digests in the table's chain.")
@click.option("--dry-run", is_flag=True, help="Only count the rows. Writes nothing.")
@click.option("--record", metavar="FILE", type=click.Path(), help="Write what was done to this file, a JSON object per table.")
def forget() -> None:
    """Remove rows from all that a table has in the bucket.

    Looks for rows with the values in the final and the raw table, in rows that wait for a merge and among deleted keys; in a deduplicated
    table all versions of these rows go. Their files are exchanged for others without them in one step, and the old ones deleted with all
    old versions of the table's objects. A table from which not all can be removed is left as it is, with the reason.

    \b
    --cascade also forgets what hangs on those rows, through several streams if need be:
      [{"stream": "orders", "column": "user_id", "references": {"stream": "users", "column": "id"}}]
    """


@_runs("maintenance.optimize")
@_table_options("Join the files of this stream only.")
def optimize() -> None:
    """Join the small files of tables.

    Joins neighbouring files below half of the target size, as a sync does at its end for tables that have a publisher. No row changes.
    While one file replaces others, a reader that lists the folder may see their rows twice. A running sync of the table is stopped.
    """


@tree.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> int:
    """Print the completion script of a shell.

    \b
    bash: eval "$(destination-s3-spark completion bash)"
    zsh:  eval "$(destination-s3-spark completion zsh)"
    fish: destination-s3-spark completion fish | source
    """
    script = get_completion_class(shell)
    if script is not None:
        click.echo(script(tree, {}, PACKAGE, COMPLETION_VARIABLE).source())
    return 0
