"""Follows Kafka for the hub, in threads: a query's results each, queries, alerts, heartbeats.

One follower reads a query, whatever the number of readers, and waits in a fetch of Kafka's until
there is something. The status is made while somebody reads it. Nothing is written to Kafka.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Final, Protocol

from slackwater.client.follow import Follower
from slackwater.deployment.fragments import seen_of
from slackwater.gateway.alert_source import AlertSource
from slackwater.gateway.changes import Changes
from slackwater.gateway.hub import Hub
from slackwater.gateway.sentences import latest_of, status_json
from slackwater.model.deployment import StreamSpec
from slackwater.model.errors import SlackwaterError
from slackwater.model.names import Names, base_of
from slackwater.primitives.eventclock import EventClock
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.topics import partition_count, partition_counts
from slackwater.runtime.logs.transport import LogError
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.heartbeats import PATIENT_GATHER_MS, HeartbeatListener
from slackwater.runtime.service.registry import QueryDefinition, Registry, streams_of
from slackwater.status.copies import on_one_node
from slackwater.status.last_readings import of_cluster
from slackwater.status.overview import Overview
from slackwater.status.processes import ObservedHeartbeat, look_at
from slackwater.status.refused import entries_of, grouped

_log = logging.getLogger(__name__)
LOOK_EVERY_S: Final = 1.0
AGAIN_S: Final = 1.0
BEATS_S_MAX: Final = 3.0
"""How long it then waits for the heartbeats of their processes."""
POLL_S: Final = 5.0
"""A poll returns as soon as there is a record; this is how late it notices the end of a query."""
ASK_S_MAX: Final = 1.0
REGISTRY_S_MAX: Final = 5.0
"""How long the first status waits for the queries."""
QUERIES_MAX: Final = 200
"""Bound on the queries that are followed, each of which is a thread and a Kafka client."""


class ControlsSeen(Protocol):
    """What reports of controllers and nodes; entered while it is used."""

    def look(self) -> Overview | None:
        """Return what the controllers report now; None if none is known."""
        ...


class Sources:
    """What the gateway reads; ``start`` begins it.

    Args:
        cluster: of the deployment.
        names: of its topics.
        controls: asked for controllers and nodes, in one thread.
    """

    def __init__(
        self,
        cluster: Cluster,
        names: Names,
        controls: AbstractContextManager[ControlsSeen],
    ) -> None:
        self._cluster, self._names, self._controls = cluster, names, controls
        self._transport = KafkaTransport(cluster, names)
        self._listener = HeartbeatListener(self._transport, gather_ms=PATIENT_GATHER_MS)
        self._last_readings = of_cluster(cluster, self._transport)
        self._stopping, self._wanted = threading.Event(), threading.Event()
        self._followed: dict[str, threading.Event] = {}
        self._definitions: Mapping[str, QueryDefinition] = {}
        self._asked = threading.Event()
        """The registry has been read once, or cannot be read now."""
        self._clock: EventClock | None = None
        self._asking = threading.Lock()
        self._tell: Callable[[Callable[[], None]], None] = lambda _: None
        self._alerts = AlertSource(self._transport)

    def start(self, hub: Hub, loop: asyncio.AbstractEventLoop) -> None:
        """Begin; the hub is called in this loop."""

        def tell(call: Callable[[], None]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(call)

        def tell_alerts(frame: bytes) -> None:
            tell(lambda: hub.set_alerts(frame))

        self._tell = tell
        self._listener.start()
        threading.Thread(
            target=self._alerts.run, args=(tell_alerts,), name="alerts", daemon=True
        ).start()
        for name, target in (("registered", self._register), ("status", self._look)):
            threading.Thread(target=target, args=(hub,), name=name, daemon=True).start()

    def set_readers(self, count: int) -> None:
        """Make the status while there are readers."""
        (self._wanted.set if count else self._wanted.clear)()

    def look_once(self) -> None:
        """Make the status soon, once."""
        self._wanted.set()

    def stop(self) -> None:
        """End the threads soon."""
        for event in (self._stopping, self._wanted, self._asked):
            event.set()
        for ended in self._followed.values():
            ended.set()
        self._alerts.stop()
        self._listener.stop()

    def quarantine(self, stream: str) -> list[dict[str, Any]] | None:
        """Return what a stream has in quarantine, by reason; None if there is no such stream.

        One request at a time reads the topic. ``LogError`` or ``EnvironmentProblem`` if Kafka does
        not answer.
        """
        topic = self._names.quarantine(stream)
        with self._asking:
            if not partition_counts(self._cluster, [topic]):
                return None
            spec = self._stream_spec(stream)
            return [group.to_json(spec) for group in grouped(entries_of(self._transport, topic))]

    def alerts(self) -> dict[str, Any]:
        """Return which alerts stand; ``EnvironmentProblem`` if they have not been read."""
        return self._alerts.to_json()

    def _stream_spec(self, stream: str) -> StreamSpec | None:
        return streams_of(self._definitions.values()).get(stream)

    def _register(self, hub: Hub) -> None:
        while not self._stopping.is_set():
            try:
                # Reading a missing topic would wait for it, in a client that asks again and again.
                if not partition_counts(self._cluster, [self._names.registry]):
                    self._alerts.set_queries({})
                    self._tell(hub.know)
                else:
                    for found in Registry(self._transport).follow_queries(self._stopping):
                        self._take(found, hub)
            except SlackwaterError as error:
                _log.info("cannot read the queries, will retry: %s", error)
            self._asked.set()
            self._stopping.wait(AGAIN_S)

    def _take(self, found: Mapping[str, QueryDefinition], hub: Hub) -> None:
        self._definitions = found
        self._asked.set()
        self._alerts.set_queries({name: each.spec for name, each in latest_of(found).items()})
        live = {base_of(name) for name, each in found.items() if each.state != "deleted"}
        for query in self._followed.keys() - live:
            self._followed.pop(query).set()
            self._tell(lambda query=query: hub.end(query))  # type: ignore[misc]
        for query in sorted(live - self._followed.keys())[: QUERIES_MAX - len(self._followed)]:
            ended = self._followed[query] = threading.Event()
            self._tell(lambda query=query: hub.open(query))  # type: ignore[misc]
            threading.Thread(
                target=self._follow, args=(query, ended, hub), name=f"follow {query}", daemon=True
            ).start()
        self._tell(hub.know)

    def _follow(self, query: str, ended: threading.Event, hub: Hub) -> None:
        """Read the query's results, from some time ago on, until it has ended."""
        while not ended.is_set():
            try:
                parts = partition_count(self._cluster, self._names.results(query, "stable"))
                transport = KafkaTransport(self._cluster, self._names)
                follower = Follower(transport, query, parts, "recent")
                try:
                    self._tell(lambda: hub.open(query))
                    self._read(follower, query, ended, hub)
                finally:
                    follower.close()
            except SlackwaterError as error:
                _log.info("cannot read results of %s, will retry: %s", query, error)
            ended.wait(AGAIN_S)

    def _read(self, follower: Follower, query: str, ended: threading.Event, hub: Hub) -> None:
        changes, is_current = Changes(), False
        while not ended.is_set():
            if not is_current and follower.at_present:
                is_current = True
                self._tell(lambda: hub.reach(query))
            made = [changes.take(item) for item in follower.poll(POLL_S)]
            new, begins = [each for each in made if each is not None], dict(changes.begins)
            if new and not ended.is_set():
                self._tell(
                    lambda new=new, begins=begins: hub.publish(  # type: ignore[misc]
                        query, new, begins
                    )
                )

    def _look(self, hub: Hub) -> None:
        with self._controls as controls:
            self._wanted.wait()
            self._asked.wait(REGISTRY_S_MAX)  # otherwise the first status may have no queries
            specs = {name: each.spec for name, each in self._definitions.items()}
            self._listener.wait_for(
                lambda view: {*seen_of(specs, view.all()).values()} <= view.all().keys(),
                BEATS_S_MAX,
            )
            while not self._stopping.is_set():
                self._wanted.wait()
                if not hub.readers:
                    self._wanted.clear()
                try:
                    status = self._status(controls)
                    self._tell(lambda status=status: hub.set_status(status))  # type: ignore[misc]
                except Exception:  # noqa: BLE001 -- the page has to say what else is known
                    _log.exception("the status cannot be made")
                self._stopping.wait(LOOK_EVERY_S)

    def _status(self, controls: ControlsSeen) -> dict[str, Any]:
        beats = {
            name: ObservedHeartbeat(beat, self._listener.age_ms(name) or 0.0)
            for name, beat in self._listener.all().items()
        }
        answers = any(beat.is_fresh for beat in beats.values()) or self._kafka_answers()
        definitions = self._definitions
        running = {name: each for name, each in definitions.items() if each.state == "running"}
        now_us = SystemClock().now_us()
        if answers and running and self._clock is None:
            with contextlib.suppress(SlackwaterError):
                self._clock = Registry(self._transport).clock()
        event_us = None if self._clock is None else self._clock.event(now_us)
        picture = look_at(beats, running, None, now_us, event_us)
        if answers:
            picture = self._last_readings.complete(picture)
        overview = controls.look()
        if overview is not None:
            rows = on_one_node(picture.queries, overview)
            picture = replace(picture, queries=rows)
        return status_json(definitions, picture, overview, now_us, kafka_answers=answers)

    def _kafka_answers(self) -> bool:
        try:
            self._transport.end_offsets([(self._names.registry, 0)], timeout_s=ASK_S_MAX)
        except (LogError, SlackwaterError):
            return False
        return True
