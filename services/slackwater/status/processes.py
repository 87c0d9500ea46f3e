"""Compares the running processes with the expected ones, and finds overloaded processes.

The expected processes follow from the registered queries: their orderers, aggregators and roots,
and the proxies of their streams. With the data directory of a running ``slackwater up`` they also
include all supervised processes, with their restarts and last exits. Without it (containers,
another machine) the only sources are heartbeats and the registry, and a process's age shows its
last start.

A query is OVERLOADED if its first answers exceed their bound although a copy of each stage runs; if
a stage is missing, it is LATE. The reasons derive from heartbeats: a process out of CPU, a broker
with slow transactions, a stage that is behind.

Pure: heartbeats, definitions and the supervisor's record are arguments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from slackwater.deployment.fragments import seen_of, stages
from slackwater.deployment.sharing import readers_of
from slackwater.model.kinds import BROKER, GATEWAY, HOST, is_hosted, query_of
from slackwater.model.names import (
    ProxyName,
    is_orderer_of,
    some_of,
    stream_of,
)
from slackwater.model.records import Heartbeat
from slackwater.runtime.logs.skipped import DETAIL as SKIPPED_DETAIL
from slackwater.runtime.service.beat import cpu_share
from slackwater.runtime.service.cpu import is_starved
from slackwater.runtime.service.datadir import Life
from slackwater.runtime.service.heartbeat_view import STALE_S, answering
from slackwater.runtime.service.parts import (
    FAILED_AT,
    FAILURES,
    HELD_BYTES,
    HELD_BYTES_MAX,
    LONG_TURN_MS,
    OWN_HOST,
    PROXIES,
    SLOTS,
    SLOTS_NEEDED,
)
from slackwater.runtime.service.registry import QueryDefinition
from slackwater.status.copies import disagreements, in_one_process
from slackwater.status.observed import age, counters, phrases, receivers
from slackwater.status.queries import QueryRow, StreamRow, at_sites, query_rows, stream_rows
from slackwater.status.topics import topic_remarks

LATE_US: Final = 10_000_000
"""Age of the last late answer from which a query counts as in time again."""
CRASHED_US: Final = 60_000_000
"""A process that is not ready and crashed twice, last within this time, is failing."""
RESTART_SHOWN_US: Final = 600_000_000
"""Time for which a restart of a process that is ready again is shown without ``-v``."""
COMMIT_MS_MIN: Final = 500
"""Transaction time from which it is reported: the usual one is 10 ms; longer ones delay answers."""
NAMED_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class ObservedHeartbeat:
    """The latest heartbeat of a process, and its age."""

    beat: Heartbeat
    age_ms: float

    @property
    def is_fresh(self) -> bool:
        """Whether the heartbeat is recent enough to count."""
        return self.age_ms <= STALE_S * 1000


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """A process as shown by status. ``failing``: it is expected, but is not processing."""

    process: str
    state: str
    failing: bool
    last_heartbeat: ObservedHeartbeat | None = None
    life: Life | None = None
    shared_by: tuple[str, ...] = ()
    """The queries that read the same children, for their orderers and roots."""

    def line(self, now_us: int) -> str:
        """Return the line of the table."""
        parts = [f"{self.process:<28} {self.state:<10}"]
        if self.last_heartbeat is not None and self.last_heartbeat.is_fresh:
            beat = self.last_heartbeat.beat
            parts.append(f"pid {beat.pid:<8} up {age(beat.at - beat.started_at):<5}")
            parts += [f"{output}={state}" for output, state in beat.states.items()]
            parts += [f" {name}={n}" for name, n in sorted(counters(beat.detail).items())]
            parts += phrases(beat.detail)
            parts += _place(beat)
            parts += _held(beat)
            parts += _slots(beat)
            parts += receivers(beat.detail, beat.states)
            parts += topic_remarks(beat)
        if self.shared_by:
            parts.append(f" {_readers(self.shared_by)}")
        if self.life is not None and self.life.last_exit is not None:
            parts.append(f" restarts={self.life.restarts} last exit {self._last_exit(now_us)}")
        return " ".join(parts).rstrip()

    def trouble(self, now_us: int) -> str:
        """Return what is to be said of it to people; empty if it runs without a remark."""
        parts = [] if self.state == "ready" else [self.state]
        if self.last_heartbeat is not None and self.last_heartbeat.is_fresh:
            beat = self.last_heartbeat.beat
            waits = receivers(beat.detail, beat.states)
            texts = (*_place(beat), *_held(beat), *_slots(beat), *waits)
            parts += [text.strip() for text in texts]
            if beat.detail.get(SKIPPED_DETAIL):
                parts.append(f"{beat.detail[SKIPPED_DETAIL]} foreign records skipped")
        life = self.life
        if life is not None and life.last_exit is not None and life.last_exit_at_us is not None:
            is_recent = now_us - life.last_exit_at_us < RESTART_SHOWN_US
            if self.state != "ready" or is_recent:
                parts.append(f"restarts: {life.restarts}, last exit {self._last_exit(now_us)}")
        return ", ".join(parts)

    def _last_exit(self, now_us: int) -> str:
        assert self.life is not None
        when = age(now_us - (self.life.last_exit_at_us or now_us))
        error = f": {self.life.last_error}" if self.life.last_error else ""
        return f"{self.life.last_exit} {when} ago{error}"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON of ``--format json``; unknown values are null."""
        latest, life = self.last_heartbeat, self.life or Life()
        beat = None if latest is None else latest.beat
        return {
            "process": self.process,
            "ready": self.state == "ready",
            "state": self.state,
            "failing": self.failing,
            "pid": None if beat is None else beat.pid,
            "age_ms": None if latest is None else round(latest.age_ms),
            "up_s": None if beat is None else round((beat.at - beat.started_at) / 1e6, 1),
            "inc": None if beat is None else beat.inc,
            "states": {} if beat is None else beat.states,
            "holes": []
            if beat is None
            else [[hole.topic, hole.partition, hole.inc] for hole in beat.holes],
            "detail": {} if beat is None else beat.detail,
            "restarts": None if self.life is None else life.restarts,
            "last_exit": life.last_exit,
            "last_error": life.last_error,
            "shared_by": list(self.shared_by),
        }


@dataclass(frozen=True, slots=True)
class Picture:
    """A snapshot: all processes, late queries with reasons, and queries with gaps."""

    rows: tuple[ProcessRow, ...]
    late: Mapping[str, str] = field(default_factory=dict)
    gaps: Mapping[str, int] = field(default_factory=dict)
    not_ready: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By query: the copies of a stage that run, none of which is ready."""
    disagreements: tuple[str, ...] = ()
    """What is to be said of copies that have held different panes."""
    queries: tuple[QueryRow, ...] = ()
    streams: tuple[StreamRow, ...] = ()
    event_us: int | None = None
    """The event clock; None where it follows the data, or is unknown."""

    @property
    def wrong(self) -> list[str]:
        """Return the reasons for exit code 1; empty if there are none."""
        failing = [row.process for row in self.rows if row.failing]
        found = [f"not working: {', '.join(failing)}"] if failing else []
        waiting: dict[tuple[str, ...], list[str]] = {}
        for query, copies in self.not_ready.items():
            waiting.setdefault(copies, []).append(query)
        for copies, queries in waiting.items():
            found.append(f"not ready: {', '.join(copies)}, of {some_of(queries, NAMED_MAX)}")
        found += self.disagreements
        return found + [f"query {query} is {why}" for query, why in self.late.items()]


def look_at(
    latest: Mapping[str, ObservedHeartbeat],
    queries: Mapping[str, QueryDefinition],
    lives: Mapping[str, Life] | None,
    now_us: int,
    event_us: int | None = None,
    pids: Mapping[str, int] | None = None,
) -> Picture:
    """Make a snapshot.

    ``lives`` is the supervisor's record; None where there is none. ``event_us``: the event clock.
    ``pids``: the processes that run, as the supervisor has recorded them.
    """
    specs = {name: query.spec for name, query in queries.items()}
    fresh = [name for name, each in latest.items() if each.is_fresh]
    seen = seen_of(specs, {name: each.beat for name, each in latest.items()})
    expected = dict.fromkeys(seen.values())
    expected |= dict.fromkeys(_other_proxies(latest))
    expected |= dict.fromkeys(name for name in lives or {} if name != BROKER)
    shared_by = _shared_by(queries)
    rows = tuple(
        replace(
            _gateway_row((lives or {}).get(name), name in (pids or {}), now_us)
            if name == GATEWAY
            else _row(name, name in expected, latest.get(name), (lives or {}).get(name), now_us),
            shared_by=shared_by.get(name, ()),
        )
        for name in [*expected, *sorted(latest.keys() - expected)]
        if not name.startswith(f"{HOST}/")  # its fragments are shown
    )
    at_work = {row.process for row in rows if row.last_heartbeat is not None and not row.failing}
    ready = {row.process for row in rows if row.state == "ready"}
    late = {
        name: why
        for name, query in queries.items()
        if (why := _why_late(query, latest, at_work, seen)) is not None
    }
    not_ready = {
        name: copies
        for name, query in queries.items()
        for copies in stages(query.spec, seen)[1:]  # without the broker
        if ready.isdisjoint(copies) and not at_work.isdisjoint(copies)
    }
    gaps, beats = _gaps(latest.values()), {name: latest[name].beat for name in fresh}
    of_queries = in_one_process(query_rows(queries, beats, late, gaps), beats)
    of_streams = stream_rows(of_queries, beats, expected, at_sites(queries, beats))
    differ = tuple(disagreements(beats))
    return Picture(rows, late, gaps, not_ready, differ, of_queries, of_streams, event_us)


def _other_proxies(latest: Mapping[str, ObservedHeartbeat]) -> Iterator[str]:
    """Yield all proxies of a stream with several, one of which is running."""
    for name, each in latest.items():
        if each.is_fresh and (shares := each.beat.detail.get(PROXIES)):
            yield from (ProxyName(stream_of(name), share).process for share in range(shares))


def _shared_by(queries: Mapping[str, QueryDefinition]) -> dict[str, tuple[str, ...]]:
    """Map each orderer and root of shared children to the registered queries that share them."""
    found: dict[str, tuple[str, ...]] = {}
    specs = [query.spec for query in queries.values()]
    for query in queries.values():
        readers = tuple(each.name for each in readers_of(query.spec.child_query, specs))
        if len(readers) > 1:
            of_query = (name for copies in stages(query.spec) for name in copies)
            found |= {name: readers for name in of_query if is_hosted(name)}
    return found


def _readers(shared_by: tuple[str, ...]) -> str:
    return f"children shared by {some_of(shared_by, NAMED_MAX)}"


def _row(
    process: str, should_run: bool, latest: ObservedHeartbeat | None, life: Life | None, now_us: int
) -> ProcessRow:
    if latest is not None and latest.is_fresh:
        state = "ready" if latest.beat.ready else "not ready"
        failing = (
            should_run
            and not latest.beat.ready
            and (_crashes(life, now_us) or _fails(latest.beat, now_us))
        )
        return ProcessRow(process, state, failing, latest, life)
    state = "missing" if latest is None else f"silent for {latest.age_ms / 1000:.1f} s"
    return ProcessRow(process, state, should_run, latest, life)


def _gateway_row(life: Life | None, runs: bool, now_us: int) -> ProcessRow:
    """The row of a process that only reads: what its supervisor knows is all there is."""
    is_failing = not runs or _crashes(life, now_us)
    state = "missing" if not runs else "not ready" if is_failing else "ready"
    return ProcessRow(GATEWAY, state, is_failing, None, life)


def _place(beat: Heartbeat) -> Iterator[str]:
    """Report a fragment whose turns are too long for a shared host."""
    if OWN_HOST in beat.detail:
        yield " in a host of its own: turns were too long"
    elif LONG_TURN_MS in beat.detail:
        yield " held back: turns are too long"


def _held(beat: Heartbeat) -> Iterator[str]:
    """Report a fragment that was restarted because it held too much in memory."""
    if HELD_BYTES in beat.detail:
        held, bound = (beat.detail[each] / 2**20 for each in (HELD_BYTES, HELD_BYTES_MAX))
        yield f" restarted: kept {held:.1f} MiB of an input in memory, limit {bound:.1f} MiB"


def _slots(beat: Heartbeat) -> Iterator[str]:
    """Report an aggregator of which tasks wait for Spark's other ones to end, which never do."""
    if SLOTS_NEEDED in beat.detail:
        needed, there = (beat.detail[each] for each in (SLOTS_NEEDED, SLOTS))
        yield f" needs {needed} task slots, and Spark has {there}: add workers"


def _crashes(life: Life | None, now_us: int) -> bool:
    """Whether the process crashes repeatedly without becoming ready."""
    if life is None or life.restarts < 2 or life.last_exit_at_us is None:
        return False
    return now_us - life.last_exit_at_us < CRASHED_US


def _fails(beat: Heartbeat, now_us: int) -> bool:
    """Whether a part, which its process restarts, fails repeatedly."""
    often = beat.detail.get(FAILURES, 0) >= 2
    return often and now_us - beat.detail.get(FAILED_AT, 0) < CRASHED_US


def _why_late(
    query: QueryDefinition,
    latest: Mapping[str, ObservedHeartbeat],
    at_work: Iterable[str],
    seen: dict[str, str],
) -> str | None:
    """Return why the query is late; None while first answers come within their bound."""
    fresh = {name: each.beat for name, each in latest.items() if each.is_fresh}
    parts = range(query.spec.parts)
    roots = [beat for p in parts if (beat := answering(fresh.get, query.name, p)) is not None]
    overdue_ms = max((beat.detail.get("overdue_ms", 0) for beat in roots), default=0)
    recent = [beat for beat in roots if _late_lately(beat)]
    if not overdue_ms and not recent:
        return None
    windows = sum(beat.detail["beyond_bound"] for beat in recent)
    reported = (
        [f"the next answer exceeds its bound by {overdue_ms / 1000:.1f} s"] if overdue_ms else []
    )
    reported += [f"{windows} first answers were late since their root started"] if recent else []
    running = {BROKER, *at_work}
    down = [copies for copies in stages(query.spec, seen) if running.isdisjoint(copies)]
    if down:
        return f"LATE: {'; '.join(reported)}; {', '.join(down[0])} is missing"
    reasons = list(_reasons(query, roots, latest, seen))[:NAMED_MAX]
    return f"OVERLOADED: {'; '.join([*reported, *reasons])}"


def _late_lately(root: Heartbeat) -> bool:
    detail = root.detail
    return bool(detail.get("beyond_bound")) and root.at - detail["beyond_bound_at"] <= LATE_US


def _reasons(
    query: QueryDefinition,
    roots: Iterable[Heartbeat],
    latest: Mapping[str, ObservedHeartbeat],
    seen: dict[str, str],
) -> Iterator[str]:
    """Yield the reasons visible from outside, the most certain first."""
    mine = {name for copies in stages(query.spec, seen) for name in copies}
    mine |= {name for name in latest if stream_of(name) in query.spec.sources}
    starved = [
        (share.waited + share.used, f"{name} {share.phrase()}")
        for name in mine & latest.keys()
        if (share := cpu_share(latest[name].beat)) is not None and is_starved(name, share)
    ]
    yield from (phrase for _, phrase in sorted(starved, reverse=True)[: NAMED_MAX - 1])
    for root in roots:
        commit_ms = root.detail.get("commit_ms", 0)
        if commit_ms >= COMMIT_MS_MIN:
            yield f"the broker takes {commit_ms / 1000:.1f} s for a transaction of {root.process}"
    yield from _lagging(query, roots, latest)


def _lagging(
    query: QueryDefinition, roots: Iterable[Heartbeat], latest: Mapping[str, ObservedHeartbeat]
) -> Iterator[str]:
    """Report which side of the ordered logs delays the next answer."""
    reached = [
        max(detail.get("live_to", 0), detail.get("stable_to", 0))
        for name, each in latest.items()
        if is_orderer_of(name, query.spec.child_query) and (detail := each.beat.detail)
    ]
    reached = [us for us in reached if us]  # one that has just started knows no time yet
    for root in roots:
        if not reached or "answered_to" not in root.detail or not root.detail.get("overdue_ms"):
            continue
        needed = query.grid.window_end(root.detail["answered_to"])
        if max(reached) >= needed:
            past_s = (max(reached) - needed) / 1e6
            yield f"the orderers are {past_s:.1f} s ahead of it: aggregators or root are too slow"
        else:
            short_s = (needed - max(reached)) / 1e6
            yield f"the orderers are {short_s:.1f} s behind it: they or the proxies are too slow"
        return


def _gaps(latest: Iterable[ObservedHeartbeat]) -> Counter[str]:
    """Count per query the windows with a gap that its roots answered since their start."""
    gaps: Counter[str] = Counter()
    for each in latest:
        if found := each.beat.detail.get("gaps"):
            gaps[query_of(each.beat.process)] += found
    return gaps
