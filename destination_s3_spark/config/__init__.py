"""Configuration: its options as pydantic models. `make spec` writes the spec and `docs/options.md` from them."""

from __future__ import annotations

from pathlib import Path

SPEC_FILE = Path(__file__).parents[1] / "spec.json"
"""The spec as `make spec` writes it."""
