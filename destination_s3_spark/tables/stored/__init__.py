"""Stored rows: reading the rows of existing files as rows of the table's current columns."""
