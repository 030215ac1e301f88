"""What tests of whole syncs have in common."""

from __future__ import annotations

from unit_tests.lake.fixtures import lake, make_lake

__all__ = ["lake", "make_lake"]
