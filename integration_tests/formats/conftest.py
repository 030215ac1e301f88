"""One sync of every case for each form of files, into buckets in memory."""

from __future__ import annotations

from unit_tests.lake import memory_s3
from unit_tests.sync.forms.fixtures import landed

__all__ = ["landed"]

memory_s3.install()
