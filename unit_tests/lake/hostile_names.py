"""Streams with hostile names: what folders their tables get, on any store."""

from __future__ import annotations

from itertools import permutations
from pathlib import PurePosixPath

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


def expect_folders_of_their_own(lake: Lake) -> None:
    """Sync all of these streams, and look where their tables are."""
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
