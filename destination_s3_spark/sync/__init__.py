"""The story of one sync: read, spool, land, commit, echo STATE."""
