"""Merges of deduplicated tables: the plan, its Spark tasks, and the update that runs them."""
