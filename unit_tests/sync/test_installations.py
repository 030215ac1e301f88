"""A connection that changes from a custom connector to one of the registry and back: its tables stay."""

from __future__ import annotations

import pytest

from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import JsonObject, complete, stream, users
from unit_tests.lake.messages import catalog as catalog_of
from unit_tests.sync.sources import END


def catalog(mode: str, generation: int | None, minimum: int | None) -> JsonObject:
    return catalog_of(
        stream(mode=mode, key="id", generation=generation, minimum_generation=minimum, sync_id=None if generation is None else 1)
    )


def as_custom(lake: Lake, mode: str, ids: list[int]) -> list[int]:
    """The table's ids after a sync as Airbyte runs it with a custom connector."""
    lake.sync(catalog(mode, None, None), [*users(ids), END])
    return lake.ids_in_folder()


def as_registered(lake: Lake, mode: str, ids: list[int], generation: int, minimum: int) -> list[int]:
    """The table's ids after a sync as Airbyte runs it with a connector of the registry."""
    lake.sync(catalog(mode, generation, minimum), [*users(ids), END, complete()])
    return lake.ids_in_folder()


@pytest.mark.parametrize("generation", [0, 4])
@pytest.mark.parametrize(("mode", "again"), [("append", []), ("append_dedup", [2])])
def test_rows_stay(lake: Lake, mode: str, again: list[int], generation: int) -> None:
    assert as_custom(lake, mode, [1, 2]) == [1, 2]
    assert as_registered(lake, mode, [*again, 3], generation, 0) == [1, 2, 3]
    assert as_custom(lake, mode, [*again, 4]) == [1, 2, 3, 4]


def test_overwritten_tables_go_on_to_be_overwritten(lake: Lake) -> None:
    assert as_custom(lake, "overwrite", [1, 2]) == [1, 2]
    assert as_registered(lake, "overwrite", [3, 4], 1, 1) == [3, 4]
    assert as_custom(lake, "overwrite", [5, 6]) == [5, 6]
    assert as_registered(lake, "overwrite", [7], 3, 3) == [7]


def test_overwrite_becomes_overwrite_and_deduped(lake: Lake) -> None:
    """What Airbyte sends a custom connector as `overwrite` keeps duplicates; as a connector of the registry it does not."""
    assert as_custom(lake, "overwrite", [1, 1]) == [1, 1]
    assert as_registered(lake, "append_dedup", [2, 2], 1, 1) == [2]
    assert as_custom(lake, "overwrite", [3, 3]) == [3, 3]
