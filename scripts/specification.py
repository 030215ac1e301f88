"""Generator of `spec.json` and `docs/options.md` from the configuration models: `python -m scripts.specification`.

Airbyte's UI and the CDK require plain draft-07 without references, no `anyOf` (the CDK cannot mask a secret under one), and a fixed value
in every variant of a `oneOf`. pydantic's schema differs in all three.
"""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from destination_s3_spark.config import SPEC_FILE
from destination_s3_spark.config.config import ADVANCED, MOST_CHOICES, Config
from destination_s3_spark.config.settings_model import NO_VARIANT, Applies, Settings

DOCUMENTATION_URL = "https://docs.airbyte.com/integrations/destinations/s3-spark"

FOR_DOCUMENTATION = ("applies", "page")
"""What options say of themselves for `options_page`. The form shows the first in the description where it matters most."""
AT_REFRESHES = " Takes effect for new tables and at refreshes."
NOT_FOR_AIRBYTE = ("$defs", "$ref", "discriminator", "format", "writeOnly")


def specification() -> dict[str, Any]:
    """Return the whole ConnectorSpecification, as `spec` prints it."""
    return {
        "documentationUrl": DOCUMENTATION_URL,
        "supportsIncremental": True,
        "supportsNormalization": False,
        "supportsDBT": False,
        "supported_destination_sync_modes": ["overwrite", "append", "append_dedup"],
        "connectionSpecification": {
            "$schema": "http://json-schema.org/draft-07/schema#",
            **_for_the_form(documented_schema()),
            "groups": [{"id": ADVANCED, "title": "Advanced"}],
        },
    }


def documented_schema() -> dict[str, Any]:
    """Return the JSON schema of a configuration, with what options say of themselves for documentation."""
    schema = Config.model_json_schema()
    parts = {**schema["$defs"], Config.__name__: schema}
    for part, texts in _descriptions(Settings, {}):
        for option, text in texts.items():
            if part in parts:
                parts[part]["properties"][option] = dict(sorted({**parts[part]["properties"][option], "description": text}.items()))
    for order, (name, option) in enumerate(schema["properties"].items()):
        schema["properties"][name] = dict(sorted({**option, "order": order}.items()))
    plain = _plain(schema, schema["$defs"])
    del plain["description"]  # the form has a title, and Config's docstring is for developers
    return plain


def _descriptions(of: type[Settings], inherited: Mapping[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the name of each part that extends one, with the texts below its options. pydantic would read them at every start of a sync."""
    for part in of.__subclasses__():
        (of_class,) = ast.parse(inspect.getsource(part)).body
        texts = dict(inherited)
        for option, text in pairwise(getattr(of_class, "body", ())):
            match option, text:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(description))):
                    texts[name] = " ".join(description.split())
        yield part.__name__, texts
        yield from _descriptions(part, texts)


def _for_the_form(schema: Any) -> Any:
    """Take `FOR_DOCUMENTATION` out at every level. Options have these names nowhere."""
    if isinstance(schema, list):
        return [_for_the_form(value) for value in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {key: _for_the_form(value) for key, value in schema.items() if key not in FOR_DOCUMENTATION}
    if schema.get("applies") == Applies.NEW_TABLES:
        plain["description"] += AT_REFRESHES
    return plain


def _plain(schema: Mapping[str, Any], models: Mapping[str, Any]) -> dict[str, Any]:
    """Resolve references, optional-as-anyOf and pydantic's own keys in the schema, at every level."""
    resolved = _dereferenced(_without_null(_dereferenced(schema, models)), models)
    plain = {key: value for key, value in resolved.items() if key not in NOT_FOR_AIRBYTE}
    if "oneOf" in plain:
        plain["type"] = "object"
        plain["oneOf"] = [_plain(variant, models) for variant in plain["oneOf"]]
    if "items" in plain:
        plain["items"] = _plain(plain["items"], models)
    if "properties" in plain:
        plain["properties"] = {name: _plain(value, models) for name, value in plain["properties"].items()}
        fixed = [name for name, value in plain["properties"].items() if "const" in value]
        if fixed:
            plain["required"] = [*fixed, *plain.get("required", ())]
    if "const" in plain:
        plain["enum"] = [plain["const"]]
    return plain


def _dereferenced(schema: Mapping[str, Any], models: Mapping[str, Any]) -> dict[str, Any]:
    """Return the referenced model's schema, overridden by the keys next to the reference."""
    model = models[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else {}
    return {**model, **schema}


def _without_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an optional `X | None = None` as that of an X that is not required."""
    plain = {key: value for key, value in schema.items() if value is not None}
    for option in plain.pop("anyOf", ()):
        if option.get("type") != "null":
            plain.update(option)
        elif "discriminator" in schema["anyOf"][0]:
            plain["oneOf"] = [_nothing(schema["anyOf"][0]["discriminator"]["propertyName"]), *plain["oneOf"]]
    return plain


def _nothing(name: str) -> dict[str, Any]:
    """Return the variant of a part that is absent, which the option of this name chooses."""
    chooses = {"const": NO_VARIANT, "default": NO_VARIANT, "title": name.capitalize(), "type": "string"}
    return {"additionalProperties": False, "description": "Nothing.", "properties": {name: chooses}, "title": "None", "type": "object"}


PAGE_FILE = Path(__file__).parents[1] / "docs" / "options.md"
INTRODUCTION = f"""# Options

For whoever writes a configuration: every option by its place in the JSON, in the order of Airbyte's form. Below an option that is an object
(`.name`) or a list of objects (`[].name`) are its fields. `make spec` writes this page from the models in `destination_s3_spark/config/`.

Options without a prefix, and those of each format, are destination-s3's. All others are optional: blank text or null leaves one out.
A misspelt option that only this connector has is refused; any other unknown option is a warning that names the nearest known one.

*Applies* says what a changed option does to a table that exists: nothing means from the next sync on, **{Applies.NEW_FILES}** leaves
its present files as they are, and **{Applies.NEW_TABLES}** leaves it as it is until a refresh replaces its rows.
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


def _rows(schema: Mapping[str, Any], prefix: str, applies: str, variant: str = "", inherited: str = Applies.AT_ONCE) -> Iterator[str]:
    """Yield a row for each option of the schema, and below it for those inside it, by their names in it.

    `applies` is that of its part, and `inherited` what need not be said; `variant` begins each effect.
    """
    required = schema.get("required", ())
    for name, option in schema["properties"].items():
        if "const" in option:
            continue
        own = option.get("applies", applies)
        default = _code(option["default"]) if option.get("default") not in (None, {}) else "required" if name in required else "–"
        since = "" if own in (Applies.AT_ONCE, inherited) else f" {own}"
        linked = f"[`{prefix}{name}`]({option['page']})" if "page" in option else f"`{prefix}{name}`"
        yield f"| {linked} | {_type(option)} | {default} | {variant}{_effect(option)} | {_code(_example(option))} |{since} |"
        inner = option.get("items", option)
        if "properties" in inner:
            yield from _rows(inner, "[]." if inner is not option else ".", own, inherited=own)
        of: dict[str, list[str]] = {}  # variants by the row that they have in common
        for chosen in option.get("oneOf", ()):
            for row in _rows(chosen, ".", own, "{of}", own):
                of.setdefault(row, []).append(_code(_choice(chosen)[1]))
        yield from (row.replace("{of}", f"Of {', '.join(variants)}. ") for row, variants in of.items())


def _choice(variant: Mapping[str, Any]) -> tuple[str, str]:
    """Return the option with the fixed value that chooses the variant, and that value."""
    return next((name, option["const"]) for name, option in variant["properties"].items() if "const" in option)


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
    bounds = (
        ("above " if "exclusiveMinimum" in option else "" if "maximum" in option else "from ") + str(least) if least is not None else ""
    )
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
    return {name: _example(field) for name, field in fields["properties"].items() if name in fields.get("required", ())}


def _effect(option: Mapping[str, Any]) -> str:
    """Return the description, safe in a table."""
    return str(option["description"]).replace("*", r"\*").replace("|", r"\|")


def _code(value: Any) -> str:
    return f"`{value if isinstance(value, str) and value and value.isprintable() else json.dumps(value, ensure_ascii=False)}`"


if __name__ == "__main__":
    SPEC_FILE.write_text(json.dumps(specification(), indent=2) + "\n")
    PAGE_FILE.write_text(options_page(), encoding="utf-8")
