"""`write` as the installed command does it, with less patience: `impatient_write.py PATIENCE_S write --config FILE --catalog FILE`."""

from __future__ import annotations

import os
import sys

from destination_s3_spark import process
from destination_s3_spark.storage.settings import ClientLimits

if __name__ == "__main__":
    patience_s = float(sys.argv[1])
    os._exit(process.write(sys.argv[3:], ClientLimits(patience_s, read_timeout_s=patience_s / 4)))
