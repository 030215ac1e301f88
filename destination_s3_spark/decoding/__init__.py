"""Decoding of record lines to typed Arrow columns, with an entry for every value that had to be changed."""
