"""Page of a bucket path's tables: its figures, its charts, and their HTML.

The figures are the rows that `inspect --output json` prints. Nothing here reads the store but `figures`.
"""
