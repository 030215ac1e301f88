"""The Airbyte protocol: bytes in, STATE, LOG and TRACE lines out, the catalog."""
