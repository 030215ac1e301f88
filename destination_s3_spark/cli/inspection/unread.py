"""Tables that cannot be shown: one of them must not hide the others."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from destination_s3_spark.errors import REPORT, Bug, DataError, SyncError
from destination_s3_spark.tables.found import FoundTable, UnreadTable

Shown = TypeVar("Shown")


def shown_or_unread(table: FoundTable, show: Callable[[FoundTable], Shown]) -> Shown | UnreadTable:
    """Return what the function makes of the table, or why it could not. Raises SyncError for what is no fault of the table."""
    try:
        return show(table)
    except (DataError, Bug) as error:
        return UnreadTable(str(table.stream), error.message)
    except SyncError:
        raise
    except Exception as error:  # noqa: BLE001 (a fault in the code that shows one table)
        return UnreadTable(str(table.stream), f"an error that was not foreseen, {_place(error)}. {REPORT}")


def _place(error: Exception) -> str:
    """Return the type and the place of an error, without its text, which may quote a record."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__qualname__} in {Path(frame.filename).name}, line {frame.lineno}"
