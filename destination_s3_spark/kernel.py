"""Loading of the native kernel, an optional extension module that decodes record lines in plain form.

The kernel is loaded once, on import of this module. Spark's workers are forked from the driver later and inherit it.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType

SWITCH = "DESTINATION_S3_SPARK_KERNEL"
"""Environment variable; `off` disables the kernel, so that Python decodes all lines."""
_MODULE = "destination_s3_spark_kernel"
_INTERFACE = 6
"""Interface version that `decoding.kernel_typer` needs; it must equal the kernel's `INTERFACE`."""


def _load() -> tuple[ModuleType | None, str]:
    """Return the kernel if it is usable, else None, and a phrase for log lines that says how records are typed."""
    if os.environ.get(SWITCH, "").strip().lower() == "off":
        return None, f"in Python ({SWITCH}=off)"
    try:
        module = importlib.import_module(_MODULE)
    except ImportError:
        return None, "in Python (the native kernel is not installed)"
    if module.INTERFACE != _INTERFACE:
        return None, f"in Python (the native kernel {module.VERSION} belongs to another version of the connector)"
    return module, f"by the native kernel {module.VERSION}"


KERNEL, HOW_LINES_ARE_TYPED = _load()
