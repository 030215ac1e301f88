"""Into how many files the events of a merge go."""

from destination_s3_spark.tables.capture.group import file_count
from unit_tests.cases import each

MB = 2**20


@each(
    ("megabytes", "cores", "files"),
    [
        (1, 2, 1),  # too few for two files
        (20, 16, 5),  # a core each as long as files are not too small
        (60, 2, 2),  # a core each
        (250, 2, 2),  # full files
        (300, 2, 4),  # no core waits for the last file
        (300, 8, 8),  # more cores than full files
        (1000, 1, 8),  # one core
    ],
)
def test_events_become_as_many_files_for_each_core_none_above_the_target(megabytes: int, cores: int, files: int) -> None:
    assert file_count(megabytes * MB, 128 * MB, cores, 4 * MB) == files
