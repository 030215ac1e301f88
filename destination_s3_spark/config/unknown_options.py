"""Detection of unknown options in a configuration.

destination-s3 ignores unknown options, so they are no error in the parts that it has too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from destination_s3_spark.config.settings_model import OpenSettings, Settings
from destination_s3_spark.wording import nearest_name

OptionPath = tuple[str, ...]

LEGACY: frozenset[OptionPath] = frozenset({("part_size",), ("part_size_mb",), ("format", "part_size_mb"), ("destinationType",)})
"""Options that destination-s3 once had, and those that Airbyte's API adds. destination-s3 ignores them as well."""


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
