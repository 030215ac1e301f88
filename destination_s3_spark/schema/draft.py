"""Types while a JSON schema is being read: unions are merged here, before members get their names.

The guide's rules ("Merging Like Options in Unions"): equal options collapse, nulls drop, objects become one object, an option that is
left alone stands for itself. What cannot be merged ends the sync.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from destination_s3_spark.schema.airbyte_type import Scalar, SchemalessArray, SchemalessObject


@dataclass(frozen=True, slots=True)
class DraftObject:
    """An object's properties by their JSON keys, in schema order; never empty."""

    properties: Mapping[str, Draft]


@dataclass(frozen=True, slots=True)
class DraftArray:
    """An array's items."""

    items: Draft


@dataclass(frozen=True, slots=True)
class DraftUnion:
    """Two or more merged options; none of them is null or a union, no two have one name. Equal whatever the order."""

    options: tuple[Draft, ...]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DraftUnion) or len(self.options) != len(other.options):
            return False
        return all(option in other.options for option in self.options)

    __hash__ = None  # type: ignore[assignment]


Draft = Scalar | SchemalessObject | SchemalessArray | DraftObject | DraftArray | DraftUnion | None
"""None is the type of null."""


class MisfitError(Exception):
    """No type fits a JSON schema. `path` leads to the field by its JSON keys, `reason` is a clause without a full stop."""

    def __init__(self, path: tuple[str, ...], reason: str) -> None:
        super().__init__(reason)
        self.path = path
        self.reason = reason


def merge_options(options: Sequence[Draft], path: tuple[str, ...]) -> Draft:
    """The options of a union as one draft; None when nothing but null is left."""
    merged: list[Draft] = []
    for option in _flat(options):
        if option is None or option in merged:
            continue
        twin = next((index for index, other in enumerate(merged) if _name(other) == _name(option)), None)
        if twin is None:
            merged.append(option)
        else:
            merged[twin] = _merge_twins(merged[twin], option, path)
    if len(merged) > 1:
        return DraftUnion(tuple(merged))
    return merged[0] if merged else None


def _flat(options: Sequence[Draft]) -> list[Draft]:
    return [inner for option in options for inner in (option.options if isinstance(option, DraftUnion) else (option,))]


def _merge_twins(left: Draft, right: Draft, path: tuple[str, ...]) -> Draft:
    if isinstance(left, DraftObject) and isinstance(right, DraftObject):
        return _merge_objects(left, right, path)
    raise MisfitError(path, f"two options of its union are both called {_name(left)} and cannot be merged")


def _merge_objects(left: DraftObject, right: DraftObject, path: tuple[str, ...]) -> DraftObject:
    merged = dict(left.properties)
    for source, draft in right.properties.items():
        merged[source] = _merge_property(merged[source], draft, (*path, source)) if source in merged else draft
    return DraftObject(merged)


def _merge_property(left: Draft, right: Draft, path: tuple[str, ...]) -> Draft:
    if left == right or right is None:
        return left
    if left is None:
        return right
    if isinstance(left, DraftObject) and isinstance(right, DraftObject):
        return _merge_objects(left, right, path)
    raise MisfitError(path, f"objects of one union declare it as {_name(left)} and as {_name(right)}, which cannot be merged")


def _name(draft: Draft) -> str:
    """The option's name in the disjoint record (compare `airbyte_type.option_name`)."""
    match draft:
        case Scalar():
            return draft.value
        case DraftObject() | SchemalessObject():
            return "object"
        case DraftArray() | SchemalessArray():
            return "array"
        case DraftUnion():
            return "union"
    return "null"
