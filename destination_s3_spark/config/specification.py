"""Generator of `spec.json` from the configuration models: `python -m destination_s3_spark.config.specification` (`make spec`).

Airbyte's UI and the CDK require plain draft-07 without references, no `anyOf` (the CDK cannot mask a secret under one), and a fixed value
in every variant of a `oneOf`. pydantic's schema differs in all three.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from destination_s3_spark.config import SPEC_FILE
from destination_s3_spark.config.config import ADVANCED, Config
from destination_s3_spark.config.settings_model import Applies

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
        "connectionSpecification": connection_specification(),
    }


def connection_specification() -> dict[str, Any]:
    """Return the JSON schema of a configuration."""
    plain = _for_the_form(documented_schema())
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **plain,
        "groups": [{"id": ADVANCED, "title": "Advanced"}],
    }


def documented_schema() -> dict[str, Any]:
    """Return the same schema with what options say of themselves for documentation."""
    schema = Config.model_json_schema()
    plain = _plain(schema, schema["$defs"])
    del plain["description"]  # the form has a title, and Config's docstring is for developers
    return plain


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
    return plain


if __name__ == "__main__":
    SPEC_FILE.write_text(json.dumps(specification(), indent=2) + "\n")
