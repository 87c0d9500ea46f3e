"""Checks of a stream that is read from an MQTT broker."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Final

from slackwater.deployment.findings import Findings
from slackwater.deployment.shapes import MqttShape, StreamShape
from slackwater.deployment.yaml_lines import Path as Place
from slackwater.model.mqtt import (
    CLIENT_ID_BYTES_MAX,
    PORT_PLAIN,
    PORT_TLS,
    MqttSpec,
    MqttTlsSpec,
    broker_of,
    has_level,
    overlap,
    why_no_filter,
)
from slackwater.model.names import Names

QOS_2: Final = (
    "with QoS 2 the broker discards a message before the proxy has stored it, so a crash would "
    "lose it: set qos: 1 (messages published with QoS 2 then arrive with 1), and declare a "
    "sequence field"
)
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


class MqttChecker:
    """Converts the ``mqtt`` entries of a file to specifications; client ids must be unique."""

    def __init__(self, names: Names, findings: Findings) -> None:
        self._names = names
        self._findings = findings
        self._clients: dict[tuple[str, int, str], str] = {}

    def spec(self, stream: str, shape: StreamShape) -> MqttSpec | None:
        """Return the specification; None without ``mqtt``, or if its broker cannot be parsed."""
        given = shape.mqtt
        if given is None:
            return None
        place: Place = ("streams", stream, "mqtt")
        try:
            host, port = broker_of(given.broker, PORT_PLAIN if given.tls is None else PORT_TLS)
        except ValueError as error:
            self._findings.error((*place, "broker"), f"{given.broker!r}: {error}")
            return None
        levels = shape.key.levels or (() if shape.key.level is None else (shape.key.level,))
        self._topics(given, levels, place)
        self._login(given, host, place)
        if given.qos == 2:
            self._findings.error((*place, "qos"), QOS_2)
        client_id = given.client_id or f"slackwater-{self._names.prefix}{stream}"
        self._client(stream, (host, port, client_id), place)
        return MqttSpec(
            host=host,
            port=port,
            topics=given.topics,
            client_id=client_id,
            version=given.version,
            format=given.format,
            qos=given.qos,
            in_flight=given.in_flight,
            session_us=given.session,
            tls=None if given.tls is None else MqttTlsSpec(**given.tls.model_dump()),
            username=given.username,
            password_file=given.password_file,
            sequence=None if given.sequence is None else given.sequence.field_,
        )

    def _topics(self, given: MqttShape, levels: Sequence[int], place: Place) -> None:
        sound = []
        for at, topic_filter in enumerate(given.topics):
            reason = why_no_filter(topic_filter)
            lacks = [level for level in levels if not has_level(topic_filter, level)]
            if reason is None and lacks:
                reason = f"matching topics have no level {lacks[0]}, the level of the key"
            if reason is None:
                sound.append(topic_filter)
            else:
                self._findings.error((*place, "topics", at), f"{topic_filter!r}: {reason}")
        for one, other in combinations(sound, 2):
            if overlap(one, other):
                reason = f"{one!r} and {other!r} match the same topics: duplicates are possible"
                self._findings.error((*place, "topics"), reason)
                return

    def _login(self, given: MqttShape, host: str, place: Place) -> None:
        if given.password_file is not None and given.username is None:
            self._findings.error((*place, "username"), "is required with password_file")
        if given.password_file is not None and given.tls is None and host not in LOOPBACK:
            reason = "sends the password unencrypted: add tls"
            self._findings.warn((*place, "password_file"), reason)
        tls = given.tls
        if tls is not None and (tls.cert_file is None) != (tls.key_file is None):
            reason = "a client certificate needs cert_file and key_file"
            self._findings.error((*place, "tls"), reason)

    def _client(self, stream: str, client: tuple[str, int, str], place: Place) -> None:
        if len(client[2].encode(errors="replace")) > CLIENT_ID_BYTES_MAX:
            reason = f"has more than {CLIENT_ID_BYTES_MAX} bytes"
            self._findings.error((*place, "client_id"), reason)
        other = self._clients.setdefault(client, stream)
        if other != stream:
            reason = (
                f"{client[2]!r} is also the client id of stream {other}: "
                "the broker allows one connection per client id"
            )
            self._findings.error((*place, "client_id"), reason)
