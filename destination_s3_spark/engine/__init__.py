"""Spark: the session, and running a function over tasks on its executors."""
