"""Columns of a table: its key, the rows that records become, and the encodings and partitioning that it keeps until a refresh."""
