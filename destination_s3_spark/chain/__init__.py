"""Append-only, hash-linked chain of metadata blocks: the single source of truth about a table."""
