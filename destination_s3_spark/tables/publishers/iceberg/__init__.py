"""Publisher of tables as Apache Iceberg tables in a catalog. Only `publisher` may be imported without the extra `iceberg`."""
