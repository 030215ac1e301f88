"""Delta Lake's log: its actions, its schema text, its commits and checkpoints."""
