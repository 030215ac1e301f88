"""Queries about tables: what their chains say, as frozen dataclasses without any layout.

A module has one query, which takes an `InspectedTable` and returns rows. The commands print the rows as tables, JSON or CSV.
"""
