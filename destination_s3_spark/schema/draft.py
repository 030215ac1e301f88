"""Draft types of a JSON schema that is being read, and the merge of union options before members get their names.

The rules are the migration guide's ("Merging Like Options in Unions"): equal options collapse, nulls are dropped, objects merge into one,
and a single remaining option replaces the union. `UnionConflicts` decides about options that contradict each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from destination_s3_spark.schema.airbyte_type import Decimal, Scalar, SchemalessArray, SchemalessObject, option_name


@dataclass(frozen=True, slots=True)
class DraftObject:
    """An object with its properties by JSON key, in schema order. Never empty."""

    properties: Mapping[str, Draft]


@dataclass(frozen=True, slots=True)
class DraftArray:
    """An array with the type of its items."""

    items: Draft


@dataclass(frozen=True, slots=True)
class DraftUnion:
    """Two or more merged options with distinct names, none of them null or a union. Equality ignores their order."""

    options: tuple[Draft, ...]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DraftUnion) or len(self.options) != len(other.options):
            return False
        return all(option in other.options for option in self.options)

    __hash__ = None  # type: ignore[assignment]


Draft = Scalar | Decimal | SchemalessObject | SchemalessArray | DraftObject | DraftArray | DraftUnion | None
"""None is the type of null."""


class UnionConflicts(Enum):
    """The treatment of contradicting options in a union. The values are the configuration's.

    A conflict is a member that two objects declare differently, or two options with the same name, such as arrays with different items. A
    union cannot hold two options with the same name, so both UNION and TEXT store these as a schemaless object or array (JSON text).
    """

    FAIL = "fail"
    """The schema is rejected."""
    UNION = "union"
    """The member takes the values of either declaration, as in destination-s3."""
    TEXT = "text"
    """The member is a string, which takes every value."""


class MisfitError(Exception):
    """No type fits a JSON schema. `path`: JSON keys down to the field. `reason`: a clause without a full stop.

    `conflict`: whether `UnionConflicts` could resolve the misfit.
    """

    def __init__(self, path: tuple[str, ...], reason: str, *, conflict: bool = False) -> None:
        super().__init__(reason)
        self.path = path
        self.reason = reason
        self.conflict = conflict


def merge_options(options: Sequence[Draft], path: tuple[str, ...], conflicts: UnionConflicts) -> Draft:
    """Merge the options of a union into one draft, or None if only null remains.

    Raises MisfitError for a conflict if `conflicts` is FAIL.
    """
    merged: list[Draft] = []
    flat = [inner for option in options for inner in (option.options if isinstance(option, DraftUnion) else (option,))]
    for option in flat:
        if option is None or option in merged:
            continue
        twin = next((index for index, other in enumerate(merged) if _name(other) == _name(option)), None)
        if twin is None:
            merged.append(option)
        else:
            merged[twin] = _merge_twins(merged[twin], option, path, conflicts)
    if len(merged) > 1:
        return DraftUnion(tuple(merged))
    return merged[0] if merged else None


def _merge_twins(left: Draft, right: Draft, path: tuple[str, ...], conflicts: UnionConflicts) -> Draft:
    if isinstance(left, DraftObject) and isinstance(right, DraftObject):
        return _merge_objects(left, right, path, conflicts)
    name = _name(left)
    if name == Scalar.NUMBER.value:
        return Scalar.NUMBER  # decimals of two scales, or a double, which takes every number
    if conflicts is UnionConflicts.FAIL:
        raise MisfitError(path, f"two options of its union are both called {name} and cannot be merged", conflict=True)
    return SchemalessObject() if name == "object" else SchemalessArray()


def _merge_objects(left: DraftObject, right: DraftObject, path: tuple[str, ...], conflicts: UnionConflicts) -> DraftObject:
    merged = dict(left.properties)
    for source, draft in right.properties.items():
        merged[source] = _merge_property(merged[source], draft, (*path, source), conflicts) if source in merged else draft
    return DraftObject(merged)


def _merge_property(left: Draft, right: Draft, path: tuple[str, ...], conflicts: UnionConflicts) -> Draft:
    if left == right or right is None:
        return left
    if left is None:
        return right
    if isinstance(left, DraftObject) and isinstance(right, DraftObject):
        return _merge_objects(left, right, path, conflicts)
    if _name(left) == _name(right) == Scalar.NUMBER.value:
        return Scalar.NUMBER
    match conflicts:
        case UnionConflicts.UNION:
            return merge_options([left, right], path, conflicts)
        case UnionConflicts.TEXT:
            return Scalar.STRING
    reason = f"objects of one union declare it as {_name(left)} and as {_name(right)}, which cannot be merged"
    raise MisfitError(path, reason, conflict=True)


def _name(draft: Draft) -> str:
    """Return the option's name in the typed disjoint record."""
    match draft:
        case DraftObject():
            return "object"
        case DraftArray():
            return "array"
        case DraftUnion():
            return "union"
        case None:
            return "null"
    return option_name(draft)
