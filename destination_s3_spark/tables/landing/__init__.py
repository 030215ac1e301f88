"""Landing: the conversion of slices of record lines to staged files, inside Spark tasks."""
