"""One sync of every case for each form of files, shared by the tests of this directory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from integration_tests.formats.forms import Form
from integration_tests.formats.landing import Landing
from integration_tests.lake import ProcessLake
from unit_tests.lake.buckets import S3Server, new_bucket

Landed: TypeAlias = Callable[[Form], Landing]


@pytest.fixture(scope="session")
def landed(moto: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Landed:
    """The tables of all cases in files of a form. Each form's sync runs once, when it is first asked for."""
    landings: dict[Form, Landing] = {}

    def of(form: Form) -> Landing:
        if form not in landings:
            lake = ProcessLake.of(new_bucket(moto), tmp_path_factory.mktemp(form.value))
            landings[form] = Landing.run(lake, form)
        return landings[form]

    return of
