"""The typing kernel, if this machine has it: a native module of its own that reads the plain forms of record lines.

It is loaded once, when this module is: the driver forks Spark's workers later, and they then have it, too.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType

SWITCH = "DESTINATION_S3_SPARK_KERNEL"
"""The environment variable that, set to `off`, has all lines typed in Python."""
_MODULE = "destination_s3_spark_kernel"
_INTERFACE = 3
"""What `native_record_typer` expects; the kernel says the same of itself."""


def _load() -> tuple[ModuleType | None, str]:
    """The kernel if it can be used, and how lines are typed with or without it."""
    if os.environ.get(SWITCH, "").strip().lower() == "off":
        return None, f"in Python ({SWITCH}=off)"
    try:
        module = importlib.import_module(_MODULE)
    except ImportError:
        return None, "in Python (the native kernel is not installed)"
    if module.INTERFACE != _INTERFACE:
        return None, f"in Python (the native kernel {module.VERSION} is of another version of the connector)"
    return module, f"by the native kernel {module.VERSION}"


KERNEL, HOW_LINES_ARE_TYPED = _load()
