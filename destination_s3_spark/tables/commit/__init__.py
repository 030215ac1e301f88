"""Commits: blocks of a table's chain that make staged files part of the table."""
