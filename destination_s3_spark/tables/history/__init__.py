"""Histories of deduplicated tables: one row for each version of a row, with the time during which it was valid."""
