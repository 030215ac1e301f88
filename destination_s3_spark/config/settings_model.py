"""What every part of the configuration has in common: how blank text is read, and text with a shape."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema, core_schema


class Settings(BaseModel):
    """A part of the configuration. Unknown keys are an error, and blank text counts as absent: Airbyte's UI sends "" for an empty box."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    blank_is_a_value: ClassVar[frozenset[str]] = frozenset()
    """Fields whose blank text has a meaning of its own."""

    @model_validator(mode="before")
    @classmethod
    def _drop_blank_text(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        optional = cls.model_fields.keys() - cls.blank_is_a_value
        return {key: value for key, value in values.items() if not (key in optional and isinstance(value, str) and not value.strip())}


class OpenSettings(Settings):
    """A part that destination-s3 has too: keys we do not know (options of older versions) are ignored, as it does."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True, json_schema_extra={"additionalProperties": True})


@dataclass(frozen=True, slots=True)
class Shape:
    """Annotates text that must match a pattern. The same pattern goes into the spec, where blank text stays possible."""

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
