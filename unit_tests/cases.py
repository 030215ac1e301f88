"""Tests that are a table: one test over many cases, which names those that failed."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

_FAILED = (Exception, pytest.fail.Exception)


def each(names: str | Sequence[str], values: Iterable[Any], ids: Callable[[Any], object] | None = None) -> Callable[..., Any]:
    """Run a test for each of these values of its parameters, and fail at the end if one failed. The arguments are those of `parametrize`.

    Fixtures are made once for all cases, so this is for tests that leave nothing behind; others use `pytest.mark.parametrize`. Decorators
    that stand over each other multiply, as there. `ids`: a short name for a value, for the list of failures.
    """
    parameters = [name.strip() for name in names.split(",")] if isinstance(names, str) else [*names]
    cases = [value if len(parameters) > 1 else (value,) for value in values]
    assert cases, f"there is no case of {parameters}"
    assert all(len(case) == len(parameters) for case in cases), f"a case does not have {len(parameters)} values"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def all_cases(**fixtures: Any) -> None:
            failed: list[BaseException] = []
            for case in cases:
                try:
                    test(**fixtures, **dict(zip(parameters, case, strict=True)))
                except _FAILED as error:
                    shown = case if ids is None else tuple(map(ids, case))
                    error.add_note(f"case {', '.join(f'{name}={value!r}' for name, value in zip(parameters, shown, strict=True))}"[:2000])
                    failed.append(error)
            if failed:
                raise BaseExceptionGroup(f"{len(failed)} of {len(cases)} cases failed", failed)

        signature = inspect.signature(test)
        fixtures = [parameter for name, parameter in signature.parameters.items() if name not in parameters]
        assert len(fixtures) == len(signature.parameters) - len(parameters), f"{test.__name__} does not take all of {parameters}"
        all_cases.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return all_cases

    return decorate
