"""Show a table's head to readers that do not know its chain."""
