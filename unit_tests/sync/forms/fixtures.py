"""The fixture of tests about forms of files. The conftest.py of a folder takes it over."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from unit_tests.lake.lake import Lake
from unit_tests.lake.memory_client import SERVER
from unit_tests.sync.forms.forms import Form
from unit_tests.sync.forms.landing import Landing

Landed: TypeAlias = Callable[[Form], Landing]


@pytest.fixture(scope="session")
def landed(tmp_path_factory: pytest.TempPathFactory) -> Landed:
    """The tables of all cases in files of a form. Each form's sync runs once, when it is first asked for."""
    landings: dict[Form, Landing] = {}

    def of(form: Form) -> Landing:
        if form not in landings:
            landings[form] = Landing.run(Lake(SERVER.create(), tmp_path_factory.mktemp(form.value)), form)
        return landings[form]

    return of
