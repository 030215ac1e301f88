"""The package's layering and size rules: imports go down only, a few libraries and stdout have one owner each, and files stay small."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = "destination_s3_spark"
TESTS = Path(__file__).parents[1]
ROOT = Path(__file__).parents[1] / PACKAGE

LAYERS = [
    {"__main__", "cli", "destination", "process"},
    {"sync"},
    {"tables", "tables.dataset", "tables.retention", "tables.updates", "tables.verification"},
    {"tables.updates.appended", "tables.updates.compacted", "tables.updates.merged"},
    {"tables.history.group", "tables.updates.waiting"},
    {"tables.compaction", "tables.merge"},
    {"tables.capture", "tables.history"},
    {"tables.configured", "tables.factory", "tables.found", "tables.updates.inputs"},
    {"tables.open_table", "tables.stream_table", "tables.updates.steps"},
    {"tables.columns"},
    {"tables.commit"},
    {"tables.publishers"},
    {"tables.landing"},
    {"tables.columns.row_plan", "tables.columns.validity", "tables.rules", "tables.stored.row_digests"},
    {"tables.runs"},
    {"tables.stored"},
    {"tables.staged"},
    {"tables.updates.resources"},
    {"change_log", "delta_log"},
    {"chain"},
    {"formats"},
    {"decoding"},
    {"schema"},
    {"engine"},
    {"storage"},
    {"protocol"},
    {"config"},
    {"errors"},
    {"exact_json", "kernel", "stream_id", "wording"},
]
"""From the top down. A module belongs to the layer of the longest name that it begins with."""

ONLY_IN = {"boto3": {"storage"}, "botocore": {"storage"}, "pyspark": {"engine"}}
STDOUT_OWNERS = {"protocol.writer", "cli"}
"""The protocol goes out in one place. The operator commands talk to a person instead, never during a sync."""

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 50


def module_name(path: Path) -> str:
    """`chain/log.py` is `chain.log`, `chain/__init__.py` is `chain`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def layer(module: str) -> int:
    """The position of the module's layer in LAYERS, counted from the top. The package itself hands out the connector class."""
    name = module or "destination"
    while name:
        found = [index for index, names in enumerate(LAYERS) if name in names]
        if found:
            return found[0]
        name = name.rpartition(".")[0]
    raise AssertionError(f"{PACKAGE}.{module} is in no layer: put it into LAYERS of {Path(__file__).name}")


def imported_modules(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, absolute name) of everything imported, also inside functions; `from x import y` gives both x and x.y."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative imports hide the layer; write the full name"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def own_imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    prefix = f"{PACKAGE}."
    return ((line, name.removeprefix(prefix)) for line, name in imported_modules(tree) if name.startswith(prefix))


@dataclass(frozen=True)
class Source:
    """A file of the package."""

    module: str
    text: str
    tree: ast.Module

    @property
    def room(self) -> str:
        return self.module.partition(".")[0]


@pytest.fixture(scope="module")
def sources() -> list[Source]:
    texts = {module_name(path): path.read_text() for path in sorted(ROOT.rglob("*.py"))}
    return [Source(module, text, ast.parse(text)) for module, text in texts.items()]


def test_imports_go_down_only(sources: list[Source]) -> None:
    upward = [
        f"{source.module}.py:{line} imports {name}, which lies above it"
        for source in sources
        for line, name in own_imports(source.tree)
        if layer(name) < layer(source.module)
    ]
    assert not upward, "\n".join(upward)


def test_libraries_with_one_owner_are_imported_there_only(sources: list[Source]) -> None:
    strays = [
        f"{source.module}.py:{line} imports {name}, which only {' and '.join(sorted(ONLY_IN[library]))} may"
        for source in sources
        for line, name in imported_modules(source.tree)
        if (library := name.partition(".")[0]) in ONLY_IN and source.room not in ONLY_IN[library]
    ]
    assert not strays, "\n".join(strays)


def test_stdout_has_one_owner(sources: list[Source]) -> None:
    touches = [
        f"{source.module}.py:{node.lineno} touches stdout; only {', '.join(sorted(STDOUT_OWNERS))} may"
        for source in sources
        if source.module not in STDOUT_OWNERS and source.room not in STDOUT_OWNERS
        for node in ast.walk(source.tree)
        if (isinstance(node, ast.Attribute) and node.attr in ("stdout", "__stdout__") and ast.unparse(node.value) == "sys")
        or (isinstance(node, ast.Call) and ast.unparse(node.func) == "print")
    ]
    assert not touches, "\n".join(touches)


def test_no_test_module_is_imported_by_another() -> None:
    found = [
        f"{path.relative_to(TESTS)}:{line} imports {name}; move what both need into a module without tests"
        for folder in ("unit_tests", "integration_tests")
        for path in sorted((TESTS / folder).rglob("*.py"))
        for line, name in imported_modules(ast.parse(path.read_text()))
        if name.split(".")[0] == folder and any(part.startswith("test_") for part in name.split(".")[1:])
    ]
    assert not found, "\n".join(found)


def test_files_and_functions_stay_small(sources: list[Source]) -> None:
    lengths = {source.module: len(source.text.splitlines()) for source in sources}
    large = [f"{module}.py has {lines} lines, the limit is {MAX_FILE_LINES}: split it by its nouns" for module, lines in lengths.items()
             if lines > MAX_FILE_LINES]  # fmt: skip
    large += [
        f"{source.module}.py:{node.lineno} {node.name} has {node.end_lineno - node.lineno + 1} lines, the limit is {MAX_FUNCTION_LINES}"
        for source in sources
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > MAX_FUNCTION_LINES
    ]
    assert not large, "\n".join(large)


def test_the_rules_see_a_violation() -> None:
    tree = ast.parse("import boto3.session\ndef f():\n    from destination_s3_spark.sync import spool\n")

    assert list(imported_modules(tree)) == [(1, "boto3.session"), (3, "destination_s3_spark.sync.spool")]
    assert list(own_imports(tree)) == [(3, "sync.spool")]
    assert layer("sync.spool") < layer("chain.log") < layer("errors")
