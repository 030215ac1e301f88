"""A small HTTP API, and the manifest with which Airbyte's low-code source reads it: `people` in full, page by page; `events` by time."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from unit_tests.lake.messages import JsonObject

PAGE = 50
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
START = datetime(2026, 1, 1, tzinfo=UTC)
END = START + timedelta(days=30)
SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "name": {"type": "string"}, "updated_at": {"type": "string", "format": "date-time"}},
}


@dataclass
class Api:
    """A running API. `people` and `events` are how many there are; `fails_after` answers, all others are errors."""

    address: str = ""
    people: int = 0
    events: int = 0
    fails_after: int | None = None
    answers: int = 0

    def rows(self, path: str, since: str, until: str, page: int) -> list[JsonObject]:
        """One page. `since` is exclusive, so that a read that goes on sends no row again."""
        rows = [row(number) for number in range(self.people if path == "/people" else self.events)]
        if since:
            rows = [one for one in rows if since < one["updated_at"] <= until]
        return rows[page * PAGE : (page + 1) * PAGE]


def row(number: int) -> JsonObject:
    """Four rows a day, each at a time of day that no other day has: slices of whole days begin at none of them."""
    at = START + timedelta(days=number // 4, hours=1 + 5 * (number % 4), seconds=1 + number)
    return {"id": number, "name": f"name {number}", "updated_at": at.strftime(TIME_FORMAT)}


@contextmanager
def running_api() -> Iterator[Api]:
    """Serve on a free port of this machine."""
    api = Api()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            api.answers += 1
            if api.fails_after is not None and api.answers > api.fails_after:
                self.send_response(403)  # which the source does not try again
                self.end_headers()
                return
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            found = api.rows(parts.path, query.get("since", ""), query.get("until", ""), int(query.get("page", 0)))
            body = json.dumps({"rows": found}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    api.address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield api
    server.shutdown()
    server.server_close()


def manifest(address: str) -> JsonObject:
    """The configuration of source-declarative-manifest: one request at a time, so that every read comes in the same order."""
    cursor = {
        "type": "DatetimeBasedCursor",
        "cursor_field": "updated_at",
        "datetime_format": TIME_FORMAT,
        "cursor_granularity": "PT1S",
        "step": "P5D",
        "start_datetime": START.strftime(TIME_FORMAT),
        "end_datetime": END.strftime(TIME_FORMAT),
        "start_time_option": _parameter("since"),
        "end_time_option": _parameter("until"),
    }
    streams = [_stream("people", address), {**_stream("events", address), "incremental_sync": cursor}]
    source = {
        "version": "6.0.0",
        "type": "DeclarativeSource",
        "check": {"type": "CheckStream", "stream_names": ["people"]},
        "concurrency_level": {"type": "ConcurrencyLevel", "default_concurrency": 1},
        "streams": streams,
        "spec": {"type": "Spec", "connection_specification": {"type": "object", "properties": {}}},
    }
    return {"__injected_declarative_manifest": source}


def _stream(name: str, address: str) -> dict[str, Any]:
    paginator = {
        "type": "DefaultPaginator",
        "page_token_option": _parameter("page"),
        "pagination_strategy": {"type": "PageIncrement", "page_size": PAGE},
    }
    retriever = {
        "type": "SimpleRetriever",
        "requester": {"type": "HttpRequester", "url_base": address, "path": f"/{name}", "http_method": "GET"},
        "record_selector": {"type": "RecordSelector", "extractor": {"type": "DpathExtractor", "field_path": ["rows"]}},
        "paginator": paginator,
    }
    schema = {"type": "InlineSchemaLoader", "schema": SCHEMA}
    return {"type": "DeclarativeStream", "name": name, "primary_key": ["id"], "retriever": retriever, "schema_loader": schema}


def _parameter(name: str) -> JsonObject:
    return {"type": "RequestOption", "inject_into": "request_parameter", "field_name": name}
