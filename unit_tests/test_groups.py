"""Tests of a file run in one process, even when several run the tests."""

from __future__ import annotations

import pytest


def test_the_group_of_a_test_is_known_to_those_who_share_the_tests_out(request: pytest.FixtureRequest) -> None:
    """Otherwise each process makes the fixtures of all files. pytest-xdist reads the group from the test's id."""
    is_worker = getattr(request.config.option, "loadgroup", False)
    assert not is_worker or request.node.nodeid.endswith("@unit_tests/test_groups.py")
