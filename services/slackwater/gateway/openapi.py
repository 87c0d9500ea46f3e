"""The description of the API as an OpenAPI document. A test compares it with the answers.

A path has its summary, its parameters and the schema of its answer. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Schema = Mapping[str, Any]

_TEXT: Final[Schema] = {"type": "string"}
_NAMES: Final[Schema] = {"type": "array", "items": _TEXT}
_TIME: Final[Schema] = {"type": "string", "description": "UTC, as 2016-03-15T08:47:28.545000Z"}
_NUMBER: Final[Schema] = {"type": "number"}
_COUNT: Final[Schema] = {"type": "integer"}
_TRUTH: Final[Schema] = {"type": "boolean"}
_FREE: Final[Schema] = {"type": "object"}


def _object(optional: Mapping[str, Schema] | None = None, /, **required: Schema) -> Schema:
    properties = {**required, **(optional or {})}
    return {"type": "object", "required": list(required), "properties": properties}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _or_null(schema: Schema) -> Schema:
    return {**schema, "type": [schema["type"], "null"]}


_QUERY: Final = _object(
    query=_TEXT,
    state={
        "type": "string",
        "enum": ["exact", "tentative", "correcting", "starting", "paused"],
    },
    sentence=_TEXT,
    problem=_or_null(_TEXT),
    generation=_COUNT,
    begun_at=_TIME,
    window=_or_null(_TEXT),
    slide_ms=_or_null(_NUMBER),
    aggregate=_NAMES,
    bound_ms=_NUMBER,
    parts=_COUNT,
    streams=_NAMES,
    exact_to=_or_null(_TIME),
    tentative_windows=_COUNT,
    missing=_NAMES,
    p99_ms=_or_null(_NUMBER),
    remarks=_NAMES,
)
_STREAM: Final = _object(
    stream=_TEXT,
    runs=_TRUTH,
    last_reading=_or_null(_TIME),
    complete_to=_or_null(_TIME),
    quarantined=_FREE,
    missing=_TRUTH,
    lane={"type": "string", "enum": ["in time", "silent", "missing", "waiting", "stopped"]},
    behind_ms=_or_null(_NUMBER),
    sentence=_TEXT,
    remarks=_NAMES,
)
_PROCESS: Final = _object(process=_TEXT, state=_TEXT, failing=_TRUTH, remark=_TEXT)
_PLACES: Final[Mapping[str, Schema]] = {
    "controllers": _list(_FREE),
    "nodes": _list(_FREE),
    "fragments": _list(_FREE),
    "processes": _list(_PROCESS),
}
_OVERVIEW: Final = _object(
    at=_TIME,
    event_at=_or_null(_TIME),
    kafka=_TRUTH,
    well=_TRUTH,
    problems=_NAMES,
    queries=_list(_QUERY),
    streams=_list(_STREAM),
    **_PLACES,
)
_WINDOW: Final = _object(
    window_start=_TIME,
    window_end=_TIME,
    windows=_COUNT,
    state={"type": "string", "enum": ["exact", "tentative", "corrected", "withdrawn"]},
    skipped=_TRUTH,
    missing=_NAMES,
    parts=_list(_COUNT),
    rows=_list(_object(key=_TEXT, fields=_FREE)),
    rows_left_off=_COUNT,
    due_at=_TIME,
    emitted_at=_TIME,
)
_STEP: Final = _object(
    {
        "after_due_ms": _NUMBER,
        "missing": _NAMES,
        "fields": _FREE,
        "difference": _FREE,
    },
    what={"type": "string", "enum": ["tentative", "undo", "stable"]},
    part=_COUNT,
    seq=_COUNT,
    at=_TIME,
)
_REASON: Final = _object(
    reason=_TEXT,
    fault=_TEXT,
    count=_COUNT,
    first_at=_or_null(_TIME),
    last_at=_or_null(_TIME),
    keys=_FREE,
    advice=_TEXT,
    example=_FREE,
)
_ALERT: Final = _object(
    {"exact": _FREE, "reason": _TEXT},
    event_id=_TEXT,
    id=_TEXT,
    alert=_TEXT,
    query=_TEXT,
    key=_TEXT,
    state={
        "type": "string",
        "enum": ["pending", "firing", "ended", "confirmed", "withdrawn"],
    },
    tentative=_TRUTH,
    window_start=_TIME,
    window_end=_TIME,
    values=_FREE,
    missing=_NAMES,
    changed_to=_TIME,
    due_at=_TIME,
    answered_at=_TIME,
    stream=_or_null(_TEXT),
    sentence=_TEXT,
)
_RULE: Final = _object(alert=_TEXT, query=_TEXT, stream=_or_null(_TEXT), sentence=_TEXT)
_SESSION: Final = _object(
    {"needs_token": _TRUTH},
    right={"type": ["string", "null"], "enum": ["view", "operate", None]},
)
ERROR: Final = _object(error=_TEXT)

_GETS: Final[Mapping[str, tuple[str, Mapping[str, str], Schema]]] = {
    "/openapi.json": ("This document", {}, _FREE),
    "/overview": ("Everything: queries, streams, processes, machines", {}, _OVERVIEW),
    "/queries": ("All queries", {}, _object(at=_TIME, queries=_list(_QUERY))),
    "/queries/{query}": ("One query", {}, _QUERY),
    "/queries/{query}/windows": (
        "The last windows with the best answer of each, oldest first",
        {"limit": "how many, 60 by default, at most 1,000"},
        _object(query=_TEXT, windows=_list(_WINDOW)),
    ),
    "/queries/{query}/history": (
        "How the value of a key in a window came about",
        {"window_start": "start of the window, required", "key": "the key, required"},
        _object(query=_TEXT, window_start=_TIME, key=_TEXT, steps=_list(_STEP)),
    ),
    "/streams": ("All streams", {}, _object(at=_TIME, streams=_list(_STREAM))),
    "/streams/{stream}/quarantine": (
        "What a stream has in quarantine, by reason and fault, with an example of each",
        {},
        _object(stream=_TEXT, reasons=_list(_REASON)),
    ),
    "/alerts": (
        "All rules, which alerts fire, which are pending, and which ended last, the newest first",
        {},
        _object(
            rules=_list(_RULE),
            firing=_list(_ALERT),
            pending=_list(_ALERT),
            ended=_list(_ALERT),
        ),
    ),
    "/nodes": ("Machines and what is placed on them", {}, _object(at=_TIME, **_PLACES)),
}


def document() -> dict[str, Any]:
    """Return the document."""
    paths: dict[str, Any] = {
        f"/api/v1{path}": {"get": _operation(path, summary, parameters, schema)}
        for path, (summary, parameters, schema) in _GETS.items()
    }
    stream = _operation("", "Server-sent events: status, alerts, changes", {}, _FREE)
    stream["parameters"] = [
        {"name": name, "in": "query", "description": text, "schema": _TEXT}
        for name, text in (
            ("query", "whose changes are sent"),
            ("after", "id after which to go on; Last-Event-ID comes before it"),
        )
    ]
    stream["responses"]["200"]["content"] = {"text/event-stream": {"schema": _TEXT}}
    paths["/api/v1/stream"] = {"get": stream}
    session = {
        "get": _operation("", "The right of this reader", {}, _SESSION),
        "post": _operation("", "Exchange a token for a session cookie", {}, _SESSION),
        "delete": _operation("", "End the session", {}, _SESSION),
    }
    body = {"application/json": {"schema": _object(token=_TEXT)}}
    session["post"]["requestBody"] = {"required": True, "content": body}
    paths["/api/v1/session"] = session
    return {
        "openapi": "3.1.0",
        "info": {"title": "slackwater gateway", "version": "1"},
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": "slackwater"},
            }
        },
        "security": [{"bearer": []}, {"session": []}, {}],
    }


def _operation(
    path: str, summary: str, parameters: Mapping[str, str], schema: Schema
) -> dict[str, Any]:
    named = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    answer = {"description": summary, "content": {"application/json": {"schema": schema}}}
    error = {"description": "an error", "content": {"application/json": {"schema": ERROR}}}
    return {
        "summary": summary,
        "parameters": [
            *({"name": name, "in": "path", "required": True, "schema": _TEXT} for name in named),
            *(
                {
                    "name": name,
                    "in": "query",
                    "required": "required" in text,
                    "description": text,
                    "schema": _TEXT,
                }
                for name, text in parameters.items()
            ),
        ],
        "responses": {"200": answer, "default": error},
    }
