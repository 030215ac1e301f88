"""Runs: rows sorted by the encoded primary key, in files and in memory.

Knows the encoding of keys, the merge form of rows, the winner of each key, and files and streams of sorted rows. Imports `tables.stored`
for rows of earlier schemas, and nothing else of `tables`: neither ranges of keys nor commits.
"""
