"""Limits of clients in tests: one attempt, or two."""

from __future__ import annotations

from dataclasses import replace

from destination_s3_spark.storage.settings import ClientLimits

ONCE = ClientLimits(attempts=1, connect_timeout_s=2, read_timeout_s=5, copy_part_bytes=5 * 2**20)


TWICE = replace(ONCE, attempts=2)
