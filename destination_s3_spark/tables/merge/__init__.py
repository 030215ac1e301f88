"""Merges: updates that bring runs into the sorted final files of a deduplicated table.

The package knows which files a merge rewrites, its Spark tasks and its commit. Of `tables` it may import `capture` and the layers below.
Only `tables.due`, `sync` and the commands import it.
"""
