"""Into how many files the events of a merge go."""

import pytest

from destination_s3_spark.tables.capture.group import file_count

MB = 2**20


@pytest.mark.parametrize(
    ("megabytes", "cores", "files"),
    [
        pytest.param(1, 2, 1, id="too few for two files"),
        pytest.param(20, 16, 5, id="a core each as long as files are not too small"),
        pytest.param(60, 2, 2, id="a core each"),
        pytest.param(250, 2, 2, id="full files"),
        pytest.param(300, 2, 4, id="no core waits for the last file"),
        pytest.param(300, 8, 8, id="more cores than full files"),
        pytest.param(1000, 1, 8, id="one core"),
    ],
)
def test_events_become_as_many_files_for_each_core_none_above_the_target(megabytes: int, cores: int, files: int) -> None:
    assert file_count(megabytes * MB, 128 * MB, cores, 4 * MB) == files
