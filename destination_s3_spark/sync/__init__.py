"""Course of one sync: read, spool, land, commit, emit STATEs."""
