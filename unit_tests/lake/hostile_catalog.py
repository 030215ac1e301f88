"""An Iceberg REST catalog in a thread that keeps tables like others, and adds what its owner wishes to all that it answers."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableRequest
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import update_table_metadata

Json = dict[str, Any]


@dataclass
class HostileCatalog:
    """What the catalog answers, and what it was asked. An empty one is honest."""

    defaults: dict[str, Any] = field(default_factory=dict)
    overrides: dict[str, Any] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    """Properties of every table that is loaded, beside its own."""
    config: dict[str, str] = field(default_factory=dict)
    """The `config` beside every table, by which real servers hand out credentials."""
    location: str | None = None
    redirect: str | None = None
    """The URL to which every request is redirected."""
    tables: dict[str, TableMetadata] = field(default_factory=dict)
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    """Method, path and headers of each request."""
    uri: str = ""

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Json]:
        """Return status and body of the answer."""
        parts = [part for part in path.partition("?")[0].split("/") if part][1:]
        match method, parts:
            case "GET", ["config"]:
                return 200, {"defaults": self.defaults, "overrides": self.overrides}
            case _, ["namespaces", name]:
                return 200, {"namespace": [name], "properties": {}}
            case "POST", ["namespaces", _, "tables"]:
                asked = CreateTableRequest.model_validate_json(body)
                made = new_table_metadata(
                    asked.table_schema,
                    UNPARTITIONED_PARTITION_SPEC,
                    UNSORTED_SORT_ORDER,
                    asked.location or "s3://nowhere/t",
                    asked.properties,
                )
                self.tables[asked.name] = made
                return 200, self._told(asked.name)
            case "POST", ["namespaces", _, "tables", name]:
                commit = CommitTableRequest.model_validate_json(body)
                self.tables[name] = update_table_metadata(self.tables[name], commit.updates)
                return 200, self._told(name)
            case "DELETE", ["namespaces", _, "tables", name]:
                del self.tables[name]
                return 204, {}
            case "GET", ["namespaces", _, "tables", name] if name in self.tables:
                return 200, self._told(name)
        return 404, {"error": {"message": "no such table", "type": "NoSuchTableException", "code": 404}}

    def _told(self, name: str) -> Json:
        metadata: Json = json.loads(self.tables[name].model_dump_json(by_alias=True, exclude_none=True))
        metadata["properties"] |= self.properties
        metadata["location"] = self.location or metadata["location"]
        place = f"{metadata['location']}/_iceberg/00000-1.metadata.json"
        return {"metadata-location": place, "metadata": metadata, "config": self.config}


@contextmanager
def served(catalog: HostileCatalog, context: ssl.SSLContext | None = None) -> Iterator[HostileCatalog]:
    """Serve the catalog on a free port, over TLS if there is a context."""

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            catalog.requests.append((self.command, self.path, dict(self.headers)))
            if catalog.redirect:
                self.send_response(307)
                self.send_header("Location", catalog.redirect)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            status, answer = catalog.answer(self.command, self.path, body)
            data = json.dumps(answer).encode() if status != 204 and self.command != "HEAD" else b""
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = do_HEAD = _serve  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    catalog.uri = f"{'http' if context is None else 'https'}://127.0.0.1:{server.server_port}"
    try:
        yield catalog
    finally:
        server.shutdown()
        server.server_close()
