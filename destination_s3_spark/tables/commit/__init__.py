"""The writer of a table: staged files into blocks of its chain, adoption of earlier files, repair."""
