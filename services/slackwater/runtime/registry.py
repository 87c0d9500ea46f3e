"""The registry: which queries there are, and the one event clock of the deployment.

A query's start E0 and its grid width w are fixed when it is registered (R24, R27) and must be the
same in every process, so they are in its definition here and nowhere else. Processes wait for the
entries they need: what starts first does not matter. Until there is a controller the supervisor
or the registrar writes the entries; the topic is compacted by name, and an entry that is there
already is left as it is, so that a restarted deployment goes on with the start it had.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from slackwater.codec.records import decode_registry, encode_registry
from slackwater.model.deployment import QuerySpec
from slackwater.model.errors import EnvironmentProblem
from slackwater.model.records import RegistryRecord
from slackwater.primitives.eventclock import (
    DataClock,
    EventClock,
    clock_from_json,
    normal_time_us,
)
from slackwater.primitives.windows import Grid
from slackwater.runtime.incarnation import append_and_wait
from slackwater.runtime.topics import REGISTRY
from slackwater.runtime.transport import LogError, Transport, read_to_end

_LOG = (REGISTRY, 0)
_CLOCK = "clock"
_QUERY = "query/"
_PLACEMENT = "placement/"
_poll_s = 0.2
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class QueryDefinition:
    """A registered query. A change of any of it is a new generation with new topics (R27).

    ``e0_us`` is where its event time begins, ``w_us`` the width of its grid in event time.
    """

    name: str
    generation: int
    e0_us: int
    w_us: int
    spec: QuerySpec

    @property
    def grid(self) -> Grid:
        """Its cut points, and what it answers as one: windows, or without a window buckets."""
        return Grid(self.w_us, self.spec.units(self.w_us))

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "name": self.name,
            "generation": self.generation,
            "e0_us": self.e0_us,
            "w_us": self.w_us,
            "spec": self.spec.to_json(),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> QueryDefinition:
        """The inverse of ``to_json``."""
        return cls(**(data | {"spec": QuerySpec.from_json(data["spec"])}))


class AwaitedClock:
    """The deployment's event clock, whether it is published yet or not.

    Until then no time of it is known, so nothing is due: a process can start and be ready for its
    first record, and a rehearsal begins with everybody at once (not with who started quickest).
    """

    def __init__(self, registry: Registry) -> None:
        self._clock: EventClock | None = None
        self._thread = threading.Thread(
            target=self._wait, args=(registry,), name="clock", daemon=True
        )
        self._thread.start()

    def _wait(self, registry: Registry) -> None:
        self._clock = registry.wait_for_clock()

    def normal_time_us(self, e: int, lateness_us: int) -> int | None:
        """When e is due; None while that is not known."""
        return None if self._clock is None else normal_time_us(self._clock, e, lateness_us)

    def observe(self, boundary: int, now: int) -> None:
        """A boundary was read: what moves the clock where it follows the data."""
        if isinstance(self._clock, DataClock):
            self._clock.observe(boundary, now)


class Registry:
    """Reads and writes the entries; see the module's text."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def publish_clock(self, event_clock: EventClock) -> None:
        """Give the deployment its event clock."""
        self._publish({_CLOCK: event_clock.to_json()})

    def publish_queries(self, *definitions: QueryDefinition) -> None:
        """Register queries."""
        self._publish({_QUERY + query.name: query.to_json() for query in definitions})

    def take_placement(self, process: str) -> int:
        """A placement number for a start of this fragment, greater than all before (rule 27).

        It is the offset that the note of this start gets in the registry's log: unique and rising
        like an incarnation (rule 6), wherever the fragment starts and whatever disk it has lost.
        """
        return self._publish({_PLACEMENT + process: {}})

    def clock(self) -> EventClock | None:
        """The deployment's event clock; None before it is published."""
        entry = self._entries().get(_CLOCK)
        return None if entry is None else clock_from_json(entry)

    def queries(self) -> dict[str, QueryDefinition]:
        """All registered queries, by name."""
        found = (
            QueryDefinition.from_json(entry)
            for name, entry in self._entries().items()
            if name.startswith(_QUERY)
        )
        return {query.name: query for query in sorted(found, key=lambda query: query.name)}

    def query(self, name: str) -> QueryDefinition | None:
        """A registered query; None if there is none of this name."""
        entry = self._entries().get(_QUERY + name)
        return None if entry is None else QueryDefinition.from_json(entry)

    def wait_for_query(self, name: str, timeout_s: float | None = None) -> QueryDefinition:
        """Wait until the query is registered; for ever, or ``EnvironmentProblem`` in the end."""
        return self._wait(_QUERY + name, QueryDefinition.from_json, timeout_s)

    def wait_for_clock(self, timeout_s: float | None = None) -> EventClock:
        """Wait until the event clock is published; for ever, or ``EnvironmentProblem``."""
        return self._wait(_CLOCK, clock_from_json, timeout_s)

    def _publish(self, entries: dict[str, dict[str, Any]]) -> int:
        """Append these entries; the offset of the last one."""
        offset = -1
        failures: list[str] = []
        writer = self._transport.writer(failures.append)
        try:
            for name, definition in entries.items():
                record = RegistryRecord(name, json.dumps(definition, sort_keys=True))
                offset = append_and_wait(writer, _LOG, encode_registry(record), name.encode())
        finally:
            writer.close()
        return offset

    def _entries(self) -> dict[str, dict[str, Any]]:
        entries: dict[str, dict[str, Any]] = {}
        for record in read_to_end(self._transport, _LOG):
            _take(record.key, record.value, record.offset, entries)
        return entries

    def _wait(self, name: str, make: Callable[[dict[str, Any]], _T], timeout_s: float | None) -> _T:
        """Follow the log from its beginning until the entry is there.

        What the log holds at the start is read to its end before anything is taken, so that an
        entry that was replaced does not count.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        entries: dict[str, dict[str, Any]] = {}
        for caught_up in self._follow(entries):
            if caught_up and name in entries:
                return make(entries[name])
            if deadline is not None and time.monotonic() > deadline:
                raise EnvironmentProblem(f"the registry has no {name} after {timeout_s} s")
        raise AssertionError("following the registry does not end by itself")

    def _follow(self, entries: dict[str, dict[str, Any]]) -> Iterator[bool]:
        reader = self._transport.reader(prefetch_kib_max=1024)
        end: int | None = None
        try:
            while True:
                try:
                    if end is None:
                        starts = self._transport.beginning_offsets([_LOG], timeout_s=2.0)
                        end = self._transport.end_offsets([_LOG], timeout_s=2.0)[_LOG]
                        reader.assign(starts)
                    for record in reader.poll(1000, _poll_s):
                        _take(record.key, record.value, record.offset, entries)
                except LogError:
                    yield False  # the broker is away, or compaction was quicker: again
                    continue
                yield reader.position(_LOG) >= end
        finally:
            reader.close()


def _take(key: bytes | None, value: bytes, offset: int, entries: dict[str, dict[str, Any]]) -> None:
    if key is None:
        return
    if not value:
        entries.pop(key.decode(), None)
        return
    record = decode_registry(value, f"{REGISTRY}:0:{offset}")
    entries[record.name] = json.loads(record.definition)
