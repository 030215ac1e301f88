"""Import hook that hides pandas from a process that does not need it.

Arrow and Spark import an installed pandas only to recognise its objects. That took a tenth of the start of a small sync.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder


class _WithoutPandas(MetaPathFinder):
    def find_spec(self, name: str, *_: object) -> None:
        """Raise ModuleNotFoundError for pandas. Leave all other modules to other finders."""
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not used in this process", name=name)


def keep_out_pandas() -> None:
    """Make this process behave as if pandas were not installed. Only for the connector's own processes."""
    sys.meta_path.insert(0, _WithoutPandas())
