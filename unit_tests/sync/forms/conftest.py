"""One sync of every case for each form of files, shared by the tests of this folder."""

from __future__ import annotations

from unit_tests.sync.forms.fixtures import landed

__all__ = ["landed"]
