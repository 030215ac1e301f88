"""An engine that runs tasks where it is called: what syncs and commands use in tests that are not about Spark."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any


class _NoSession:
    """A session of Spark that is never there."""

    def launch(self) -> None:
        pass

    def fork_template(self) -> None:
        pass


class InlineEngine:
    """Runs the tasks of a job one after the other. They and their results are pickled, as on their way to Spark's workers and back."""

    cores = 2
    lost_attempts = False
    session = _NoSession()

    def start(self) -> None:
        pass

    def release(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def run(self, function: Callable[[Any], Any], groups: Sequence[Sequence[Any]], progress: object = None) -> list[list[Any]]:
        return _sent([[function(task) for task in tasks] for tasks in _sent(groups)])


def _sent(value: Any) -> Any:
    """Return a copy, as one that was sent. A whole job goes at once: its tasks have most of their schemas in common."""
    return pickle.loads(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))


class SharedEngine:
    """An engine that several syncs use: the end of one does not stop it."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def stop(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)
