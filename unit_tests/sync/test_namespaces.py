"""Where tables lie: every stream has a folder of its own, whatever its name and namespace look like."""

from __future__ import annotations

from typing import Any

from unit_tests.lake.hostile_names import expect_folders_of_their_own
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import catalog
from unit_tests.lake.outcome import BUCKET_PATH
from unit_tests.lake.shop import complete, state, stream, users


def test_hostile_names_get_folders_of_their_own(lake: Lake) -> None:
    expect_folders_of_their_own(lake)


def test_a_table_keeps_its_folder_when_a_rival_name_comes_first(lake: Lake) -> None:
    connector = lake.connector()
    rivals = [("shop", "us ers"), ("shop", "us\ters")]
    for number, order in enumerate((rivals, rivals[::-1])):
        messages = [line for namespace, name in order for line in (*users([number], name, namespace), complete(name, namespace))]
        connector.write(catalog(*(stream(name, namespace) for namespace, name in order)), messages).expect_success()
    assert [lake.ids(rival) for rival in rivals] == [[0, 1], [0, 1]]
    lake.verify_at_rest()


def test_a_path_format_of_the_user_is_followed(lake: Lake) -> None:
    options: dict[str, Any] = {
        "s3_path_format": "by-stream/${STREAM_NAME}/${NAMESPACE}/",
        "file_name_pattern": "part_{sync_id}_{part_number}{format_extension}",
    }
    lake.connector(**options).write(catalog(stream()), [*users([1]), state(1), complete()]).expect_success()
    (key,) = lake.chains()["shop", "users"].final_keys
    assert key.startswith(f"{BUCKET_PATH}/by-stream/users/shop/part_7_")
    assert lake.ids() == [1]
    lake.verify_at_rest()
