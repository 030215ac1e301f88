"""Change data capture: the events of a merge, their order, and the files of the change log."""
