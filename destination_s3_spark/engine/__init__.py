"""Spark engine: the session, and functions that run over tasks on its executors."""
