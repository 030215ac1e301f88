"""Snippets of the documentation, and the comments before them that say who runs them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUNNABLE = {"bash", "console", "python", "sh", "sql"}
OTHERS = {"json", "mermaid", "text", "yaml"}
COMMENT = re.compile(r"<!-- (?:not run: (?P<reason>.+)|run by (?P<test>\S+)) -->")


@dataclass(frozen=True)
class Snippet:
    """A fenced block. `reason` says why nothing runs it, `test` which other test does."""

    page: Path
    line: int
    language: str
    text: str
    reason: str | None = None
    test: str | None = None

    @property
    def place(self) -> str:
        """Where it is, for a person."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def is_run_here(self) -> bool:
        """Whether test_docs runs it."""
        return self.language in RUNNABLE and self.reason is None and self.test is None

    @property
    def commands(self) -> str:
        """The commands of a shell snippet. In a console they follow a dollar sign; the other lines are what they print."""
        if self.language != "console":
            return self.text
        return "\n".join(line.removeprefix("$ ") for line in self.text.splitlines() if line.startswith("$ "))


def snippets(page: Path) -> Iterator[Snippet]:
    """The snippets of a page, from top to bottom."""
    lines = page.read_text().splitlines()
    number = 0
    while number < len(lines):
        if lines[number].lstrip().startswith("```"):
            end = next(end for end in range(number + 1, len(lines)) if lines[end].strip() == "```")
            before = next((line for line in reversed(lines[:number]) if line.strip()), "")
            said = COMMENT.fullmatch(before.strip())
            who = said.groupdict() if said else {}
            yield Snippet(page, number + 1, lines[number].strip().strip("`"), "\n".join(lines[number + 1 : end]), **who)
            number = end
        number += 1
