"""Publisher of tables as Apache Iceberg tables in a catalog.

Only `publisher` and `columns` may be imported without the extra `iceberg`. They import the other modules, and with them pyiceberg, at the
first use of a configured catalog.
"""
