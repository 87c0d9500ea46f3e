"""The status as JSON: each query and stream in one sentence, and the figures behind it.

The sentences are made here, so that all times are those of the servers: the clock of a browser may
be off. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slackwater.codec.results import format_time
from slackwater.deployment.windows import describe_window
from slackwater.model.names import base_of, generation_of
from slackwater.model.row_fields import described
from slackwater.runtime.service.registry import QueryDefinition
from slackwater.status.overview import Overview
from slackwater.status.processes import Picture, ProcessRow
from slackwater.status.queries import QueryRow, StreamRow, ago, moment

BEHIND_US = 2_000_000
"""Delay of a stream's last reading from which the sentence calls it silent."""


def status_json(
    definitions: Mapping[str, QueryDefinition],
    picture: Picture,
    overview: Overview | None,
    now_us: int,
    *,
    kafka_answers: bool,
) -> dict[str, Any]:
    """Return all that is known now; times are text in UTC."""
    rows = {base_of(row.name): row for row in picture.queries}
    wrong = [*picture.wrong, *(() if overview is None else overview.wrong)]
    event_us = picture.event_us
    shown = latest_of(definitions)
    found = {
        "at": format_time(now_us),
        "event_at": None if event_us is None else format_time(event_us),
        "kafka": kafka_answers,
        "well": kafka_answers and not wrong,
        "problems": wrong if kafka_answers else ["Kafka does not answer"],
        "queries": [_query(name, each, rows.get(name), event_us) for name, each in shown.items()],
        "streams": [_stream(row, event_us) for row in picture.streams],
        "processes": [_process(row, now_us) for row in picture.rows],
    }
    nodes: dict[str, list[Any]] = {"controllers": [], "nodes": [], "fragments": []}
    # It has problems of its own, which are among ``wrong``.
    return (nodes if overview is None else overview.to_json()) | found


def latest_of(definitions: Mapping[str, QueryDefinition]) -> dict[str, QueryDefinition]:
    """Return the latest generation of each query that is not deleted, by name."""
    live = [each for each in definitions.values() if each.state != "deleted"]
    by_generation = sorted(live, key=lambda each: generation_of(each.name))
    latest = {base_of(each.name): each for each in by_generation}
    return dict(sorted(latest.items()))


def _query(
    name: str, of: QueryDefinition, row: QueryRow | None, event_us: int | None
) -> dict[str, Any]:
    spec = of.spec
    state = "paused" if of.state == "paused" else "starting" if row is None else row.state
    found: dict[str, Any] = {
        "query": name,
        "state": state,
        "sentence": query_sentence(state, row, event_us),
        "problem": None if row is None else row.problem or None,
        "generation": generation_of(of.name),
        "begun_at": format_time(of.e0_us),
        "from": list(spec.sources),
        "window": None if spec.window is None else describe_window(spec.window),
        "slide_ms": None if spec.window is None else spec.window.slide_us / 1e3,
        "aggregate": described(spec.aggregate, spec.of_fields),
        "bound_ms": spec.bound_us / 1e3,
        "parts": spec.parts,
    }
    names = ("streams", "exact_to", "tentative_windows", "missing", "p99_ms", "remarks")
    known = {} if row is None else row.to_json()
    empty: dict[str, Any] = {"streams": [], "missing": [], "remarks": [], "tentative_windows": 0}
    return found | {each: known.get(each, empty.get(each)) for each in names}


def query_sentence(state: str, row: QueryRow | None, event_us: int | None) -> str:
    """Return ``exact to 12:26:05, 0.1 s ago``, or what else is to be said of a query."""
    sentence = _state_sentence(state, row, event_us)
    if row is None or not row.is_behind or state in {"paused", "starting"}:
        return sentence
    return f"{sentence}, {row.lag_phrase}"


def _state_sentence(state: str, row: QueryRow | None, event_us: int | None) -> str:
    if state == "paused":
        return "paused: it answers nothing until it is resumed"
    if row is None or state == "starting":
        return "starting: no answer yet"
    since = "the first window" if row.exact_to is None else moment(row.exact_to, event_us)
    lacks = f", without {', '.join(row.missing)}" if row.missing else ""
    if state == "tentative":
        return f"tentative since {since}{lacks}"
    if state == "correcting":
        return f"being corrected: exact to {since}"
    if row.exact_to is None:
        return "no exact answer yet"
    behind = "" if event_us is None else f", {ago(event_us - row.exact_to)}"
    return f"exact to {since}{behind}"


def _stream(row: StreamRow, event_us: int | None) -> dict[str, Any]:
    behind = None if row.last_reading is None or event_us is None else event_us - row.last_reading
    if not row.runs:
        lane = "stopped"
    elif row.last_reading is None:
        lane = "waiting"
    elif row.is_missing:
        lane = "missing"
    else:
        lane = "silent" if behind is not None and behind > BEHIND_US else "in time"
    behind_ms = None if behind is None else behind / 1e3
    return row.to_json() | {"lane": lane, "behind_ms": behind_ms, "sentence": row.text(event_us)}


def _process(row: ProcessRow, now_us: int) -> dict[str, Any]:
    return {
        "process": row.process,
        "state": row.state,
        "failing": row.failing,
        "remark": row.trouble(now_us),
    }
