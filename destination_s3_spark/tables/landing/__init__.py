"""Landing: the conversion of slices of record lines to staged files, inside Spark tasks.

The package knows record lines, plans and file formats. It knows neither what a table is nor how a staged file is committed. Of `tables` it
may import `layout`, `row_plan`, `dedup`, `rules` and the layers below. It uses only `runs`, to write sorted deltas.
"""
