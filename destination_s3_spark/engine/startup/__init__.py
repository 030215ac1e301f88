"""Shortcuts for the start of a sync. They only save time: a sync without them writes the same tables."""
