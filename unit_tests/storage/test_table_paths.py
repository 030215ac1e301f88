from __future__ import annotations

import random
from datetime import UTC, datetime
from itertools import combinations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from destination_s3_spark.errors import ConfigError
from destination_s3_spark.storage.paths import PathTemplate
from destination_s3_spark.storage.table_paths import (
    changes_root,
    history_root,
    internal_root,
    overlaps,
    raw_table_name,
    require_folders,
    resolve_roots,
    root_flaw,
    table_id,
)
from destination_s3_spark.stream_id import StreamId
from unit_tests.cases import each
from unit_tests.sampling import examples

START = datetime(2020, 1, 2, tzinfo=UTC)
HOSTILE = [
    "a",
    "A",
    "_",
    "__",
    "/",
    ".",
    "..",
    "a/b",
    "é",
    "e\u0301",
    "%2f",
    "raw",
    "stream",
    "_raw__stream_",
    "\0",
    "x" * 300,
    "airbyte_internal",
    "😀",
    "",
]
NAMES = st.lists(st.sampled_from(HOSTILE), max_size=3).map("".join)
STREAMS = st.builds(StreamId, st.none() | NAMES, NAMES)


def template(path: str | None = None, bucket_path: str = "lake") -> PathTemplate:
    return PathTemplate(bucket_path, path, None, START, 1)


def same(one: StreamId, other: StreamId) -> bool:
    return StreamId.of(one.namespace, one.name) == StreamId.of(other.namespace, other.name)


@each(
    ("namespace", "name", "expected"),
    [
        ("a", "b", "a_raw__stream_b"),
        ("aaa", "bbb_abab_ccc", "aaa_raw__stream_bbb_abab_ccc"),
        ("aaa_abab_bbb", "ccc", "aaa_abab_bbb_raw__stream_ccc"),
        ("public__ab", "abab_users", "public__ab_raw___stream_abab_users"),
        (None, "users", "_raw__stream_users"),
    ],
)
def test_raw_names_are_destinations_v2s(namespace: str | None, name: str, expected: str) -> None:
    assert raw_table_name(StreamId(namespace, name)) == expected
    assert table_id(StreamId(namespace, name)) == expected


@given(STREAMS, STREAMS)
@example(StreamId(None, "a^b"), StreamId(None, "a_b"))
@example(StreamId(None, "a/b"), StreamId(None, "a_b"))
@example(StreamId("a_", "_b"), StreamId("a", "__b"))
@example(StreamId("a", "_b"), StreamId("a_", "b"))
def test_table_ids_are_one_safe_segment_and_injective(one: StreamId, other: StreamId) -> None:
    for stream in (one, other):
        assert "/" not in table_id(stream)
        assert table_id(stream) not in {"", ".", ".."}
        assert len(table_id(stream).encode()) <= 209
    assert (table_id(one) == table_id(other)) == same(one, other)


def test_a_name_that_imitates_a_hashed_id_gets_one_of_its_own() -> None:
    hashed = table_id(StreamId(None, "a^b"))
    imitation = hashed.removeprefix("_raw__stream_")
    assert table_id(StreamId(None, imitation)) != hashed


def test_the_internal_root_is_below_the_bucket_path() -> None:
    assert internal_root(template(), StreamId("n", "s")) == "lake/airbyte_internal/n_raw__stream_s/"
    assert internal_root(template(bucket_path=""), StreamId(None, "s")) == "airbyte_internal/_raw__stream_s/"


def test_ordinary_streams_get_exactly_the_templates_folders() -> None:
    streams = [StreamId("n1", "users"), StreamId("n2", "users"), StreamId(None, "orders")]
    assert resolve_roots(streams, template()) == {
        StreamId("n1", "users"): "lake/n1/users/",
        StreamId("n2", "users"): "lake/n2/users/",
        StreamId(None, "orders"): "lake/orders/",
    }


def test_two_names_of_one_folder_are_kept_apart_by_a_hash_and_the_exact_name_keeps_the_folder() -> None:
    roots = resolve_roots([StreamId("n", "a^b"), StreamId("n", "a_b")], template())
    assert roots[StreamId("n", "a_b")] == "lake/n/a_b/"
    assert roots[StreamId("n", "a^b")].startswith("lake/n/a_b_")
    assert len(roots[StreamId("n", "a^b")]) == len("lake/n/a_b_12345678/")


def test_of_nested_folders_the_outer_one_moves() -> None:
    roots = resolve_roots([StreamId(None, "n1"), StreamId("n1", "a"), StreamId("n1", "b")], template())
    assert roots[StreamId("n1", "a")] == "lake/n1/a/"
    assert roots[StreamId("n1", "b")] == "lake/n1/b/"
    assert roots[StreamId(None, "n1")].startswith("lake/n1_")
    assert roots[StreamId(None, "n1")].count("/") == 2


def test_a_recorded_root_stays_and_the_newcomer_moves() -> None:
    recorded = {StreamId(None, "n1"): "lake/n1/", StreamId("gone", "table"): "lake/gone/table/"}
    roots = resolve_roots([StreamId(None, "n1"), StreamId("n1", "a"), StreamId("gone", "table/x")], template(), recorded)
    assert roots[StreamId(None, "n1")] == "lake/n1/"
    assert roots[StreamId("n1", "a")].startswith("lake/n1_")
    assert roots[StreamId("n1", "a")].endswith("/a/")
    assert roots[StreamId("gone", "table/x")].startswith("lake/gone/table_")


@examples(150)
@given(st.lists(STREAMS, max_size=8), st.randoms(use_true_random=False))
def test_roots_are_apart_stable_and_independent_of_the_catalogs_order(streams: list[StreamId], shuffler: random.Random) -> None:
    streams = list({StreamId.of(stream.namespace, stream.name): None for stream in streams})
    roots = resolve_roots(streams, template())
    shuffled = streams.copy()
    shuffler.shuffle(shuffled)
    assert resolve_roots(shuffled, template()) == roots
    assert resolve_roots(streams, template(), roots) == roots
    for one, other in combinations([*roots.values(), "lake/airbyte_internal/", "lake/airbyte_changes/"], 2):
        assert not one.startswith(other)
        assert not other.startswith(one)
    assert all(root.startswith("lake/") for root in roots.values())
    assert overlaps(roots, template()) == {}


@examples(60)
@given(st.lists(STREAMS, min_size=1, max_size=6, unique=True), st.integers(0, 6))
def test_a_catalog_that_grows_keeps_the_roots_it_has(streams: list[StreamId], known: int) -> None:
    streams = list({StreamId.of(stream.namespace, stream.name): None for stream in streams})
    first = resolve_roots(streams[:known], template())
    grown = resolve_roots(streams, template(), first)
    assert {stream: grown[stream] for stream in first} == first
    assert overlaps(grown, template()) == {}


def test_streams_a_template_does_not_tell_apart_share_a_root_and_are_reported() -> None:
    roots = resolve_roots([StreamId("a", "x"), StreamId("b", "x")], template("${STREAM_NAME}/"))
    assert set(roots.values()) == {"lake/x/"}
    assert overlaps(roots, template("${STREAM_NAME}/")) == {StreamId("a", "x"): "stream 'b.x'", StreamId("b", "x"): "stream 'a.x'"}


def test_a_root_around_the_connectors_folders_is_reported() -> None:
    plain = template("")
    roots = resolve_roots([StreamId(None, "x")], template("${YEAR}_"))
    assert roots == {StreamId(None, "x"): "lake/"}
    assert overlaps(roots, plain) == {StreamId(None, "x"): "the folder 'airbyte_internal'"}


def test_a_variable_after_the_last_constant_folder_does_not_separate_roots() -> None:
    roots = resolve_roots([StreamId("n", "a"), StreamId("n", "b")], template("${NAMESPACE}/${STREAM_NAME}_${YEAR}_"))
    assert set(roots.values()) == {"lake/n/"}


@each("name", ["airbyte_internal", "airbyte_changes"])
def test_a_stream_named_like_a_folder_of_the_connector_moves_out_of_it(name: str) -> None:
    roots = resolve_roots([StreamId(name, "users"), StreamId(None, name)], template())
    assert not any(root.startswith(f"lake/{name}/") for root in roots.values())
    assert roots[StreamId(name, "users")].endswith("/users/")


def test_a_template_that_names_a_folder_of_the_connector_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="airbyte_internal"):
        require_folders(template("airbyte_internal/${STREAM_NAME}/"))


def test_folders_of_the_bucket_path_are_never_renamed() -> None:
    recorded = {StreamId("old", "shared"): "lake/"}
    roots = resolve_roots([StreamId("n", "new")], template(), recorded)
    assert roots == {StreamId("n", "new"): "lake/n/new/"}
    assert overlaps(roots | recorded, template())[StreamId("n", "new")] == "stream 'old.shared'"


def test_a_thousand_streams_resolve_quickly_and_apart() -> None:
    streams = [StreamId(f"n{i % 7}", f"s^{i}" if i % 2 else f"s_{i}") for i in range(1000)]
    roots = resolve_roots(streams, template())
    assert len(set(roots.values())) == 1000


def nobody_is_asked() -> dict[StreamId, str]:
    raise AssertionError("the other tables were looked up")


@given(st.lists(STREAMS, min_size=1, max_size=6), st.sampled_from([None, "${STREAM_NAME}/", "${NAMESPACE}/", "${YEAR}/"]))
def test_the_root_that_a_stream_gets_is_its_own_without_a_look_at_others(streams: list[StreamId], path: str | None) -> None:
    for stream, root in resolve_roots(streams, template(path), {}).items():
        assert root_flaw(root, stream, template(path), nobody_is_asked) is None


@each("root", ["", "finance/", "lakes/", "lake/airbyte_internal/", "lake/airbyte_changes/shop/", "lake/airbyte_internal/x/"])
def test_a_root_outside_of_the_bucket_path_or_in_a_folder_of_the_connector_is_nobodys(root: str) -> None:
    assert "is not in the bucket path" in (root_flaw(root, StreamId(None, "airbyte_internal"), template(), nobody_is_asked) or "")


def test_a_root_of_earlier_path_options_stays_unless_it_is_in_the_folder_of_another_table() -> None:
    mine, other, shared = StreamId(None, "users"), StreamId("shop", "orders"), StreamId(None, "events")
    roots = {mine: "lake/old/users/", other: "lake/shop/orders/", shared: "lake/"}

    assert root_flaw("lake/old/users/", mine, template(), lambda: roots) is None
    for root in ("lake/shop/orders/", "lake/shop/orders/_delta_log/"):
        assert "is in the folder of stream 'shop.orders'" in (root_flaw(root, mine, template(), lambda: roots) or "")
    # A folder that tables share, and one that its own table has from earlier options, are nobody's alone.
    assert root_flaw("lake/2025/", mine, template("${YEAR}/"), lambda: roots) is None
    assert root_flaw("lake/anywhere/deep/", mine, template(), lambda: roots) is None


@each("name", ["_delta_log", "_iceberg", "_symlink_format_manifest"])
def test_no_history_lies_where_those_of_another_stream_are_published(name: str) -> None:
    template = PathTemplate("lake", None, None, START, 0)
    around = history_root(template, StreamId(None, "shop"))
    assert not history_root(template, StreamId("shop", name)).startswith(f"{around}{name}/")
    assert history_root(template, StreamId("shop", "orders")) == f"{around}orders/"
    assert changes_root(template, StreamId("shop", name)) == f"lake/airbyte_changes/shop/{name}/"
