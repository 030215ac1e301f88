"""The token in a data file's name, and the uploads a table may abort by it."""

from __future__ import annotations

import pytest

from destination_s3_spark.chain.files import Token, parse_token, table_number
from destination_s3_spark.chain.territory import OrphanUploads
from destination_s3_spark.errors import Bug
from unit_tests.cases import each
from unit_tests.chain.bucket import Bucket
from unit_tests.places import table_of

OWN = table_number(table_of("users").table_id)

TOKEN = Token(1234567890, 3, 17)
TEXT = "12345678900000000300000017"


@each(
    "key",
    [
        f"lake/2026_01_01_0-{TEXT}.parquet",
        f"a/b-{TEXT}.jsonl.gz",
        f"airbyte_changes/users/00000000000000000007-{TEXT}-00012-changes.csv.gz",
        f"airbyte_changes/users/00000000000000000007-{TEXT}-manifest.json",
        f"f-{TEXT}",
        f"-{TEXT}.csv",
        f"x-{'9' * 26}-{TEXT}.avro",
        f"lake/{TEXT}.csv",
        f"{TEXT}.csv",
    ],
)
def test_the_token_is_found_before_the_extension(key: str) -> None:
    assert str(TOKEN) == TEXT
    assert parse_token(key) == TOKEN


@each(
    "key",
    [
        "lake/file.parquet",
        f"lake/x{TEXT}.parquet",
        f"lake/f-{TEXT}/part.parquet",
        f"f-{TEXT}0.parquet",
        f"f-{TEXT[1:]}.csv",
        f"f-{TEXT}_.csv",
        f"f-{TEXT}-00012.csv",
        f"f-{TEXT}-other.json",
    ],
)
def test_other_names_have_no_token(key: str) -> None:
    assert parse_token(key) is None


def test_tokens_that_do_not_fit_are_refused() -> None:
    with pytest.raises(Bug, match="Out of file names"):
        str(Token(1, 1, 10**8))


def test_the_table_number_is_stable_and_has_ten_digits() -> None:
    assert table_number("users") == table_number("users") == 9341898502
    assert table_number("users") != table_number("orders")
    assert all(len(str(table_number(str(number)))) == 10 for number in range(1000))


def test_only_the_tables_own_older_uploads_are_aborted_and_the_list_is_made_once() -> None:
    store = Bucket()
    keys = {
        name: f"lake/{name}-{token}.parquet"
        for name, token in [("old", Token(OWN, 1, 1)), ("now", Token(OWN, 2, 1)), ("other", Token(8, 1, 1))]
    }
    another = f"lake/airbyte_internal/another/raw/f-{Token(OWN, 1, 3)}.parquet"
    apart = f"elsewhere/f-{Token(OWN, 1, 2)}"
    for key in (*keys.values(), "lake/foreign.parquet", another, apart):
        store.stage(key, b"")
    orphans, territory = OrphanUploads(store, "lake/"), table_of("users").territory("lake/")

    assert (orphans.abort(territory, 2), orphans.abort(table_of("others").territory("lake/"), 5)) == (1, 0)
    left = {upload.key for upload in store.uploads.values()}
    assert left == {keys["now"], keys["other"], "lake/foreign.parquet", another, apart}
    assert store.names().count("list_uploads") == 1
