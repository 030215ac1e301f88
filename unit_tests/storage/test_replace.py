from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from destination_s3_spark.storage.object_store import (
    ObjectChanged,
)
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import S3Settings
from unit_tests.storage.limits import ONCE

Refuse = Callable[..., Any]


def answering(refusal: Any, condition: Callable[[dict[str, str]], bool]) -> Callable[[Any], Any]:
    """A store that answers like this to puts whose condition is so."""
    return lambda call: refusal if call.action == "PutObject" and condition(call.headers) else call.forward()


STORES = {
    "wants the ETag quoted": ((412, "PreconditionFailed"), lambda headers: headers.get("if-match", '"')[0] != '"'),
    "wants the ETag bare": ((412, "PreconditionFailed"), lambda headers: headers.get("if-match", "").startswith('"')),
    "does not take a quoted ETag for a value": ((400, "InvalidArgument"), lambda headers: headers.get("if-match", "").startswith('"')),
    "does not know If-Match": ((501, "NotImplemented"), lambda headers: "if-match" in headers),
    "takes no condition": ((501, "NotImplemented"), lambda headers: {"if-match", "if-none-match"} & headers.keys()),
    "refuses conditions it does not know": ((400, "InvalidRequest"), lambda headers: "if-match" in headers),
    "finds no ETag equal": ((412, "PreconditionFailed"), lambda headers: "if-match" in headers),
}


@pytest.mark.parametrize("name", STORES)
def test_replace_works_on_a_store_that(name: str, behind_proxy: S3Store, s3_proxy: Any, s3_error: Refuse) -> None:
    refusal, condition = STORES[name]
    s3_proxy.script = answering(s3_error(*refusal), condition)
    etag = behind_proxy.replace("k", b"1", {}, None)
    behind_proxy.replace("k", b"2", {}, etag)
    assert behind_proxy.get("k") == b"2"


@pytest.mark.parametrize("name", ["wants the ETag quoted", "wants the ETag bare"])
def test_a_store_that_can_tell_never_overwrites_what_others_wrote(
    name: str, behind_proxy: S3Store, s3_proxy: Any, s3_error: Refuse
) -> None:
    refusal, condition = STORES[name]
    etag = behind_proxy.replace("k", b"1", {}, None)
    behind_proxy.put("k", b"others'")
    s3_proxy.script = answering(s3_error(*refusal), condition)
    with pytest.raises(ObjectChanged):
        behind_proxy.replace("k", b"2", {}, etag)
    assert behind_proxy.get("k") == b"others'"


def test_a_replace_waits_for_another_write_in_flight(behind_proxy: S3Store, s3_proxy: Any, s3_error: Refuse) -> None:
    etag = behind_proxy.replace("k", b"1", {}, None)
    s3_proxy.fail("PutObject", s3_error(409, "ConditionalRequestConflict"), times=2)
    behind_proxy.replace("k", b"2", {}, etag)
    assert behind_proxy.get("k") == b"2"


def test_a_single_writer_replaces_without_a_condition(s3_settings: S3Settings, s3_proxy: Any) -> None:
    store = S3Store(replace(s3_settings, endpoint=s3_proxy.endpoint, single_writer=True, limits=ONCE))
    store.replace("k", b"1", {}, None)
    store.replace("k", b"2", {}, "unknown")
    assert s3_proxy.actions() == ["PutObject", "PutObject"]
