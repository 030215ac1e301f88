"""Page of a bucket path's tables: its figures, its charts, and their HTML.

The figures are the rows that `inspect --output json` prints. Only `page.write` and `figures` read the store.
"""
