"""Change data capture: the changes that merges make to a table's rows, written to its change log."""
