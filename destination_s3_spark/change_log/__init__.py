"""Change log of a deduplicated table: its events, the files that hold them, and the reading of these files."""
