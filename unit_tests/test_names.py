"""The package's names: a class has a name of its own, and a constant's name has one value."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1] / "destination_s3_spark"
EMPTY_NAMES = {"cells", "common", "due", "helpers", "misc", "rows", "update", "utils"}
"""Names of modules that say nothing."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    yield from ((str(path.relative_to(ROOT)), ast.parse(path.read_text())) for path in sorted(ROOT.rglob("*.py")))


def constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(name, value as text) of a module's public constants. A name with an underscore is the module's own."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        for target in targets:
            if isinstance(target, ast.Name) and target.id.isupper() and not target.id.startswith("_") and value is not None:
                yield target.id, ast.unparse(value)


def test_no_two_classes_have_one_name() -> None:
    places = defaultdict(list)
    for module, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(module)

    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_constant_has_two_values() -> None:
    values: dict[str, dict[str, str]] = defaultdict(dict)
    for module, tree in modules():
        for name, value in constants(tree):
            values[name][module] = value

    assert {name: found for name, found in values.items() if len(set(found.values())) > 1} == {}


def test_module_names_say_something() -> None:
    assert [module for module, _ in modules() if Path(module).stem in EMPTY_NAMES] == []


def test_the_rules_see_a_violation() -> None:
    assert list(constants(ast.parse("A = 1\nB: int = 2 * 3\n_C = 4\nd = 5\nE: int\n"))) == [("A", "1"), ("B", "2 * 3")]
