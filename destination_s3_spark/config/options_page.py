"""Generator of `docs/options.md` from the configuration models: `python -m destination_s3_spark.config.options_page` (`make spec`)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from destination_s3_spark.config.settings_model import Applies
from destination_s3_spark.config.specification import documented_schema

PAGE_FILE = Path(__file__).parents[2] / "docs" / "options.md"
MOST_CHOICES = 10
"""Most values of an option that its row lists."""
INTRODUCTION = f"""# Options

For whoever writes a configuration: every option by its place in the JSON, in the order of Airbyte's form. `make spec` writes this page
from the models in `destination_s3_spark/config/`; edit those.

Options without a prefix, and those of each format, are destination-s3's, with its names, values and defaults. All others are optional.
Blank text means that an option is not set. A misspelt option that only this connector has is refused; any other unknown option is a warning
that names the nearest known one. Text is shown without its quotes.

*Applies* says what a changed option does to a table that exists: **{Applies.AT_ONCE}** is from the next sync on, **{Applies.NEW_FILES}**
leaves the table's present files as they are, and **{Applies.NEW_TABLES}** leaves the table as it is until a refresh replaces its rows.
"""
HEADER = ["", "| option | type | default | effect | example | applies |", "|---|---|---|---|---|---|"]


def options_page() -> str:
    """Return the page: a table of the options at the top, then one for each part and each variant of it."""
    schema = documented_schema()
    parts = {name: part for name, part in schema["properties"].items() if "oneOf" in part or "properties" in part}
    top = {**schema, "properties": {name: part for name, part in schema["properties"].items() if name not in parts}}
    lines = [INTRODUCTION, "## Connection", *HEADER, *_rows(top, "", Applies.AT_ONCE)]
    for name, part in parts.items():
        lines += ["", f"## {part['title']}: `{name}`", "", *_section(part, name)]
    return "\n".join(lines) + "\n"


def _section(part: Mapping[str, Any], name: str) -> Iterator[str]:
    """Yield the part's description and its rows; of a part with variants the rows of each, once for those that have the same."""
    yield _effect(part)
    applies = part.get("applies", Applies.AT_ONCE)
    of: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for variant in part.get("oneOf", [part]):
        of.setdefault(tuple(_rows(variant, f"{name}.", applies)), []).append(variant)
    for rows, variants in of.items():
        if variants != [part]:
            chosen = " and ".join(_code(_choice(variant)[1]) for variant in variants)
            yield from (
                "",
                f"### `{name}.{_choice(variants[0])[0]}`: {chosen}",
                "",
                " ".join(variant["description"] for variant in variants),
            )
        yield from (*HEADER, *rows)


def _rows(schema: Mapping[str, Any], prefix: str, applies: str, variant: str = "") -> Iterator[str]:
    """Yield a row for each option of the schema, and for those inside it. `applies` is that of its part; `variant` begins each effect."""
    for name, option in schema["properties"].items():
        if "const" in option:
            continue
        path, own = f"{prefix}{name}", option.get("applies", applies)
        default = _code(option["default"]) if option.get("default") not in (None, {}) else "required" if _is_required(schema, name) else "–"
        linked = f"[`{path}`]({option['page']})" if "page" in option else f"`{path}`"
        yield f"| {linked} | {_type(option)} | {default} | {variant}{_effect(option)} | {_code(_example(option))} | {own} |"
        inner = option.get("items", option)
        if "properties" in inner:
            yield from _rows(inner, f"{path}[]." if inner is not option else f"{path}.", own)
        of: dict[str, list[str]] = {}  # variants by the row that they have in common
        for chosen in option.get("oneOf", ()):
            for row in _rows(chosen, f"{path}.", own, "{of}"):
                of.setdefault(row, []).append(_code(_choice(chosen)[1]))
        yield from (row.replace("{of}", f"Of {', '.join(variants)}. ") for row, variants in of.items())


def _choice(variant: Mapping[str, Any]) -> tuple[str, str]:
    """Return the option with the fixed value that chooses the variant, and that value."""
    return next((name, option["const"]) for name, option in variant["properties"].items() if "const" in option)


def _is_required(schema: Mapping[str, Any], name: str) -> bool:
    return name in schema.get("required", ())


def _type(option: Mapping[str, Any]) -> str:
    if "oneOf" in option:
        choices = [_choice(variant) for variant in option["oneOf"]]
        return f"object with `{choices[0][0]}`: {', '.join(_code(value) for _, value in choices)}"
    values = option.get("enum", ())
    if 0 < len(values) <= MOST_CHOICES:
        return ", ".join(map(_code, values))
    if values:
        return f"one of {len(values)} names, or blank"
    name = {"string": "text", "array": "list"}.get(option["type"], option["type"])
    least = option.get("minimum", option.get("exclusiveMinimum"))
    bounds = ("above " if "exclusiveMinimum" in option else "from ") + str(least) if least is not None else ""
    if "maximum" in option:
        bounds += f" to {option['maximum']}"
    return f"{name}{f', {bounds}' if bounds else ''}{', secret' if option.get('airbyte_secret') else ''}"


def _example(option: Mapping[str, Any]) -> Any:
    """Return the option's first example, else a value that is not its default, else one that is made of its own options."""
    if "examples" in option:
        return option["examples"][0]
    if option["type"] == "boolean":
        return not option["default"]
    if "const" in option:
        return option["const"]
    if "enum" in option:
        return next(value for value in option["enum"] if value != option.get("default"))
    if "items" in option:
        return [_example(option["items"])]
    fields = option.get("oneOf", [option])[-1]
    if "properties" not in fields:
        raise ValueError(f"{option['title']!r} needs an example: give `examples` to its field.")
    return {name: _example(field) for name, field in fields["properties"].items() if _is_required(fields, name)}


def _effect(option: Mapping[str, Any]) -> str:
    """Return the description, safe in a table."""
    return str(option["description"]).replace("*", r"\*").replace("|", r"\|")


def _code(value: Any) -> str:
    return f"`{value if isinstance(value, str) and value and value.isprintable() else json.dumps(value, ensure_ascii=False)}`"


if __name__ == "__main__":
    PAGE_FILE.write_text(options_page(), encoding="utf-8")
