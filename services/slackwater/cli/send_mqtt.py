"""Publishes generated readings to the MQTT broker of a stream, in the form that it declares.

Each device has a topic of its own, made of the stream's first filter. Messages have QoS 1, so the
broker has each one when the command ends, whatever happens to the stream's proxy meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from threading import Event
from typing import Any, Final, Self

import orjson
from paho.mqtt.client import Client, ConnectFlags
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from slackwater.model.deployment import StreamSpec
from slackwater.model.errors import EnvironmentProblem
from slackwater.model.mqtt import MqttSpec
from slackwater.proxy.mqtt.credentials import password_of, tls_context_of

DEVICE: Final = "$device"
"""The column of generated readings that has the device, if it is a level of the topic."""
CONNECT_S_MAX: Final = 10.0
FLUSH_S_MAX: Final = 60.0
IN_FLIGHT_MAX: Final = 200
WAITING_MAX: Final = 10_000
"""Messages that wait for an acknowledgement before ``send`` waits, too."""


def topic_of(spec: MqttSpec, level: int | None, device: str) -> str:
    """Return a topic that the stream's first filter matches, with the device at its level."""
    levels = spec.topics[0].split("/")
    if levels[-1] == "#":
        levels[-1:] = ["+"] * max(1, (level or 0) - len(levels) + 1)
    if level is not None and level <= len(levels) and levels[level - 1] == "+":
        levels[level - 1] = device
    return "/".join("generated" if each == "+" else each for each in levels)


def messages(
    spec: StreamSpec, columns: Mapping[str, Sequence[Any]], number: int
) -> Iterator[tuple[str, bytes]]:
    """Yield topic and payload of each message; ``number`` is the counter of the first reading."""
    mqtt = spec.mqtt
    assert mqtt is not None
    names = [name for name in columns if name != DEVICE]
    n = len(columns[names[0]])
    devices = columns.get(DEVICE, ["device-1"] * n)
    readings: dict[str, list[dict[str, Any]]] = {}
    for i in range(n):
        reading = {name: columns[name][i] for name in names}
        if mqtt.sequence is not None:
            reading[mqtt.sequence] = number + i
        readings.setdefault(topic_of(mqtt, spec.key.level, devices[i]), []).append(reading)
    for topic, some in readings.items():
        match mqtt.format:
            case "json-array":
                yield topic, orjson.dumps(some)
            case "json-columns":
                yield topic, orjson.dumps({name: [each[name] for each in some] for name in some[0]})
            case "number":
                yield from ((topic, orjson.dumps(each[names[-1]])) for each in some)
            case _:
                yield from ((topic, orjson.dumps(each)) for each in some)


class MqttPublisher:
    """Connects while entered. Counters of a ``sequence`` begin at the time of the first reading.

    Raises ``EnvironmentProblem`` if the broker refuses the connection or is away at the end.
    """

    def __init__(self, spec: StreamSpec, begin_us: int) -> None:
        assert spec.mqtt is not None
        self._spec, self._mqtt, self._next = spec, spec.mqtt, begin_us
        self._connected, self._refused = Event(), ""
        self._published: list[Any] = []
        self.counts: dict[str, int] = {}
        version = MQTTProtocolVersion.MQTTv5
        if self._mqtt.version != "5":
            version = MQTTProtocolVersion.MQTTv311
        self._client = Client(CallbackAPIVersion.VERSION2, protocol=version)
        self._client.max_inflight_messages_set(IN_FLIGHT_MAX)
        self._client.on_connect = self._on_connect

    def __enter__(self) -> Self:
        mqtt, client = self._mqtt, self._client
        if mqtt.username is not None:
            client.username_pw_set(mqtt.username, password_of(mqtt))
        if mqtt.tls is not None:
            client.tls_set_context(tls_context_of(mqtt.tls))
        try:
            client.connect(mqtt.host, mqtt.port)
        except OSError as error:
            why = error.strerror or error
            raise EnvironmentProblem(f"MQTT broker {mqtt.address}: {why}") from error
        client.loop_start()
        if not self._connected.wait(CONNECT_S_MAX) or self._refused:
            client.loop_stop()
            why = self._refused or f"no answer within {CONNECT_S_MAX:g} s"
            raise EnvironmentProblem(f"MQTT broker {mqtt.address}: {why}")
        return self

    def __exit__(self, *_: object) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def send(self, readings: Mapping[str, Sequence[Any]]) -> None:
        """Publish readings; waits while many messages are not acknowledged."""
        n = len(next(iter(readings.values())))
        for topic, payload in messages(self._spec, readings, self._next):
            info = self._client.publish(topic, payload, qos=1)
            if info.rc not in (MQTTErrorCode.MQTT_ERR_SUCCESS, MQTTErrorCode.MQTT_ERR_NO_CONN):
                raise EnvironmentProblem(f"MQTT broker {self._mqtt.address}: {info.rc.name}")
            self._published.append(info)
        self._next += n
        self.counts["published"] = self.counts.get("published", 0) + n
        if len(self._published) > WAITING_MAX:
            self.flush()

    def flush(self) -> None:
        """Wait until all messages are acknowledged."""
        for info in self._published:
            info.wait_for_publish(FLUSH_S_MAX)
            if not info.is_published():
                raise EnvironmentProblem(
                    f"MQTT broker {self._mqtt.address} has not acknowledged all messages within"
                    f" {FLUSH_S_MAX:g} s"
                )
        self._published.clear()

    def _on_connect(
        self,
        client: Client,
        data: Any,
        flags: ConnectFlags,
        reason: ReasonCode,
        properties: Properties | None,
    ) -> None:
        self._refused = str(reason) if reason.is_failure else ""
        self._connected.set()
