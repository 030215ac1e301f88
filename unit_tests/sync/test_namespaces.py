"""Where tables lie: every stream has a folder of its own, whatever its name and namespace look like."""

from __future__ import annotations

from itertools import permutations
from pathlib import PurePosixPath
from typing import Any

from unit_tests.lake.chain_reader import StreamName
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import catalog
from unit_tests.lake.outcome import BUCKET_PATH
from unit_tests.lake.shop import complete, state, stream, users

HOSTILE: list[StreamName] = [
    (None, "users"),
    ("", "nameless"),
    ("shop", "users"),
    ("Shop", "users"),
    ("shop", "Users"),
    ("shop", "users/archive"),
    ("shop/users", "archive"),
    ("shop", "us ers"),
    ("shop", "us\ters"),
    ("shop", "us_ers"),
    ("shop", "../../escape"),
    ("..", "."),
    ("shop", "%2e%2e%2f"),
    ("shop", "naïve"),
    ("shop", "nai\u0308ve"),
    ("shop", "日本語"),
    ("shop", "中国語"),
    ("shop", "airbyte_internal"),
    ("airbyte_internal", "raw"),
    ("99namespace", "users"),
    ("namespace_with_spécial_character", "users"),
    ("shop", "🛒" * 50),
    ("shop", "x" * 700),
    ("shop", "x" * 699 + "y"),
]


def test_hostile_names_get_folders_of_their_own(lake: Lake) -> None:
    entries, messages = [], []
    for number, (namespace, name) in enumerate(HOSTILE):
        entries.append(stream(name, namespace))
        messages += [*users([number], name, namespace), state(number, name, namespace), complete(name, namespace)]
    outcome = lake.connector().write(catalog(*entries), messages).expect_success()
    assert len(outcome.states) == len(HOSTILE)

    found = [[row["id"] for row in rows] for rows in lake.tables().values()]
    assert sorted(found) == [[number] for number in range(len(HOSTILE))]
    roots = [PurePosixPath(chain.events("Seed")[0]["finalRoot"]) for chain in lake.chains().values()]
    assert not [pair for pair in permutations(roots, 2) if pair[0].is_relative_to(pair[1])], "a table lies in another one's folder"
    assert all(key.startswith(f"{BUCKET_PATH}/") and len(key.encode()) <= 1024 and "/../" not in key for key in lake.bucket.list_keys())
    lake.verify_at_rest()


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
