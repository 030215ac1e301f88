"""Class data sharing for Spark's JVM: it maps parsed and verified classes from an archive instead of reading them from jars.

`python -m destination_s3_spark.engine.startup.class_data` makes the archive, for the image and for the `.venv` of `make install`. Without
an archive the JVM starts normally. The JVM ignores an archive that does not match it or its class path.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from destination_s3_spark.engine.engine import Engine
from destination_s3_spark.engine.session import SparkSettings
from destination_s3_spark.engine.startup import shortcuts

ARCHIVE = Path(sys.prefix) / "share" / "destination-s3-spark" / "spark.jsa"
END_TIMEOUT_S = 120


def java_options(archive: Path = ARCHIVE) -> tuple[str, ...]:
    """Return the JVM option that names the archive; none if there is no archive or shortcuts are off."""
    return (f"-XX:SharedArchiveFile={archive}",) if shortcuts.enabled() and archive.exists() else ()


def record(archive: Path = ARCHIVE) -> None:
    """Run a session like a sync's and archive the classes it loaded. Raises OSError if no archive exists afterwards."""
    from pyspark import SparkContext  # noqa: PLC0415 (a sync that looks for the archive must not wait for pyspark)

    archive.parent.mkdir(parents=True, exist_ok=True)
    # The JVM would warn about each generated or never linked class. Those cannot be shared and need not be.
    options = (f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:cds=error")
    with tempfile.TemporaryDirectory() as scratch:
        engine = Engine(SparkSettings(1, 512, Path(scratch), {}, java_options=options))
        engine.run(str, [[1], [2]], lambda *_: None)
        gateway = SparkContext._gateway
        assert gateway is not None  # noqa: S101 (a job has just run)
        SparkContext.getOrCreate().stop()
        gateway.proc.stdin.close()  # the JVM ends when its stdin closes; a killed one would write no archive
        gateway.proc.wait(END_TIMEOUT_S)
    archive.stat()


if __name__ == "__main__":
    record()
