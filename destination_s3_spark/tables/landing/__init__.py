"""Landing of slices: record lines in, staged raw, final and delta files out."""
