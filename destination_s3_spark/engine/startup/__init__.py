"""Shortcuts at the start of a sync. Each of them saves time only: without them a sync writes the same tables."""
