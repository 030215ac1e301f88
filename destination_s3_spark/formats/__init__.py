"""File formats: Arrow batches to bytes."""
