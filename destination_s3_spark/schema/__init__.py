"""Schemas: JSON schema to Airbyte types, Airbyte types to Arrow, column names, and the evolution of a table's columns."""
