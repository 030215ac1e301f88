"""Base models of the configuration, and the detection of unknown options.

They handle blank text, text that must match a pattern, and what documentation says of an option. destination-s3 ignores unknown options, so
they are no error in the parts that it has too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, SecretStr, model_validator
from pydantic_core import CoreSchema, core_schema

from destination_s3_spark.wording import nearest_name

OptionPath = tuple[str, ...]
NO_VARIANT = "none"
"""The first choice in Airbyte's form where a part with variants may be absent. The form always sends one of the variants."""

LEGACY: frozenset[OptionPath] = frozenset({("part_size",), ("part_size_mb",), ("format", "part_size_mb"), ("destinationType",)})
"""Options that destination-s3 once had, and those that Airbyte's API adds. destination-s3 ignores them as well."""


class Applies(StrEnum):
    """Since when a changed option holds for a table that exists already."""

    AT_ONCE = "at once"
    NEW_FILES = "new files"
    NEW_TABLES = "new tables and refreshes"


def documented(applies: Applies | None = None, page: str | None = None) -> dict[str, Any]:
    """Return what `docs/options.md` says of an option and the form does not. `applies` is otherwise that of its group, or at once."""
    return {key: value for key, value in (("applies", applies), ("page", page)) if value is not None}


class Settings(BaseModel):
    """A part of the configuration. Unknown keys are errors.

    Blank text and null count as absent: Airbyte's form sends "" for an empty box, and programs that write configurations send null.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    blank_is_a_value: ClassVar[frozenset[str]] = frozenset()
    """Fields in which blank text has its own meaning."""

    def secrets(self) -> Iterator[str]:
        """Yield the secrets of this part and of those inside it."""
        for _, value in self:
            if isinstance(value, SecretStr):
                yield value.get_secret_value()
            elif isinstance(value, Settings):
                yield from value.secrets()

    @model_validator(mode="before")
    @classmethod
    def _drop_unset(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        return {key: value for key, value in values.items() if key not in cls.model_fields or not cls._is_unset(key, value)}

    @classmethod
    def _is_unset(cls, key: str, value: Any) -> bool:
        return value is None or (isinstance(value, str) and not value.strip() and key not in cls.blank_is_a_value)


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


@dataclass(frozen=True, slots=True)
class UnknownOption:
    """An unknown option and the known one that is probably meant. `ours`: destination-s3 does not have the known one."""

    path: OptionPath
    meant: OptionPath | None
    ours: bool

    def __str__(self) -> str:
        return f"{'.'.join(self.path)}: there is no such option{'' if self.ours else ', so it has no effect'}{did_you_mean(self.meant)}"


def unknown_options(config: Settings, options: Mapping[str, Any]) -> list[UnknownOption]:
    """Return the options, at any depth, that the configuration parsed from them does not have."""
    known = dict(_known(config))
    return [
        UnknownOption(path, meant, meant is not None and not known[meant])
        for path, siblings in _unknown(config, options)
        if path not in LEGACY
        for meant in (_meant(path, siblings, known),)
    ]


def did_you_mean(path: OptionPath | None) -> str:
    """Return the question for the end of a sentence; empty without a suggestion."""
    return f" (did you mean {'.'.join(path)}?)" if path else ""


def _unknown(part: Settings, options: Mapping[str, Any], parent: OptionPath = ()) -> Iterator[tuple[OptionPath, Iterable[str]]]:
    """Yield the path of each option that the part does not have, with the names of the part's options."""
    names = type(part).model_fields
    for name, value in options.items():
        if name not in names:
            yield (*parent, name), names
        elif isinstance(value, Mapping) and isinstance(chosen := getattr(part, name), Settings):
            yield from _unknown(chosen, value, (*parent, name))


def _known(part: Settings, parent: OptionPath = ()) -> Iterator[tuple[OptionPath, bool]]:
    """Yield the path of each existing option, in the chosen variants, and whether its part is one of destination-s3's."""
    for name in type(part).model_fields:
        value = getattr(part, name)
        yield (*parent, name), isinstance(value if isinstance(value, Settings) else part, OpenSettings)
        if isinstance(value, Settings):
            yield from _known(value, (*parent, name))


def _meant(path: OptionPath, siblings: Iterable[str], known: Iterable[OptionPath]) -> OptionPath | None:
    """Return a similar name in the same place, else the same name in another place."""
    near = nearest_name(path[-1], siblings)
    return (*path[:-1], near) if near else next((other for other in known if other[-1] == path[-1]), None)
