"""The registry: the queries and the event clock of a deployment.

A query's start time and its grid width w are fixed when it is registered (trace-24, trace-27) and
must be the same in every process, so they are stored only here, in its definition. Processes wait
for the entries that they need, so the order in which they start does not matter. `slackwater up` or
a node writes the entries. The topic is compacted by name. A start writes only missing entries, so a
restarted deployment keeps its start time; later only the state of a query is changed.

The topic may hold foreign records. A record that is not an entry is skipped, counted and reported
(``slackwater.runtime.logs.skipped``), and the entry before it stays valid. Tombstones are skipped,
too: entries are never removed. The entry of a deleted query has the state ``deleted``, and its name
is not used again, since topics and positions have that name: the query continues as its next
generation, which has an entry of its own. Compaction keeps only the newest record of a key, so an
entry hidden by another record is written again when a deployment starts (``restore``).

The registry also holds the ``expect_every`` that proxies have learned, on which all normal times
depend (rule-15), the number of source logs of each stream that reads a topic (rule-30), and the ids
of the deployment's topics, to which all positions belong (rule-32).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, cast

from pydantic import TypeAdapter, ValidationError

from slackwater.codec.state_records import decode_registry, encode_registry
from slackwater.deployment.sharing import readers_of
from slackwater.model.child_logs import ChildLogs, of_sources
from slackwater.model.deployment import Deployment, QuerySpec, StreamSpec
from slackwater.model.errors import EnvironmentProblem, MalformedRecordError
from slackwater.model.records import RegistryRecord
from slackwater.primitives.eventclock import EventClock, clock_from_json
from slackwater.primitives.keyparts import CRC32, XXHASH64, KeyHash
from slackwater.primitives.lateness import Step
from slackwater.primitives.windows import Grid
from slackwater.runtime.logs.incarnation import append_and_wait
from slackwater.runtime.logs.skipped import SKIPPED
from slackwater.runtime.logs.transport import (
    FETCH_WAIT_MS,
    LogError,
    RawRecord,
    Transport,
    read_to_end,
)
from slackwater.runtime.service.registry_entries import (
    BEGIN,
    EVENT_US_MAX,
    EXPECT_EVERY,
    PARSERS,
    PARTITIONS,
    TOPIC,
    Learned,
    check_ranges,
)
from slackwater.runtime.service.zone_rules import check_zones

_CLOCK = "clock"
_QUERY = "query/"
_PLACEMENT = "placement/"
_POLL_S = 0.2
QUERIES_FETCH_WAIT_MS_MAX: Final = 5_000
"""Queries change rarely: a follower of them asks the broker once in this time. A change ends the
wait at once."""

COUNTED_MAX: Final = 10_000
"""Bound on the starts that a supervisor of an earlier version may have counted."""


QueryState = Literal["running", "paused", "deleted"]


@dataclass(frozen=True, slots=True)
class QueryDefinition:
    """One generation of a query as registered.

    A changed query is registered as its next generation, with ordered logs and deltas of its own;
    the topics of results and states are those of the query (rule-29).

    ``e0_us`` is its start time (event time), ``w_us`` the width of its grid in event time.
    ``deadline_us`` is its first deadline in us after the normal time, if queries that read it
    require an earlier one than its own bound does; otherwise None (rule-15).

    ``deployment`` has what the fragments of a query that was registered at run time need of a
    deployment file. It is None for a query that is in the file.

    ``awaits_begin``: nothing is due before its begin is recorded (rule-15); not in a rehearsal.
    ``zones`` identifies the rules of each zone that its windows follow, and those of the queries
    that read the same children: fragments with other rules would disagree about the windows.
    ``partitions`` has, by stream with ``partitions: fixed``, the logs that it takes in (rule-30).
    ``key_hash`` is set for a query without a window with several parts; see ``divided_by``.
    ``child_logs`` is set for a query with several children; see ``logs_of_children``.
    ``lost_until_us`` is set at a site whose Kafka has been lost: from the start up to there (event
    time) any reading may be lost (rule-37).
    """

    name: str
    generation: int
    e0_us: int
    w_us: int
    spec: QuerySpec
    deadline_us: int | None = None
    deployment: Deployment | None = None
    state: QueryState = "running"
    zones: dict[str, str] = field(default_factory=dict)
    awaits_begin: bool = False
    partitions: dict[str, int] = field(default_factory=dict)
    key_hash: KeyHash | None = None
    child_logs: ChildLogs | None = None
    lost_until_us: int | None = None

    @property
    def logs_of_children(self) -> ChildLogs:
        """The child of each log; of entries before decision 217 each source has one."""
        return self.child_logs or of_sources(self.spec.sources, self.spec.children)

    @property
    def divided_by(self) -> KeyHash:
        """By which hash its keys are divided into parts; entries before decision 202 lack it."""
        return self.key_hash or (CRC32 if self.spec.window is None else XXHASH64)

    @property
    def first_deadline_us(self) -> int:
        """The first deadline with which it was registered."""
        own_us = self.spec.bound_us - 2 * self.spec.margin_us
        return own_us if self.deadline_us is None else min(own_us, self.deadline_us)

    @property
    def grid(self) -> Grid:
        """Its cut points, and the units that it answers: windows, or buckets without a window.

        Raises ``EnvironmentProblem`` if this machine's rules of a zone are not the definition's.
        """
        check_zones(self.name, self.zones)
        return Grid(self.w_us, self.spec.units(self.w_us), self.spec.cut_windows)

    def to_json(self) -> dict[str, Any]:
        """The definition as plain JSON values."""
        values = {
            "name": self.name,
            "generation": self.generation,
            "e0_us": self.e0_us,
            "w_us": self.w_us,
            "spec": self.spec.to_json(),
        }
        if self.deadline_us is not None:
            values["deadline_us"] = self.deadline_us
        if self.deployment is not None:
            values["deployment"] = _DEPLOYMENT.dump_python(self.deployment, mode="json")
        if self.state != "running":
            values["state"] = self.state
        if self.zones:
            values["zones"] = self.zones
        if self.awaits_begin:
            values["awaits_begin"] = True
        if self.partitions:
            values["partitions"] = self.partitions
        if self.key_hash is not None:
            values["key_hash"] = self.key_hash
        if self.child_logs is not None:
            values["child_logs"] = self.child_logs.to_json()
        if self.lost_until_us is not None:
            values["lost_until_us"] = self.lost_until_us
        return values

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> QueryDefinition:
        """The inverse of ``to_json``; ``ValueError`` for an invalid definition."""
        try:
            made = cls(**(data | {"spec": QuerySpec.from_json(data["spec"])}))
            if (of := data.get("child_logs")) is not None:
                made = replace(made, child_logs=ChildLogs.from_json(of))
            if made.deployment is not None:
                text = json.dumps(data["deployment"])
                made = replace(made, deployment=_DEPLOYMENT.validate_json(text, strict=True))
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a definition: {error}") from error
        check_ranges(made)
        return made


_DEFINITION: Final = TypeAdapter(QueryDefinition)
_DEPLOYMENT: Final = TypeAdapter(Deployment)


def streams_of(applied: Iterable[QueryDefinition]) -> dict[str, StreamSpec]:
    """The streams that queries read which were applied at run time; a file may lack some."""
    found: dict[str, StreamSpec] = {}
    for query in applied:
        if query.deployment is not None:
            known, sources = query.deployment.streams, query.spec.sources
            found |= {name: known[name] for name in sources if name in known}
    return found


class Registry:
    """Reads and writes the entries of the registry."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._log = (transport.names.registry, 0)

    def publish_clock(self, event_clock: EventClock) -> None:
        """Publish the deployment's event clock."""
        self._publish({_CLOCK: event_clock.to_json()})

    def publish_queries(self, *definitions: QueryDefinition) -> None:
        """Register queries."""
        self._publish({_QUERY + query.name: query.to_json() for query in definitions})

    def publish_partitions(self, stream: str, partitions: int) -> None:
        """Record the number of a stream's source logs."""
        self._publish({PARTITIONS + stream: {"stream": stream, "partitions": partitions}})

    def partitions(self, stream: str) -> int | None:
        """The recorded number of a stream's source logs; None before it is recorded."""
        entry = self._entries().get(PARTITIONS + stream)
        return None if entry is None else cast(int, entry.value)

    def publish_begins(self, begins_us: Mapping[str, int]) -> None:
        """Record the begins of queries, us of wall time, by name."""
        self._publish({BEGIN + q: {"query": q, "begin_us": us} for q, us in begins_us.items()})

    def begins(self) -> dict[str, int]:
        """The recorded begins of queries, us of wall time, by name."""
        return cast(dict[str, int], _named(self._entries(), BEGIN))

    def publish_topics(self, ids: Mapping[str, str]) -> None:
        """Record the ids of topics of the deployment, by name."""
        self._publish({TOPIC + name: {"topic": name, "id": id_} for name, id_ in ids.items()})

    def topics(self) -> dict[str, str]:
        """The recorded ids of the deployment's topics, by name."""
        return cast(dict[str, str], _named(self._entries(), TOPIC))

    def wait_for_partitions(
        self, stream: str, timeout_s: float | None = None, *, at_least: int = 1
    ) -> int:
        """Wait until a number of a stream's source logs is recorded.

        Raises:
            EnvironmentProblem: it is not recorded before the time-out.
        """
        return cast(int, self._wait(PARTITIONS + stream, timeout_s, at_least))

    def take_placement(self, process: str, above: int = -1) -> int:
        """Allocate a placement number for a start of this fragment, greater than all before.

        The number is the offset of a record of this start in the registry's log: unique and
        increasing like an incarnation (rule-6), on any machine and without local state. ``above``
        is a number assigned by an earlier version; the log is extended beyond it, unless the number
        is implausibly large. See rule-27.
        """
        number = self._publish({_PLACEMENT + process: {}})
        while number <= above < number + COUNTED_MAX:
            number = self._publish({_PLACEMENT + process: {}}, above - number + 1)
        return number

    def clock(self) -> EventClock | None:
        """The deployment's event clock; None before it is published."""
        entry = self._entries().get(_CLOCK)
        return None if entry is None else cast(EventClock, entry.value)

    def queries(self) -> dict[str, QueryDefinition]:
        """All registered queries, by name, without those that have been deleted."""
        return {name: q for name, q in self.all_queries().items() if q.state != "deleted"}

    def all_queries(self) -> dict[str, QueryDefinition]:
        """All queries that have been registered, by name."""
        return _queries(self._entries())

    def query(self, name: str) -> QueryDefinition | None:
        """A registered query; None if there is none of this name, or it has been deleted."""
        return self.queries().get(name)

    def wait_for_query(self, name: str, timeout_s: float | None = None) -> QueryDefinition:
        """Wait until the query is registered; ``EnvironmentProblem`` after the timeout.

        A deleted query is returned, too: other queries may read its children.
        """
        return cast(QueryDefinition, self._wait(_QUERY + name, timeout_s))

    def wait_for_readers(self, children_of: str, queries: Collection[QuerySpec]) -> list[QuerySpec]:
        """Wait for the queries that read this query's children; see ``readers``.

        Only those that its definition names are waited for: others may never be registered.
        """
        own, known = self.wait_for_query(children_of), self.all_queries()
        for name in {query.name for query in queries}.intersection(own.spec.shared_by) - {*known}:
            self.wait_for_query(name)
        return self.readers(children_of, queries)

    def readers(self, children_of: str, queries: Collection[QuerySpec]) -> list[QuerySpec]:
        """The queries that read the children of a registered query and have not been deleted.

        They are of the file (``queries``) or were applied at run time. If there is none, it is the
        query itself: its roots may run elsewhere.
        """
        known, names = self.all_queries(), [query.name for query in queries]
        names += [name for name, each in known.items() if each.deployment is not None]
        there = (known[name] for name in dict.fromkeys(names) if name in known)
        live = (each.spec for each in there if each.state != "deleted")
        return [*readers_of(children_of, live)] or [known[children_of].spec]

    def wait_for_clock(self, timeout_s: float | None = None) -> EventClock:
        """Wait until the event clock is published; ``EnvironmentProblem`` after the timeout."""
        return cast(EventClock, self._wait(_CLOCK, timeout_s))

    def expected(self) -> Learned:
        """The recorded steps of the streams' ``expect_every``."""
        return _learned(self._entries())

    def follow_time(
        self, closed: threading.Event | None = None
    ) -> Iterator[tuple[EventClock, Learned, dict[str, int]]]:
        """Yield the event clock, learned steps and begins of queries; again after each change.

        The first time is once the clock is published. Ends soon after ``closed`` is set.
        """
        entries: dict[str, _Entry] = {}
        reported: tuple[Learned, dict[str, int]] | None = None
        for caught_up in self._follow(entries):
            if closed is not None and closed.is_set():
                return
            if not caught_up or _CLOCK not in entries:
                continue
            found = _learned(entries), cast(dict[str, int], _named(entries, BEGIN))
            if found != reported:
                reported = found
                yield cast(EventClock, entries[_CLOCK].value), *found

    def follow_queries(self, closed: threading.Event) -> Iterator[dict[str, QueryDefinition]]:
        """Yield all queries once the registry has been read to its end, and after each change.

        Deleted queries are included. Ends soon after ``closed`` is set.
        """
        entries: dict[str, _Entry] = {}
        reported: dict[str, QueryDefinition] | None = None
        for caught_up in self._follow(entries, fetch_wait_ms_max=QUERIES_FETCH_WAIT_MS_MAX):
            if closed.is_set():
                return
            if caught_up and (found := _queries(entries)) != reported:
                reported = found
                yield found

    def restore(self) -> list[str]:
        """Write again the entries hidden by another record of their key; returns their names."""
        entries = self._entries()
        hidden = {name: entry.definition for name, entry in entries.items() if entry.hidden}
        if hidden:
            self._publish(hidden)
        return sorted(hidden)

    def _publish(self, entries: Mapping[str, Mapping[str, Any]], times: int = 1) -> int:
        """Append these entries ``times`` times; returns the offset of the last one."""
        if not entries:
            return -1
        failures: list[str] = []
        writer = self._transport.writer(failures.append)
        try:
            texts = {name: json.dumps(of, sort_keys=True) for name, of in entries.items()}
            records = [RegistryRecord(*each) for each in texts.items()] * times
            for record in records[:-1]:
                writer.append(*self._log, encode_registry(record), record.name.encode())
            last = records[-1]  # delivered after the others
            key = last.name.encode()
            offset = append_and_wait(writer, self._log, encode_registry(last), key)
        finally:
            writer.close()
        return offset

    def _entries(self) -> dict[str, _Entry]:
        entries: dict[str, _Entry] = {}
        for record in read_to_end(self._transport, self._log):
            _take(record, entries)
        return entries

    def _wait(self, name: str, timeout_s: float | None, at_least: int | None = None) -> object:
        """Follow the log from its beginning until the entry exists, with such a number or more.

        The log is first read to its current end, so that a replaced entry is not returned.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        entries: dict[str, _Entry] = {}
        for caught_up in self._follow(entries):
            if caught_up and name in entries:
                value = entries[name].value
                if at_least is None or cast(int, value) >= at_least:
                    return value
            if deadline is not None and time.monotonic() > deadline:
                raise EnvironmentProblem(f"the registry has no {name} after {timeout_s} s")
        raise AssertionError("following the registry does not end by itself")

    def _follow(
        self, entries: dict[str, _Entry], fetch_wait_ms_max: int = FETCH_WAIT_MS
    ) -> Iterator[bool]:
        reader = self._transport.reader(prefetch_kib_max=1024, fetch_wait_ms_max=fetch_wait_ms_max)
        end: int | None = None
        try:
            while True:
                try:
                    if end is None:
                        starts = self._transport.beginning_offsets([self._log], timeout_s=2.0)
                        end = self._transport.end_offsets([self._log], timeout_s=2.0)[self._log]
                        reader.assign(starts)
                    for record in reader.poll(1000, _POLL_S):
                        _take(record, entries)
                except LogError:
                    end = None  # broker unreachable, or compacted meanwhile: start over
                    yield False
                    continue
                yield reader.position(self._log) >= end
        finally:
            reader.close()


@dataclass(slots=True)
class _Entry:
    """An entry as written and as parsed; ``hidden``: a newer record has its key."""

    definition: dict[str, Any]
    value: object
    hidden: bool = False


def _take(record: RawRecord, entries: dict[str, _Entry]) -> None:
    """Apply a record to the entries; one that is not an entry only hides the entry of its key."""
    try:
        name, entry = _entry(record)
    except MalformedRecordError as error:
        SKIPPED.note(*record.log, record.offset, "not a registry entry", error.reason)
        hidden = entries.get((record.key or b"").decode(errors="replace"))
        if hidden is not None:
            hidden.hidden = True
        return
    entries[name] = entry


def _entry(raw: RawRecord) -> tuple[str, _Entry]:
    where = f"{raw.topic}:{raw.partition}:{raw.offset}"
    record = decode_registry(raw.value, where)
    if raw.key != record.name.encode():
        raise MalformedRecordError(where, "the record's key differs from the entry's name")
    try:
        return record.name, _parsed(record)
    except (ValueError, RecursionError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise MalformedRecordError(where, first) from error


def _parsed(record: RegistryRecord) -> _Entry:
    """Parse an entry; ``ValueError`` for any record that is not one."""
    definition = json.loads(record.definition)
    if not isinstance(definition, dict):
        raise ValueError("an entry is a JSON object")
    if record.name == _CLOCK:
        if any(isinstance(n, int) and abs(n) >= EVENT_US_MAX for n in definition.values()):
            raise ValueError("a time of the clock is out of range")
        return _Entry(definition, clock_from_json(definition))
    if record.name.startswith(_PLACEMENT):
        return _Entry(definition, None)
    for prefix, parse in PARSERS.items():
        if record.name.startswith(prefix):
            return _Entry(definition, parse(record, definition))
    if not record.name.startswith(_QUERY):
        raise ValueError(f"unknown entry {record.name[:80]}")
    try:
        _DEFINITION.validate_json(record.definition, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{place}: {first['msg']}") from error
    query = QueryDefinition.from_json(definition)
    if _QUERY + query.name != record.name:
        raise ValueError(f"query {query.name} under the name {record.name}")
    return _Entry(definition, query)


def _queries(entries: Mapping[str, _Entry]) -> dict[str, QueryDefinition]:
    found = (cast(QueryDefinition, e.value) for n, e in entries.items() if n.startswith(_QUERY))
    return {query.name: query for query in sorted(found, key=lambda query: query.name)}


def _named(entries: Mapping[str, _Entry], prefix: str) -> dict[str, object]:
    """Return the values of the entries with this prefix, by the rest of their names."""
    return {n.removeprefix(prefix): e.value for n, e in entries.items() if n.startswith(prefix)}


def _learned(entries: Mapping[str, _Entry]) -> Learned:
    found: dict[str, list[Step]] = {}
    for name, entry in entries.items():
        if name.startswith(EXPECT_EVERY):
            stream, step = cast(tuple[str, Step], entry.value)
            found.setdefault(stream, []).append(step)
    return {stream: tuple(sorted(steps)) for stream, steps in found.items()}
