"""Delta Lake's log: its actions, its schema text, its commits and checkpoints.

The package knows the Delta protocol and an object store. It knows nothing about chains and tables.
"""
