"""Airbyte protocol: parsing of the input bytes and the catalog, and output of STATE, LOG and TRACE lines."""
