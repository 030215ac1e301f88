"""Rows that are stored already, read as rows of the table's columns of today."""
