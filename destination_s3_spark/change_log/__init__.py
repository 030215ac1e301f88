"""The change log of a deduplicated table: what an event looks like, the files it is written to, and the way back."""
