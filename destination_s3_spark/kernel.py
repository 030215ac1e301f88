"""Loading of the native kernel, an optional extension module that decodes record lines in plain form.

The kernel is loaded once, on import of this module. Spark's workers are forked from the driver later and inherit it. Executors of a cluster
receive its library with the session.
"""

from __future__ import annotations

import importlib
import os
import platform
import sys
from pathlib import Path
from types import ModuleType

SWITCH = "DESTINATION_S3_SPARK_KERNEL"
"""Environment variable; `off` disables the kernel, so that Python decodes all lines."""
_MODULE = "destination_s3_spark_kernel"
_INTERFACE = 7
"""Interface version that `decoding.kernel_typer` needs; it must equal the kernel's `INTERFACE`."""


def _load() -> tuple[ModuleType | None, str]:
    """Return the kernel if it is usable, else None, and a phrase for log lines that says how records are typed."""
    if os.environ.get(SWITCH, "").strip().lower() == "off":
        return None, f"in Python ({SWITCH}=off)"
    try:
        module = importlib.import_module(_MODULE)
    except ModuleNotFoundError:
        return None, "in Python (the native kernel is not installed)"
    except ImportError as error:
        behind = _behind(error)
        if behind is None:
            return None, f"in Python (the native kernel cannot be loaded on this {platform.machine()} machine: {error})"
        module = behind
    if module.INTERFACE != _INTERFACE:
        return None, f"in Python (the native kernel {module.VERSION} belongs to another version of the connector)"
    return module, f"by the native kernel {module.VERSION}"


def _behind(error: ImportError) -> ModuleType | None:
    """Import the kernel of this machine, which is on the path behind the library of the session that could not be loaded."""
    path = sys.path[:]
    sys.path[:] = [entry for entry in path if error.path is None or Path(entry) != Path(error.path).parent]
    try:
        return importlib.import_module(_MODULE)
    except ImportError:
        return None
    finally:
        sys.path[:] = path


def kernel_library() -> Path | None:
    """Return the kernel's compiled library, from which Python can import the kernel on another machine of this kind."""
    if KERNEL is None or KERNEL.__file__ is None:
        return None
    return next(Path(KERNEL.__file__).parent.glob(f"{_MODULE}*.so"), None)


KERNEL, HOW_LINES_ARE_TYPED = _load()
