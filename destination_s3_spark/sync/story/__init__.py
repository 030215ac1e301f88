"""The story of a sync for people and for programs: its start, its progress, its commits and its summary, as LOG messages."""
