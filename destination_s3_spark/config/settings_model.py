"""Base models of the configuration: handling of blank text, text that must match a pattern, and what documentation says of an option."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema, core_schema


class Applies(StrEnum):
    """Since when a changed option holds for a table that exists already."""

    AT_ONCE = "at once"
    NEW_FILES = "new files"
    NEW_TABLES = "new tables and refreshes"


def documented(applies: Applies | None = None, page: str | None = None) -> dict[str, Any]:
    """Return what `docs/options.md` says of an option and the form does not. `applies` is otherwise that of its group, or at once."""
    return {key: value for key, value in (("applies", applies), ("page", page)) if value is not None}


class Settings(BaseModel):
    """A part of the configuration. Unknown keys are errors. Blank text counts as absent: Airbyte's UI sends "" for an empty box."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    blank_is_a_value: ClassVar[frozenset[str]] = frozenset()
    """Fields in which blank text has its own meaning."""

    @model_validator(mode="before")
    @classmethod
    def _drop_blank_text(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        optional = cls.model_fields.keys() - cls.blank_is_a_value
        return {key: value for key, value in values.items() if not (key in optional and isinstance(value, str) and not value.strip())}


class OpenSettings(Settings):
    """A part that destination-s3 has too. Like destination-s3, it ignores unknown keys (options of older versions)."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True, json_schema_extra={"additionalProperties": True})


@dataclass(frozen=True, slots=True)
class Shape:
    """Annotation for text that must match a pattern. The spec contains the same pattern, but also allows blank text."""

    pattern: str
    looks_like: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), "pattern": f"^$|{self.pattern}", "pattern_descriptor": self.looks_like}

    def _checked(self, text: str) -> str:
        if not re.fullmatch(self.pattern, text):
            raise ValueError(f"must look like {self.looks_like}")
        return text
