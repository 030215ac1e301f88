"""Stored rows: what files already hold, as rows of the table's columns of today.

Knows file schemas and how values are typed again or cast. Imports nothing else of `tables`.
"""
