"""The append-only, hash-linked chain of metadata blocks: the only truth about a table."""
