"""Staged files: every file that a task writes, uploaded and invisible until a block names it."""
