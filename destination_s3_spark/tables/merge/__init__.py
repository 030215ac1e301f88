"""Merges of runs into the sorted final files of a deduplicated table: the plan, and its Spark tasks (`updates.merged` joins them)."""
