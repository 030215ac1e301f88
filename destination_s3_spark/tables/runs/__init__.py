"""Runs: rows sorted by the encoded primary key, in files and in memory."""
