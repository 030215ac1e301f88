"""Landing: slices of record lines become staged files that no reader sees yet.

Knows record lines, plans and file formats, and runs inside Spark tasks. Imports `tables.runs` for deltas that are sorted, and nothing
else of `tables`: neither what a table is nor what becomes of a staged file.
"""
