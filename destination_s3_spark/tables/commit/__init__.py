"""Commits: staged files become part of a table, by blocks of its chain.

Knows the chain, checkpoints, replays, files adopted from destination-s3 and repair. Imports `tables.landing` for the slices it is given
and `tables.publishers` for the readers it tells. Nothing here looks into a file.
"""
