"""Commands that only look: results, status, queries."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

import orjson

from slackwater.cli import tables
from slackwater.cli.common import say, warn
from slackwater.client.follow import KINDS, Client, From
from slackwater.model.durations import format_duration_us
from slackwater.model.errors import UsageError
from slackwater.model.records import Heartbeat
from slackwater.runtime.heartbeats import HeartbeatListener, stale_s
from slackwater.runtime.kafka import KafkaTransport
from slackwater.runtime.registry import QueryDefinition, Registry

listen_s: Final = 0.8
"""Everybody speaks every 100 ms; who does not within this time is not there."""


def print_results(
    bootstrap: str, query: str, follow: bool, kinds: set[str], format_: str, from_: str
) -> None:
    """The command ``results``."""
    if format_ not in {"table", "jsonl"}:
        raise UsageError(f"--format {format_}: choose table or jsonl")
    if from_ not in {"beginning", "end"}:
        raise UsageError(f"--from {from_}: choose beginning or end")
    if unknown := kinds - KINDS:
        raise UsageError(
            f"--kind {', '.join(sorted(unknown))}: choose among {', '.join(sorted(KINDS))}"
        )
    wanted = kinds or (KINDS - {"boundary"} if format_ == "table" else KINDS)
    start: From = "end" if from_ == "end" else "beginning"
    stream = Client(bootstrap).follow(query, kinds=wanted, from_=start, until_end=not follow)
    with stream:
        try:
            for record in stream:
                say(tables.line(record) if format_ == "table" else orjson.dumps(record).decode())
        except KeyboardInterrupt:
            pass  # how following ends
    if stream.repeats:
        warn(f"slackwater: {stream.repeats} results were there twice; please report this")


def print_status(bootstrap: str, format_: str) -> None:
    """The command ``status``."""
    if format_ not in {"table", "json"}:
        raise UsageError(f"--format {format_}: choose table or json")
    beats, ages = _listen(bootstrap)
    if format_ == "json":
        say(json.dumps([_plain(beat, ages[name]) for name, beat in beats.items()], indent=2))
        return
    say(f"{'broker':<28} ready at {bootstrap}")
    for name, beat in beats.items():
        ready = "ready" if beat.ready else "not ready"
        if ages[name] > stale_s * 1000:
            ready = f"silent for {ages[name] / 1000:.1f} s"
        states = " ".join(f"{out}={state}" for out, state in beat.states.items())
        detail = " ".join(f"{what}={n}" for what, n in beat.detail.items())
        say(f"{name:<28} {ready:<10} pid {beat.pid:<8} {states}  {detail}".rstrip())
    for query, windows in _gaps(beats.values()).items():
        say(f"query {query}: {windows} windows lack readings that are lost; they say so in")
        say(f"  slackwater results {query} --kind gap")
    if not beats:
        say("no process of a deployment is heard")


def _gaps(beats: Iterable[Heartbeat]) -> Counter[str]:
    """Per query, the windows with a gap that its roots have answered since they started."""
    gaps: Counter[str] = Counter()
    for beat in beats:
        kind, _, name = beat.process.partition("/")
        if kind == "root" and beat.detail.get("gaps"):
            gaps[name.rpartition(".")[0]] += beat.detail["gaps"]
    return gaps


def _listen(bootstrap: str) -> tuple[dict[str, Heartbeat], dict[str, float]]:
    listener = HeartbeatListener(KafkaTransport(bootstrap)).start()
    try:
        # Nobody announces who else will speak, so listen for the whole time.
        listener.wait_for(lambda view: False, listen_s)
        beats = listener.all()
        return beats, {name: listener.age_ms(name) or 0.0 for name in beats}
    finally:
        listener.stop()


def _plain(beat: Heartbeat, age_ms: float) -> dict[str, Any]:
    return {
        "process": beat.process,
        "ready": beat.ready,
        "pid": beat.pid,
        "age_ms": round(age_ms),
        "inc": beat.inc,
        "states": beat.states,
        "holes": [[hole.topic, hole.partition, hole.inc] for hole in beat.holes],
        "detail": beat.detail,
    }


def print_queries(bootstrap: str) -> None:
    """The command ``query list``."""
    queries = Registry(KafkaTransport(bootstrap)).queries()
    if not queries:
        say("no query is registered")
    for query in queries.values():
        say(describe(query))


def describe(query: QueryDefinition) -> str:
    """A query on one line."""
    spec = query.spec
    window = "every reading"
    if spec.window is not None:
        window = f"window {format_duration_us(spec.window.size_us)}"
        if spec.window.slide_us != spec.window.size_us:
            window += f" every {format_duration_us(spec.window.slide_us)}"
    answer = "  ".join(filter(None, (window, ", ".join(spec.aggregate))))
    return (
        f"{query.name:<20} from {', '.join(spec.sources)}  {answer}"
        f"  bound {format_duration_us(spec.bound_us)}"
        f"  generation {query.generation}"
    )


def print_query(bootstrap: str, name: str) -> None:
    """The command ``query show``."""
    registry = Registry(KafkaTransport(bootstrap))
    query = registry.query(name)
    if query is None:
        known = ", ".join(registry.queries()) or "none"
        raise UsageError(f"there is no query {name}; registered: {known}")
    say(json.dumps(query.to_json(), indent=2))
