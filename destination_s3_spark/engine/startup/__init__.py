"""Shortcuts at the start of a sync, each of which only saves time."""
