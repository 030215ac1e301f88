"""JSON schema to types, types to Arrow, names, and how a table's columns change."""
