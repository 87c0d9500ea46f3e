"""A schema registry: the part of Confluent's HTTP API with which readers look up schemas."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

CONTENT = "application/vnd.schemaregistry.v1+json"


@dataclass
class RegistryStub:
    """Serves on its own port while it is open; with ``fails_with`` every response is an error."""

    user_info: str = ""
    fails_with: int | None = None
    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    versions: dict[tuple[str, int], int] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    port: int = 0

    def register(
        self,
        schema_id: int,
        schema: Any,
        kind: str = "AVRO",
        references: Sequence[tuple[str, str, int]] = (),
        subject: str = "",
    ) -> None:
        """Add a schema; ``references`` are (name, subject, version)."""
        entry: dict[str, Any] = {"schema": json.dumps(schema), "id": schema_id}
        if kind != "AVRO":
            entry["schemaType"] = kind
        if references:
            entry["references"] = [
                {"name": name, "subject": other, "version": version}
                for name, other, version in references
            ]
        self.schemas[schema_id] = entry
        if subject:
            self.versions[subject, 1] = schema_id

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> RegistryStub:
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), self._handler())
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, path: str, authorization: str) -> tuple[int, Any]:
        """Return status and body for a request."""
        self.asked.append(path)
        if self.fails_with is not None:
            return self.fails_with, {"error_code": self.fails_with, "message": "out of order"}
        wanted = "Basic " + base64.b64encode(self.user_info.encode()).decode()
        if self.user_info and authorization != wanted:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        match path.partition("?")[0].strip("/").split("/"):
            case ["schemas", "ids", number]:
                found = self.schemas.get(int(number))
                return _found(found, 40403, f"Schema {number} not found")
            case ["subjects", subject, "versions", version]:
                schema_id = self.versions.get((subject, int(version)), -1)
                known = self.schemas.get(schema_id)
                found = known and known | {"subject": subject, "version": int(version)}
                return _found(found, 40401, f"Subject '{subject}' not found.")
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = stub.answer(self.path, self.headers.get("Authorization", ""))
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", CONTENT)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None: ...

        return Handler


def _found(found: Any, error_code: int, message: str) -> tuple[int, Any]:
    if found is None:
        return 404, {"error_code": error_code, "message": message}
    return 200, found
