"""Change data capture: what merges did to the rows of a table, for its change log.

Knows the order of a key's records, values that records left out, events and their order, and groups of the log. Imports
`tables.stream_table` and what lies below it. Nothing here decides which file is rewritten.
"""
