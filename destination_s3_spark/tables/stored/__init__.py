"""Stored rows: reading the rows of existing files as rows of the table's current columns.

The package knows file schemas, the retyping of raw rows and casts between types. Of `tables` it may import nothing else.
"""
