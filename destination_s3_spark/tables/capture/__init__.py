"""Change data capture: the changes that merges make to a table's rows, written to its change log.

The package knows the order of a key's records, values that records left out, events and their order, and groups of the log. It does not
decide which files a merge rewrites. Of `tables` it may import `open_table` and the layers below.
"""
