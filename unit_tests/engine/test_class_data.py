from pathlib import Path

from destination_s3_spark.engine.startup.class_data import java_options


def test_an_archive_that_is_there_is_used(tmp_path: Path) -> None:
    archive = tmp_path / "spark.jsa"
    archive.touch()
    assert java_options(archive) == (f"-XX:SharedArchiveFile={archive}",)


def test_without_an_archive_the_jvm_starts_as_ever(tmp_path: Path) -> None:
    assert java_options(tmp_path / "spark.jsa") == ()
