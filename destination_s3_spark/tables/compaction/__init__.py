"""Compaction: small files of a table joined into files of the target size, without a change to any row."""
