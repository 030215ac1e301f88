"""Makes the modules beside this file (the fake bucket, the simulated sync) importable by the tests of this folder."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
