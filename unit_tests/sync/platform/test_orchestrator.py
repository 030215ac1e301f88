"""The platform's rules, one by one: what it forwards, adds and closes, and what each attempt changes of state and generations."""

from __future__ import annotations

import json
from typing import Any

import pytest

from unit_tests.lake.messages import JsonObject, catalog, line
from unit_tests.lake.shop import complete, state, status, stream, users
from unit_tests.sync.platform.connection import Connection, Definition, JobKind
from unit_tests.sync.platform.orchestrator import Orchestrator, StreamName, name_of, stream_state
from unit_tests.sync.platform.saved_state import SavedState

USERS: StreamName = ("shop", "users")
ORDERS: StreamName = ("shop", "orders")
EMPTY_USERS = stream_state(USERS, {})
GLOBAL = line({"type": "STATE", "state": {"type": "GLOBAL", "global": {"shared_state": {"lsn": 1}, "stream_states": []}}})


def configured(name: str, sync_mode: str, mode: str, *, resumable: bool | None = None) -> JsonObject:
    entry = stream(name, mode=mode, generation=None, minimum_generation=None, sync_id=None)
    return {**entry, "sync_mode": sync_mode, "stream": {**entry["stream"], "is_resumable": resumable}}


FULL = configured("users", "full_refresh", "overwrite")
RESUMABLE = configured("users", "full_refresh", "overwrite", resumable=True)
INCREMENTAL = configured("orders", "incremental", "append", resumable=True)


def end(streams: list[JsonObject], sent: list[bytes], *, supports_refreshes: bool = False, exit_code: int = 0) -> list[bytes]:
    orchestrator = Orchestrator(catalog(*streams), supports_refreshes)
    for message in sent:
        orchestrator.take(message)
    return orchestrator.end(exit_code)


def test_records_and_states_go_on_as_they_are_and_nothing_else_does() -> None:
    orchestrator = Orchestrator(catalog(FULL), supports_refreshes=True)
    sent = [*users([1]), state(1), GLOBAL]
    noise = [
        status("STARTED"),
        complete(),
        line({"type": "LOG", "log": {"level": "INFO", "message": "x"}}),
        line({"type": "CONTROL"}),
        b"text\n",
        b"7\n",
    ]
    assert [orchestrator.take(one) for one in [*sent, *noise]] == [*sent, *[None] * len(noise)]


@pytest.mark.parametrize("supports_refreshes", [True, False])
def test_nothing_is_added_for_a_source_that_failed(supports_refreshes: bool) -> None:
    assert end([FULL, INCREMENTAL], users([1]), supports_refreshes=supports_refreshes, exit_code=1) == []


def test_full_refreshes_without_a_state_get_an_empty_one_unless_they_are_resumable() -> None:
    assert end([FULL, INCREMENTAL], users([1])) == [EMPTY_USERS]
    assert end([FULL, INCREMENTAL], [state(1)]) == []
    assert end([FULL, INCREMENTAL], [state(1, "orders")]) == [EMPTY_USERS]
    assert end([RESUMABLE, INCREMENTAL], users([1])) == []


@pytest.mark.parametrize("kind", ["GLOBAL", "LEGACY"])
def test_one_state_that_is_of_no_stream_and_nothing_is_added(kind: str) -> None:
    other = GLOBAL if kind == "GLOBAL" else line({"type": "STATE", "state": {"type": "LEGACY", "data": {}}})
    assert end([FULL], [other]) == []


def test_statuses_come_for_all_streams_behind_the_added_states_where_refreshes_are_supported() -> None:
    assert end([FULL, INCREMENTAL], [], supports_refreshes=True) == [EMPTY_USERS, complete(), complete("orders")]


def ids(job_catalog: JsonObject) -> list[tuple[Any, ...]]:
    fields = ("destination_sync_mode", "generation_id", "minimum_generation_id", "sync_id")
    return [tuple(entry[name] for name in fields) for entry in job_catalog["streams"]]


def test_a_custom_connector_gets_nulls_and_the_modes_it_knows() -> None:
    streams = [FULL, {**FULL, "destination_sync_mode": "overwrite_dedup"}, INCREMENTAL]
    job = Connection(Definition.CUSTOM, streams).start_job()
    job.start_attempt()
    assert ids(job.catalog()) == [("overwrite", None, None, None)] * 2 + [("append", None, None, None)]


def test_a_registry_entry_gets_generations_that_replace_instead_of_overwrite() -> None:
    streams = [FULL, INCREMENTAL]
    connection = Connection(Definition.REGISTRY, streams)
    for number in (1, 2):
        job = connection.start_job()
        job.start_attempt()
        assert ids(job.catalog()) == [("append", number, number, number), ("append", 0, 0, number)]
    deduplicated = {**FULL, "destination_sync_mode": "overwrite_dedup"}
    (only,) = ids(Connection(Definition.REGISTRY, [deduplicated]).start_job().catalog())
    assert only[0] == "append_dedup"


def with_states(definition: Definition, *streams: JsonObject) -> Connection:
    connection = Connection(definition, list(streams))
    connection.start_job().start_attempt()
    for entry in streams:
        connection.state.take(json.loads(stream_state(name_of(entry), {"next": 1}))["state"])
    return connection


@pytest.mark.parametrize("definition", list(Definition))
def test_a_new_job_reads_full_refreshes_from_the_start(definition: Definition) -> None:
    connection = with_states(definition, RESUMABLE, INCREMENTAL)
    connection.start_job().start_attempt()
    assert [message["stream"]["stream_descriptor"]["name"] for message in connection.state.messages] == ["orders"]
    assert connection.generations == {USERS: 2}


@pytest.mark.parametrize(("definition", "resumes"), [(Definition.CUSTOM, False), (Definition.REGISTRY, True)])
def test_another_attempt_resumes_what_can_be_resumed_only_where_refreshes_are_supported(definition: Definition, resumes: bool) -> None:
    connection = Connection(definition, [RESUMABLE, INCREMENTAL])
    job = connection.start_job()
    job.start_attempt()
    for stream_name in (USERS, ORDERS):
        connection.state.take(json.loads(stream_state(stream_name, {"next": 1}))["state"])
    job.start_attempt()
    assert (connection.state.blob(USERS), connection.state.blob(ORDERS)) == ({"next": 1} if resumes else None, {"next": 1})
    assert connection.generations[USERS] == (1 if resumes else 2)


@pytest.mark.parametrize("definition", list(Definition))
def test_another_attempt_reads_what_cannot_be_resumed_from_the_start_in_a_generation_of_its_own(definition: Definition) -> None:
    connection = Connection(definition, [FULL, INCREMENTAL])
    job = connection.start_job()
    job.start_attempt()
    connection.state.take(json.loads(EMPTY_USERS)["state"])
    job.start_attempt()
    assert (connection.state.messages, connection.generations) == ([], {USERS: 2})


def test_a_refresh_begins_anew_once_and_needs_support() -> None:
    connection = with_states(Definition.REGISTRY, INCREMENTAL)
    job = connection.start_job(JobKind.TRUNCATE_REFRESH)
    job.start_attempt()
    connection.state.take(json.loads(stream_state(ORDERS, {"next": 2}))["state"])
    job.start_attempt()
    assert (connection.state.blob(ORDERS), ids(job.catalog())) == ({"next": 2}, [("append", 1, 1, 2)])
    kept = connection.start_job(JobKind.REFRESH)
    kept.start_attempt()
    assert ids(kept.catalog()) == [("append", 2, 0, 3)]
    with pytest.raises(ValueError, match="does not support refreshes"):
        Connection(Definition.CUSTOM, [INCREMENTAL]).start_job(JobKind.REFRESH)


def test_a_clear_of_some_streams_sends_a_null_state_for_each_and_knows_no_others() -> None:
    connection = with_states(Definition.REGISTRY, RESUMABLE, INCREMENTAL)
    job = connection.start_job(JobKind.CLEAR, {USERS})
    job.start_attempt()
    assert job.empty_source() == [stream_state(USERS, None)]
    assert ids(job.catalog()) == [("append", 2, 2, 2)]


@pytest.mark.parametrize("definition", list(Definition))
def test_a_clear_of_all_streams_sends_no_state_because_there_is_none_any_more(definition: Definition) -> None:
    connection = with_states(definition, RESUMABLE, INCREMENTAL)
    job = connection.start_job(JobKind.CLEAR)
    job.start_attempt()
    assert job.empty_source() == []
    assert {(entry["sync_mode"], entry["destination_sync_mode"]) for entry in job.catalog()["streams"]} == {
        ("full_refresh", "overwrite" if definition is Definition.CUSTOM else "append")
    }
    assert end(job.catalog()["streams"], []) == []
    assert len(end(job.catalog()["streams"], [], supports_refreshes=True)) == 2


def global_state(shared: JsonObject | None, **blobs: JsonObject | None) -> JsonObject:
    entries = [{"stream_descriptor": {"name": name, "namespace": "shop"}, "stream_state": blob} for name, blob in blobs.items()]
    return {"type": "GLOBAL", "global": {"shared_state": shared, "stream_states": entries}}


def test_a_clear_under_a_global_state_sends_one_with_nulls() -> None:
    connection = Connection(Definition.CUSTOM, [RESUMABLE, INCREMENTAL])
    connection.state.take(global_state({"lsn": 1}, users={"next": 1}, orders={"next": 1}))
    job = connection.start_job(JobKind.CLEAR, {USERS})
    job.start_attempt()
    (sent,) = map(json.loads, job.empty_source())
    assert sent["state"] == global_state({"lsn": 1}, orders={"next": 1}, users=None)


def test_the_shared_state_goes_with_the_last_stream() -> None:
    saved = SavedState()
    saved.take(global_state({"lsn": 1}, users={"next": 1}))
    saved.delete({ORDERS}, {USERS, ORDERS})
    assert saved.messages == [global_state({"lsn": 1}, users={"next": 1})]
    saved.delete({USERS}, {USERS, ORDERS})
    assert saved.messages == []


def test_a_null_state_takes_a_stream_off_and_another_kind_is_refused() -> None:
    saved = SavedState()
    saved.take(json.loads(state(1))["state"])
    with pytest.raises(ValueError, match="GLOBAL"):
        saved.take(global_state(None))
    saved.take(json.loads(stream_state(USERS, None))["state"])
    assert saved.messages == []
    saved.take(global_state({"lsn": 1}))
    assert saved.messages == [global_state({"lsn": 1})]
