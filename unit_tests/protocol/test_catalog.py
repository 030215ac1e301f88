from __future__ import annotations

import json
from typing import Any

import pytest

from destination_s3_spark.errors import ConfigError
from destination_s3_spark.protocol.catalog import JOB_VARIABLES, DestinationSyncMode, Stream, parse_catalog
from destination_s3_spark.stream_id import StreamId
from unit_tests.cases import each

SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}}


def configured(
    name: str = "users", namespace: str | None = "shop", described: dict[str, Any] | None = None, **fields: Any
) -> dict[str, Any]:
    stream = {"name": name, "namespace": namespace, "json_schema": SCHEMA, "supported_sync_modes": ["full_refresh"]}
    generations = {"generation_id": 7, "minimum_generation_id": 0, "sync_id": 42}
    return {
        "stream": stream | (described or {}),
        "sync_mode": "incremental",
        "destination_sync_mode": "append",
        "primary_key": [],
        "cursor_field": [],
        **generations,
        **fields,
    }


def catalog(*streams: dict[str, Any]) -> bytes:
    return json.dumps({"streams": streams}).encode()


def error_of(text: bytes) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse_catalog(text)
    return caught.value


def test_a_stream_keeps_what_the_catalog_says_and_unknown_fields_are_ignored() -> None:
    parsed = parse_catalog(
        catalog(
            configured(
                destination_sync_mode="append_dedup",
                primary_key=[["id"], ["region"]],
                cursor_field=["updated_at"],
                minimum_generation_id=7,
                described={"is_resumable": True, "is_file_based": False, "x-new": {"a": 1}},
                include_files=False,
                destination_object_name=None,
            )
        )
    )
    assert parsed.streams == (
        Stream(
            id=StreamId("shop", "users"),
            json_schema=SCHEMA,
            sync_mode="incremental",
            destination_sync_mode=DestinationSyncMode.APPEND_DEDUP,
            primary_key=(("id",), ("region",)),
            cursor_field=("updated_at",),
            generation_id=7,
            minimum_generation_id=7,
            sync_id=42,
            is_resumable=True,
        ),
    )
    assert parsed.has_generations


@each("namespace", [None, ""])
def test_an_empty_namespace_is_none(namespace: str | None) -> None:
    assert parse_catalog(catalog(configured(namespace=namespace))).streams[0].id == StreamId(None, "users")


def test_streams_keep_their_order_and_names_may_repeat_in_other_namespaces() -> None:
    parsed = parse_catalog(catalog(configured(), configured(namespace="b"), configured(namespace=None)))
    assert [str(stream.id) for stream in parsed.streams] == ["shop.users", "b.users", "users"]


def test_a_catalog_without_any_generation_is_generation_0_and_its_end_of_input_completes() -> None:
    nothing: dict[str, Any] = {"generation_id": None, "minimum_generation_id": None, "sync_id": None}
    parsed = parse_catalog(catalog(configured(**nothing), configured("orders", **nothing)))
    assert [(s.generation_id, s.minimum_generation_id, s.sync_id) for s in parsed.streams] == [(0, 0, 0)] * 2
    assert not parsed.has_generations


ONES: dict[str, Any] = {"generation_id": 1, "minimum_generation_id": 1, "sync_id": 1}


def test_ids_that_are_all_1_outside_of_the_platform_are_no_generations() -> None:
    parsed = parse_catalog(catalog(configured(**ONES), configured("orders", **ONES)), {"AIRBYTE_ENTRYPOINT": "x", "DEPLOYMENT_MODE": "OSS"})
    assert [(s.generation_id, s.minimum_generation_id, s.sync_id) for s in parsed.streams] == [(1, 0, 0)] * 2
    assert not parsed.has_generations


@each("variable", JOB_VARIABLES)
def test_on_the_platform_they_are(variable: str) -> None:
    parsed = parse_catalog(catalog(configured(**ONES)), {variable: ""})
    assert [(s.generation_id, s.minimum_generation_id, s.sync_id) for s in parsed.streams] == [(1, 1, 1)]
    assert parsed.has_generations


@each("field", ONES)
def test_one_other_id_in_the_catalog_makes_all_count(field: str) -> None:
    other = ONES | ({"minimum_generation_id": 0} if field == "minimum_generation_id" else {field: 2, "minimum_generation_id": 0})
    parsed = parse_catalog(catalog(configured(**ONES), configured("orders", **other)), {})
    assert parsed.has_generations
    assert parsed.streams[0].generation_id == 1


@each("field", ["generation_id", "minimum_generation_id", "sync_id"])
def test_a_missing_id_names_stream_field_and_the_platform_version(field: str) -> None:
    error = error_of(catalog(configured(), configured("orders", **{field: None})))
    assert "'shop.orders'" in error.message
    assert field in error.message
    assert "needs platform 0.63.7+" in error.message
    assert error.stream == StreamId("shop", "orders")


def test_a_sync_id_alone_does_not_make_generations_optional() -> None:
    assert "0.63.7" in error_of(catalog(configured(generation_id=None, minimum_generation_id=None))).message


@each(
    ("changed", "named"),
    [
        ({"minimum_generation_id": 3}, "hybrid"),
        ({"generation_id": True}, "generation_id"),
        ({"generation_id": "7"}, "generation_id"),
        ({"sync_id": -1}, "sync_id"),
        ({"destination_sync_mode": "update"}, "'update'"),
        ({"destination_sync_mode": "soft_delete"}, "'soft_delete'"),
        ({"destination_sync_mode": "overwrite_dedup"}, "'overwrite_dedup'"),
        ({"destination_sync_mode": None}, "missing"),
        ({"destination_sync_mode": ["append"]}, "destination_sync_mode"),
        ({"include_files": True}, "include_files"),
        ({"described": {"is_file_based": True}, "include_files": True}, "include_files"),
        ({"described": {"json_schema": None}}, "json_schema"),
        ({"described": {"json_schema": []}}, "json_schema"),
        ({"primary_key": "id"}, "primary_key"),
        ({"primary_key": ["id"]}, "primary_key"),
        ({"cursor_field": "id"}, "cursor_field"),
        ({"destination_sync_mode": "append_dedup"}, "primary_key"),
        ({"destination_sync_mode": "append_dedup", "primary_key": [[]]}, "primary_key"),
        ({"destination_sync_mode": "append_dedup", "primary_key": [["a", "b"]]}, "'a.b'"),
        ({"destination_sync_mode": "append_dedup", "primary_key": [["a"]], "cursor_field": ["b", "c"]}, "'b.c'"),
    ],
)
def test_what_is_not_supported_is_refused_by_stream_and_field(changed: dict[str, Any], named: str) -> None:
    error = error_of(catalog(configured("orders"), configured(**changed)))
    assert "'shop.users'" in error.message
    assert named in error.message


@each("files", [{}, {"include_files": None}, {"include_files": False}])
def test_a_file_based_stream_without_its_files_is_like_any_other(files: dict[str, Any]) -> None:
    file_based = parse_catalog(catalog(configured(described={"is_file_based": True}, **files)))
    assert file_based == parse_catalog(catalog(configured()))


def test_a_nested_key_is_no_matter_to_append() -> None:
    stream = parse_catalog(catalog(configured(primary_key=[["a", "b"]], cursor_field=["c", "d"]))).streams[0]
    assert (stream.primary_key, stream.cursor_field) == ((("a", "b"),), ("c", "d"))


def test_a_field_that_is_twice_in_the_key_is_one() -> None:
    fields: dict[str, Any] = {"destination_sync_mode": "append_dedup", "primary_key": [["id"], ["region"], ["id"]]}
    assert parse_catalog(catalog(configured(**fields))).streams[0].primary_key == (("id",), ("region",))


def test_a_stream_that_is_there_twice_is_refused_also_when_only_the_spelling_of_no_namespace_differs() -> None:
    error = error_of(catalog(configured(namespace=""), configured(namespace=None)))
    assert "'users'" in error.message
    assert "twice" in error.message


@each("text", [b"", b"{", b"[]", b"{}", b'{"streams": {}}', b"\xff", b"[" * 100_000, b'"streams"'], ids=lambda text: ascii(text[:20]))
def test_what_is_no_catalog_says_so(text: bytes) -> None:
    assert "--catalog" in error_of(text).message


def test_no_streams_is_refused() -> None:
    assert "no streams" in error_of(b'{"streams": []}').message


@each("entry", [1, {}, {"stream": None}, {"stream": {}}, {"stream": {"name": 1}}])
def test_a_nameless_stream_is_named_by_its_number(entry: Any) -> None:
    assert "number 2" in error_of(catalog(configured(), entry)).message


def test_a_namespace_that_is_no_text_is_refused() -> None:
    assert "namespace" in error_of(catalog(configured(described={"namespace": 5}))).message


@each("levels", [20_000, 40_000])
def test_a_schema_that_is_nested_too_deep_to_be_read_names_its_stream(levels: int) -> None:
    sound, deep = configured("sound"), configured("deep", described={"json_schema": "DEEP"})
    schema = '{"properties":{"inner":' * levels + '{"type":"string"}' + "}}" * levels
    error = error_of(catalog(sound, deep).replace(b'"DEEP"', schema.encode()))
    assert error.stream == StreamId("shop", "deep")
    assert "'shop.deep', json_schema: is nested too deep" in error.message


@each("text", ["[" * 9_999, '{"streams":' + "[" * 9_999 + "]" * 9_999 + "}", '{"a":' * 9_999 + "1" + "}" * 9_999])
def test_what_is_nested_too_deep_and_no_catalog_is_refused(text: str) -> None:
    assert "nested too deep" in error_of(text.encode()).message
