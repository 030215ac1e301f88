from __future__ import annotations

from destination_s3_spark.change_log.manifest import GroupName, LogKind, LogName
from unit_tests.cases import each

TOKEN = "12345678900000000300000007"


def test_a_name_reads_back() -> None:
    name = LogName(4_711, TOKEN, 3, LogKind.CHANGES)

    assert name.file_name(".csv.gz") == f"00000000000000004711-{TOKEN}-00003-changes.csv.gz"
    assert LogName.parse(name.file_name(".csv.gz")) == name
    assert name.group == GroupName.of_manifest(name.group.manifest) == GroupName(4_711, TOKEN)


def test_names_sort_in_log_order_and_a_groups_manifest_behind_its_files() -> None:
    later = str(int(TOKEN) + 1)
    names = [
        *(LogName(9, TOKEN, part, LogKind.SNAPSHOT).file_name(".parquet") for part in (0, 1, 10, 99_999)),
        GroupName(9, TOKEN).manifest,
        LogName(9, later, 0, LogKind.UPSERTS).file_name(".parquet"),
        LogName(10, later, 0, LogKind.CHANGES).file_name(".parquet"),
        LogName(10**15, later, 0, LogKind.CHANGES).file_name(".parquet"),
    ]

    assert sorted(names) == names


@each("name", ["", "x", f"9-{TOKEN}-00000-changes.csv.gz", f"00000000000000000009-{TOKEN}-00000-deltas.csv.gz"])
def test_other_names_are_none_of_ours(name: str) -> None:
    assert LogName.parse(name) is None
    assert GroupName.of_manifest(name) is None


def test_a_manifest_is_no_data_file_and_the_other_way_round() -> None:
    assert LogName.parse(GroupName(9, TOKEN).manifest) is None
    assert GroupName.of_manifest(LogName(9, TOKEN, 0, LogKind.CHANGES).file_name(".jsonl.gz")) is None
