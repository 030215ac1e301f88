"""Sorted files of rows: encoded keys, the merge form, the winner of each key."""
