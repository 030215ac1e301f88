"""Writers of final and raw files: they encode Arrow batches as Parquet, Avro, CSV or JSON Lines.

The package knows the layout of one file, and nothing of tables, chains or S3. It may import `decoding` and the layers below it.
"""
