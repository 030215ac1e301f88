"""Keeps pandas out of a process that has no use for it.

Arrow and Spark import it, if it is there, only to recognise its objects: of the start of a small sync that was a tenth.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder


class _WithoutPandas(MetaPathFinder):
    def find_spec(self, name: str, *_: object) -> None:
        """Nothing but an ImportError for pandas; for all else, leave it to others."""
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not used in this process", name=name)


def keep_out_pandas() -> None:
    """From now on, as if pandas were not installed. Only for a process of our own."""
    sys.meta_path.insert(0, _WithoutPandas())
