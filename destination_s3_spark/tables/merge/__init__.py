"""Merges: runs come into the sorted final files of a deduplicated table.

Knows which files a merge touches, its Spark tasks and its commit. Imports `tables.capture` and what lies below it; only `tables.due`,
`sync` and the commands know of merges.
"""
