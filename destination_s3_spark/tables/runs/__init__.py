"""Runs: rows sorted by the encoded primary key, in files and in memory.

The package knows the encoding of keys, the merge form of rows, the winner of each key, and files and streams of sorted rows. It does not
know how a merge divides keys into ranges, nor commits. Of `tables` it may import only `stored`, for rows of earlier schemas.
"""
