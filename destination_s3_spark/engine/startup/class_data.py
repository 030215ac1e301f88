"""Class data sharing for Spark's JVM: it maps the classes of an archive, parsed and verified, instead of reading them from jars.

The image and the `.venv` of `make install` have one, made by `python -m destination_s3_spark.engine.startup.class_data`. Where there is
none, the JVM starts as ever, and one that does not fit the JVM or its class path is left aside by the JVM itself.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from destination_s3_spark.engine.session import Engine, SparkSettings
from destination_s3_spark.engine.startup import shortcuts

ARCHIVE = Path(sys.prefix) / "share" / "destination-s3-spark" / "spark.jsa"
END_TIMEOUT_S = 120


def java_options(archive: Path = ARCHIVE) -> tuple[str, ...]:
    """What tells the JVM to use the archive; nothing where there is none."""
    return (f"-XX:SharedArchiveFile={archive}",) if shortcuts.enabled() and archive.exists() else ()


def record(archive: Path = ARCHIVE) -> None:
    """Run a session like that of a sync and leave the classes it loaded in the archive. Raises OSError when there is none afterwards."""
    from pyspark import SparkContext  # noqa: PLC0415 (a sync that looks for the archive must not wait for pyspark)

    archive.parent.mkdir(parents=True, exist_ok=True)
    # The JVM would warn of each class that it generated or never linked: those cannot be shared, and need not be.
    options = (f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:cds=error")
    with tempfile.TemporaryDirectory() as scratch:
        engine = Engine(SparkSettings(1, 512, Path(scratch), {}, java_options=options))
        engine.run(str, [[1], [2]], lambda *_: None)
        gateway = SparkContext._gateway
        assert gateway is not None  # noqa: S101 (a job has just run)
        SparkContext.getOrCreate().stop()
        gateway.proc.stdin.close()  # the JVM ends when nobody speaks to it any more; killed, it would write nothing
        gateway.proc.wait(END_TIMEOUT_S)
    archive.stat()


if __name__ == "__main__":
    record()
