"""What ``status`` shows of queries and streams: how far answers are, and which input they lack.

A root's heartbeat has the first window that is not exact (S) and the first without any answer (T).
If T > S, windows are tentative. The streams that they lack are those whose source logs are complete
only up to a time before T; the results name the same in ``missing``. For a query that reads another
one the streams are those of the query that is read.

Pure: heartbeats and definitions are arguments. All times are us of event time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal

from slackwater.codec.results import format_time
from slackwater.model.errors import EnvironmentProblem
from slackwater.model.names import base_of, stream_of
from slackwater.model.records import Heartbeat
from slackwater.proxy.quarantine import REASONS
from slackwater.runtime.service.heartbeat_view import answering
from slackwater.runtime.service.parts import COMPLETE_TO, LAST_READING
from slackwater.runtime.service.registry import QueryDefinition
from slackwater.sessions.merged_input import REMOTE_TO
from slackwater.status.observed import phrases
from slackwater.status.topics import (
    partitions_behind,
    topic_remarks,
    withheld,
    withheld_remarks,
)

Heartbeats = Mapping[str, Heartbeat]
"""The recent heartbeats, by process."""
QueryState = Literal["exact", "tentative", "correcting", "starting"]
MINUTE_US: Final = 60_000_000
SECOND_US: Final = 1_000_000
BEHIND_US_MIN: Final = 10 * SECOND_US
"""A query that is behind by less is in its normal course."""


@dataclass(frozen=True, slots=True)
class QueryRow:
    """A running query. Times are None where they are unknown, or before the first answer."""

    name: str
    state: QueryState
    streams: tuple[str, ...]
    bound_us: int
    exact_to: int | None = None
    """End of the last window whose answer is exact."""
    tentative_windows: int = 0
    missing: tuple[str, ...] = ()
    """The streams that tentative windows lack."""
    p99_ms: int | None = None
    problem: str = ""
    """Why answers are late or lack readings for ever; empty if they are not."""
    gaps: int = 0
    """Windows that lack readings that are lost."""
    remarks: tuple[str, ...] = ()
    """Sentences on what is no failure and is not as declared: copies that are in one place."""
    behind_us: int = 0
    """How far (event time) the source logs of all its streams go beyond the end of the first window
    that is not exact; 0 if they do not, or if it is not known."""

    @property
    def is_behind(self) -> bool:
        """Whether the readings of a window are there for longer than its answer may take."""
        return self.behind_us > max(self.bound_us, BEHIND_US_MIN)

    @property
    def lag_phrase(self) -> str:
        """Return ``3 min behind its readings``; empty if it is not."""
        return f"{lasting(self.behind_us)} behind its readings" if self.is_behind else ""

    def was_late(self, event_us: int | None) -> bool:
        """Whether more than one in a hundred of the last answers came after X.

        Never with ``clock: data``, which has no time of day: all of a history is due at once.
        """
        return event_us is not None and (self.p99_ms or 0) * 1000 > self.bound_us

    def text(self, event_us: int | None) -> str:
        """Return all but the name; ``event_us``: the event clock, None where it is unknown."""
        known = self.exact_to is not None
        exact = f"exact to {moment(self.exact_to, event_us)}" if known else "no exact answer yet"
        if known and self.exact_to is not None and event_us is not None:
            exact += f", {ago(event_us - self.exact_to)}"
        parts = [exact]
        if self.state == "starting":
            parts = ["is starting"]
        elif self.state != "exact":
            windows = f"{self.tentative_windows} window{'s' * (self.tentative_windows != 1)}"
            lacks = f" without {', '.join(self.missing)}" if self.missing else ""
            verb = "tentative" if self.state == "tentative" else "being corrected"
            parts = [f"{windows} {verb}{lacks}" if self.tentative_windows else verb, exact]
        parts.append(f"{len(self.streams)} stream{'s' * (len(self.streams) != 1)}")
        if self.p99_ms is not None:
            over = ": too late" if self.was_late(event_us) else ""
            parts.append(f"p99 {self.p99_ms} ms of {self.bound_us / 1e6:g} s{over}")
        parts += [self.lag_phrase] if self.is_behind else []
        return "; ".join([", ".join(parts), *self.remarks])

    def to_json(self) -> dict[str, Any]:
        """Return the JSON of ``--json``; unknown values are null."""
        return {
            "query": self.name,
            "state": self.state,
            "streams": list(self.streams),
            "exact_to": _iso(self.exact_to),
            "tentative_windows": self.tentative_windows,
            "missing": list(self.missing),
            "bound_ms": self.bound_us / 1e3,
            "p99_ms": self.p99_ms,
            "behind_ms": self.behind_us / 1e3,
            "problem": self.problem or None,
            "windows_with_losses": self.gaps,
            "remarks": list(self.remarks),
        }


@dataclass(frozen=True, slots=True)
class StreamRow:
    """A stream with a proxy, or that a query reads; its proxies taken together."""

    name: str
    runs: bool
    last_reading: int | None = None
    complete_to: int | None = None
    quarantined: Mapping[str, int] = field(default_factory=dict)
    """Readings in quarantine since the start of the proxies, by reason; no zeros."""
    is_missing: bool = False
    """Whether a tentative window lacks it."""
    remarks: tuple[str, ...] = ()
    partitions_behind: Mapping[int, int] = field(default_factory=dict)
    """If it is missing: the partitions of its topic that are behind the others, at most ten for
    each proxy, with the times (us) up to which they are complete."""
    is_stopped: bool = False
    """Whether no proxy of it sends heartbeats."""
    had_none: bool = True
    """Without a last reading: whether there was none, or it is only not known."""
    site: str = ""
    """The site with a Kafka of its own that reads it; empty: it is read here."""

    @property
    def needs_attention(self) -> bool:
        """Whether more is to be said than its last reading."""
        return self.is_missing or not self.runs or bool(self.quarantined or self.remarks)

    def text(self, event_us: int | None) -> str:
        """Return all but the name."""
        if self.site and self.complete_to is None:
            last = f"nothing has come from site {self.site} yet"
        elif self.site:
            last = f"site {self.site} has sent all to {moment(self.complete_to, event_us)}"
        elif self.last_reading is None:
            last = "no reading yet" if self.had_none else "the time of its last reading is unknown"
        else:
            last = f"last reading {moment(self.last_reading, event_us)}"
            if event_us is not None:
                last += f", {ago(event_us - self.last_reading)}"
        parts = [f"MISSING: {last}" if self.is_missing else last]
        if behind := self.partitions_behind:
            plural, since = "s" * (len(behind) != 1), moment(min(behind.values()), event_us)
            numbers = ", ".join(map(str, behind))
            parts.append(f"only partition{plural} {numbers} behind, complete to {since}")
        if not self.runs:
            parts.append("its proxy is stopped" if self.is_stopped else "its proxy is not ready")
        if self.quarantined:
            reasons = ", ".join(f"{n} {reason}" for reason, n in self.quarantined.items())
            parts.append(f"in quarantine: {reasons} (slackwater quarantine {self.name})")
        return "; ".join([*parts, *self.remarks])

    def to_json(self) -> dict[str, Any]:
        """Return the JSON of ``--json``; unknown values are null."""
        return {
            "stream": self.name,
            "runs": self.runs,
            "last_reading": _iso(self.last_reading),
            "complete_to": _iso(self.complete_to),
            "quarantined": dict(self.quarantined),
            "missing": self.is_missing,
            "partitions_behind": list(self.partitions_behind),
            "remarks": list(self.remarks),
        }


def at_sites(
    queries: Mapping[str, QueryDefinition], beats: Heartbeats
) -> dict[str, tuple[str, int | None]]:
    """Return the streams that sites read: the site, and up to when all has come; None: unknown."""
    found: dict[str, tuple[str, int | None]] = {}
    for query in queries.values():
        spec = query.spec
        if not spec.has_remote:
            continue
        roots = [answering(beats.get, query.name, part) for part in range(spec.parts)]
        for child, (site, (_, streams)) in enumerate(
            zip(spec.sites, spec.child_groups, strict=False)
        ):
            reached = [beat.detail.get(f"{REMOTE_TO}{child}") for beat in roots if beat is not None]
            known = [at for at in reached if at is not None]
            to = min(known) if len(known) == spec.parts else None
            if site:
                found |= dict.fromkeys(streams, (site, to))
    return found


def query_rows(
    queries: Mapping[str, QueryDefinition],
    beats: Heartbeats,
    late: Mapping[str, str],
    gaps: Mapping[str, int],
) -> tuple[QueryRow, ...]:
    """Return a row for each query; ``late`` has the reasons of those whose answers are late."""
    complete_to = {
        stream: min(_each(beats, stream, COMPLETE_TO), default=None)
        for query in queries.values()
        for stream in streams_of(query, queries)
    } | {stream: to for stream, (_, to) in at_sites(queries, beats).items()}
    lacks: dict[str, set[str]] = {}
    for children_of, stream in withheld(beats):
        lacks.setdefault(children_of, set()).add(stream)
    return tuple(
        _query_row(
            *(query, queries, beats, complete_to, lacks.get(query.spec.child_query, set())),
            *(late.get(name, ""), gaps.get(name, 0)),
        )
        for name, query in queries.items()
    )


def stream_rows(
    queries: Iterable[QueryRow],
    beats: Heartbeats,
    known: Iterable[str] = (),
    remote: Mapping[str, tuple[str, int | None]] = MappingProxyType({}),
) -> tuple[StreamRow, ...]:
    """Return a row for each stream that a query reads or a proxy serves.

    ``known`` are the names of proxies that should run, ``remote`` is that of ``at_sites``.
    """
    missing = {stream for query in queries for stream in query.missing}
    of_queries = [stream for query in queries for stream in query.streams]
    of_proxies = {stream_of(process) for process in [*beats, *known]} - {""}
    lacking = withheld(beats)
    return tuple(
        StreamRow(
            stream,
            runs=True,
            complete_to=remote[stream][1],
            is_missing=stream in missing,
            site=remote[stream][0],
        )
        if stream in remote
        else _stream_row(stream, beats, lacking, is_missing=stream in missing)
        for stream in sorted({*of_queries, *of_proxies})
    )


def streams_of(query: QueryDefinition, queries: Mapping[str, QueryDefinition]) -> tuple[str, ...]:
    """Return the streams that a query reads, also through the queries that it reads."""
    by_base = {base_of(name): each for name, each in queries.items()}
    found: dict[str, None] = {}
    left, seen = [*query.spec.sources], {query.name}
    while left:
        source = left.pop(0)
        if source in seen:
            continue
        seen.add(source)
        if (other := by_base.get(source)) is None:
            found[source] = None
        else:
            left += other.spec.sources
    return tuple(found)


def _query_row(
    query: QueryDefinition,
    queries: Mapping[str, QueryDefinition],
    beats: Heartbeats,
    complete_to: Mapping[str, int | None],
    lacks: Collection[str],
    problem: str,
    gaps: int,
) -> QueryRow:
    spec, streams = query.spec, streams_of(query, queries)
    answers = [answering(beats.get, query.name, part) for part in range(spec.parts)]
    roots = [beat for beat in answers if beat is not None and beat.ready]
    needed = {"stable_from", "answered_to"}
    progress = [beat.detail for beat in roots if needed <= beat.detail.keys()]
    if len(progress) < spec.parts:
        return QueryRow(query.name, "starting", streams, spec.bound_us, problem=problem, gaps=gaps)
    exact_from = min(detail["stable_from"] for detail in progress)
    answered_to = max(detail["answered_to"] for detail in progress)
    windows, exact_to, answered_end, next_end = _extent(query, exact_from, answered_to)
    there = [complete_to.get(stream) for stream in streams]
    known = [at for at in there if at is not None]
    behind_us = 0
    if next_end is not None and known and len(known) == len(there):
        behind_us = max(0, min(known) - next_end)
    states = {state for beat in roots for state in beat.states.values()}
    state: QueryState = "exact"
    if "STABILIZATION" in states:
        state = "correcting"
    elif windows or "UP_FAILURE" in states:
        state = "tentative"
    missing = tuple(
        stream
        for stream in streams
        if state == "tentative"
        and (stream in lacks or (at := complete_to.get(stream)) is None or at < answered_end)
    )
    p99_ms = max((detail["p99_ms"] for detail in progress if "p99_ms" in detail), default=None)
    return QueryRow(
        query.name,
        state,
        streams,
        spec.bound_us,
        exact_to=exact_to,
        tentative_windows=windows,
        missing=missing,
        p99_ms=p99_ms,
        problem=problem,
        gaps=gaps,
        behind_us=behind_us,
    )


def _extent(
    query: QueryDefinition, exact_from: int, answered_to: int
) -> tuple[int, int | None, int, int | None]:
    """Return the number of tentative windows, and ends of windows.

    They are those of the last exact and the last answered window, and of the first that is not
    exact.
    """
    try:
        grid = query.grid
    except EnvironmentProblem:  # this machine has other rules of a time zone
        return 0, None, answered_to, None
    if not (grid.is_start(exact_from) and grid.is_start(answered_to)):
        return 0, None, answered_to, None
    exact_end, answered_end = (
        grid.window_end(grid.later(start, -1)) for start in (exact_from, answered_to)
    )
    windows = max(0, grid.windows_between(exact_from, answered_to))
    has_exact = exact_from > grid.first_window_holding(query.e0_us)
    return windows, exact_end if has_exact else None, answered_end, grid.window_end(exact_from)


def _stream_row(
    stream: str, beats: Heartbeats, lacking: Mapping[tuple[str, str], int], *, is_missing: bool
) -> StreamRow:
    proxies = [beat for name, beat in beats.items() if stream_of(name) == stream]
    counts: Counter[str] = Counter()
    for beat in proxies:
        counts.update({reason: beat.detail.get(reason, 0) for reason in REASONS})
    remarks = [text.strip() for beat in proxies for text in topic_remarks(beat)]
    remarks += [text.strip() for beat in proxies for text in phrases(beat.detail)]
    remarks += withheld_remarks(lacking, stream)
    return StreamRow(
        stream,
        runs=any(beat.ready for beat in proxies),
        last_reading=max(_each(beats, stream, LAST_READING), default=None),
        complete_to=min(_each(beats, stream, COMPLETE_TO), default=None),
        quarantined={reason: n for reason, n in counts.most_common() if n},
        is_missing=is_missing,
        remarks=tuple(dict.fromkeys(remarks)),
        partitions_behind=partitions_behind(proxies) if is_missing else {},
        is_stopped=not proxies,
        had_none=any(beat.ready for beat in proxies),
    )


def _each(beats: Heartbeats, stream: str, name: str) -> list[int]:
    """Return a detail of each proxy of a stream that has it."""
    return [
        beat.detail[name]
        for process, beat in beats.items()
        if stream_of(process) == stream and name in beat.detail
    ]


def moment(us: int | None, event_us: int | None) -> str:
    """Format an event time as ``12:26:05`` in UTC; with its date if it is 12 hours from now."""
    if us is None:
        return "-"
    at = format_time(us)
    is_near = event_us is not None and abs(event_us - us) < 12 * 60 * MINUTE_US
    date, _, time = at.partition("T")
    return time[:8] if is_near else f"{date} {time[:8]}"


def ago(us: int) -> str:
    """Format a difference of times: ``0.1 s ago``, ``3 min ago``, ``2 s ahead``."""
    return f"{lasting(abs(us))} {'ago' if us >= 0 else 'ahead'}"


def lasting(us: int) -> str:
    """Format a duration, us: ``0.1 s``, ``3 min``, ``2 days``."""
    if us < 10 * SECOND_US:
        return f"{us / SECOND_US:.1f} s"
    if us < 2 * MINUTE_US:
        return f"{us // SECOND_US} s"
    if us < 120 * MINUTE_US:
        return f"{us // MINUTE_US} min"
    if us < 48 * 60 * MINUTE_US:
        return f"{us // (60 * MINUTE_US)} h"
    return f"{us // (24 * 60 * MINUTE_US)} days"


def _iso(us: int | None) -> str | None:
    return None if us is None else format_time(us)
