"""An MQTT broker in memory, with one client's session, and proxies that read from it."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.support.proxy_world import S, World

from slackwater.model.deployment import FieldSpec, KeySpec, StreamSpec, TimeSpec
from slackwater.model.mqtt import MqttSpec
from slackwater.proxy.mqtt.input import MqttInput
from slackwater.proxy.mqtt.link import Link, Message
from slackwater.proxy.mqtt.messages import cut
from slackwater.proxy.shell import turn
from slackwater.proxy.spool import BYTES_DEFAULT_MAX

MQTT = MqttSpec("h", 1883, ("lab/+",), "c", in_flight=4)
SPEC = StreamSpec(
    "room", KeySpec(level=2), TimeSpec(field="at", unit="us"), (FieldSpec("t", "t"),), mqtt=MQTT
)


def mqtt_spec(
    *,
    sequence: bool = False,
    expect_every_us: int | None = None,
    disorder_us: int = 0,
    in_flight: int = 4,
) -> StreamSpec:
    mqtt = replace(MQTT, sequence="n" if sequence else None, in_flight=in_flight)
    return replace(SPEC, mqtt=mqtt, expect_every_us=expect_every_us, disorder_us=disorder_us)


class StillLink(Link):
    """A link whose stream never waits: the test sets the time."""

    def wait(self, messages: int, timeout_s: float) -> None:
        """Return at once."""


class Broker:
    """A session: waiting messages, and those sent but not acknowledged, in order."""

    def __init__(self, window: int = 4) -> None:
        self.window = window
        self.queue: deque[tuple[str, bytes]] = deque()
        self.unacknowledged: dict[int, tuple[str, bytes]] = {}
        self.is_connected = False
        self._link: Link | None = None
        self._mid = self._now_us = 0

    def publish(self, topic: str, payload: bytes) -> None:
        self.queue.append((topic, payload))

    def connect(self, link: Link) -> None:
        self.disconnect()
        self._link, self.is_connected = link, True
        link.opened(lambda: None)
        for mid, (topic, payload) in self.unacknowledged.items():
            self._send(topic, payload, mid, is_repeated=True)
        link.subscribed()

    def disconnect(self) -> None:
        if self._link is not None:
            self._link.closed()
        self._link, self.is_connected = None, False

    def pump(self, now_us: int) -> None:
        """Process acknowledgements, send messages while the window has room, answer a probe."""
        link, self._now_us = self._link, now_us
        if link is None:
            return
        for mid in link.acknowledgements(now_us):
            del self.unacknowledged[mid]
        probed = link.probe_is_due(now_us)
        while self.queue and len(self.unacknowledged) < self.window:
            topic, payload = self.queue.popleft()
            self._mid = self._mid % 65_535 + 1
            self.unacknowledged[self._mid] = (topic, payload)
            self._send(topic, payload, self._mid, is_repeated=False)
        if probed:
            link.answered()

    @property
    def holds(self) -> int:
        return len(self.queue) + len(self.unacknowledged)

    def _send(self, topic: str, payload: bytes, mid: int, *, is_repeated: bool) -> None:
        assert self._link is not None
        self._link.put(
            Message(
                *(topic, cut(payload), len(payload), mid, is_repeated),
                *(self._link.connection, self._now_us),
            )
        )


class Connecting:
    """Connects on demand, and records the filters to be unsubscribed."""

    def __init__(self, link: Link, broker: Broker) -> None:
        self._link, self._broker = link, broker
        self.left: Sequence[str] = ()
        self.expects_session = False

    def start(self, left: Sequence[str], *, expects_session: bool) -> None:
        self.left, self.expects_session = left, expects_session
        self._broker.connect(self._link)

    def close(self) -> None:
        self._broker.disconnect()


class MqttWorld:
    """A ``World`` with an MQTT broker in it."""

    def __init__(self, folder: Path, spec: StreamSpec = SPEC, window: int = 4) -> None:
        self.world = World(folder, spec=spec)
        self.broker = Broker(window)
        self.sent = 0
        self.link: Link = StillLink(4)
        self.connector = Connecting(self.link, self.broker)

    def proxy(self, spool_bytes_max: int = BYTES_DEFAULT_MAX) -> MqttInput:
        """Start a proxy; the previous one is dropped, as if killed."""
        mqtt = self.world.spec.mqtt
        assert mqtt is not None
        self.link = StillLink(mqtt.in_flight)
        self.connector = Connecting(self.link, self.broker)
        made = MqttInput(self.world.context("a", spool_bytes_max), self.link, self.connector)
        made.begin()
        return made

    def publish(self, device: str = "d", at_us: int | None = None, **values: object) -> int:
        """Publish a device's next reading at the current time; return the reading's number."""
        self.sent += 1
        reading: dict[str, Any] = {"at": at_us or self.world.now_us, "t": self.sent}
        reading |= {"n": self.sent} | values
        self.broker.publish(f"lab/{device}", json.dumps(reading).encode())
        return self.sent

    def run(self, proxy: MqttInput, seconds: float = 1.0) -> None:
        """Let time pass, in steps of some milliseconds."""
        until_us = self.world.now_us + round(seconds * S)
        while self.world.now_us < until_us:
            self.broker.pump(self.world.now_us)
            self.turn(proxy)
            self.world.now_us += 5_000

    def turn(self, proxy: MqttInput) -> int:
        return turn(self.world.contexts[-1], proxy, self.world.now_us)

    def values(self) -> list[int]:
        """Return the numbers of the readings in the source log."""
        return [int(value) for _, _, value in self.world.readings()]
