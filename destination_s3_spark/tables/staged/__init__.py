"""Staged files: every file that a task writes, uploaded and invisible until a block names it.

The package knows uploads and the record of a file, not what the rows mean. Of `tables` it imports nothing.
"""
