"""The MQTT settings of a stream, and the rules of MQTT's topic filters.

A filter is a topic whose levels, between slashes, may be ``+`` (any one level) or, as the last one,
``#`` (any number of levels, including none). A filter that begins with a wildcard does not match
topics that begin with ``$`` (MQTT 5, section 4.7).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

MqttVersion = Literal["3.1.1", "5"]
MqttFormat = Literal["json", "json-array", "json-columns", "number"]

FILTER_BYTES_MAX: Final = 65_535
"""MQTT's limit."""
CLIENT_ID_BYTES_MAX: Final = 65_535
PORT_PLAIN: Final = 1883
PORT_TLS: Final = 8883
IN_FLIGHT_DEFAULT: Final = 10
"""The smallest default window of the common brokers: RabbitMQ 10, Mosquitto and VerneMQ 20."""
SESSION_DEFAULT_US: Final = 7 * 86_400_000_000


@dataclass(frozen=True, slots=True)
class MqttTlsSpec:
    """PEM files of a TLS connection; without ``ca_file`` the system's authorities are trusted."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None


@dataclass(frozen=True, slots=True)
class MqttSpec:
    """The broker, the session and the messages of one stream.

    ``in_flight`` is a lower bound of the broker's window, the number of QoS 1 messages that it
    sends before it waits for acknowledgements. ``sequence``: JSON path of the device's counter.
    """

    host: str
    port: int
    topics: tuple[str, ...]
    client_id: str
    version: MqttVersion = "5"
    format: MqttFormat = "json"
    qos: int = 1
    in_flight: int = IN_FLIGHT_DEFAULT
    session_us: int = SESSION_DEFAULT_US
    tls: MqttTlsSpec | None = None
    username: str | None = None
    password_file: str | None = field(default=None, repr=False)
    sequence: str | None = None

    @property
    def address(self) -> str:
        """The broker's address in messages."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def broker_of(text: str, default_port: int) -> tuple[str, int]:
    """Parse ``host``, ``host:port`` or ``[v6]:port``; ``ValueError`` if it is none of them."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError("an IPv6 address stands in brackets, as in [::1]:1883")
    else:
        host, _, port = text.partition(":")
        if ":" in port:
            raise ValueError("an IPv6 address stands in brackets, as in [::1]:1883")
    if not host or any(c.isspace() or c in "/@" for c in host):
        raise ValueError("must be a host and a port, as in broker.example:1883")
    if not port:
        return host, default_port
    if not port.isdecimal() or not port.isascii() or not 0 < int(port[:6]) < 65_536:
        raise ValueError(f"{port!r} is not a port")
    return host, int(port)


def why_no_filter(text: str) -> str | None:
    """Return why the text is not an allowed topic filter; None if it is one."""
    if not text or len(text.encode(errors="replace")) > FILTER_BYTES_MAX:
        return f"a topic filter must have 1 to {FILTER_BYTES_MAX} bytes"
    if "\0" in text:
        return "a topic filter must not contain a null character"
    levels = text.split("/")
    if levels[0] == "$share":
        return "a shared subscription is not allowed: it divides the messages among clients"
    for at, level in enumerate(levels):
        if "#" in level and (level != "#" or at < len(levels) - 1):
            return "# must be the complete last level"
        if "+" in level and level != "+":
            return "+ must be a complete level"
    return None


def has_level(topic_filter: str, level: int) -> bool:
    """Return whether topics that match the filter may have this level, counted from 1."""
    levels = topic_filter.split("/")
    return levels[-1] == "#" or level <= len(levels)


def overlap(one: str, other: str) -> bool:
    """Return whether any topic matches both filters."""
    a, b = one.split("/"), other.split("/")
    if (a[0].startswith("$") and b[0] in ("+", "#")) or (b[0].startswith("$") and a[0] in "+#"):
        return False
    for at in range(max(len(a), len(b)) + 1):
        left = a[at] if at < len(a) else None
        right = b[at] if at < len(b) else None
        if "#" in (left, right) or (left is None and right is None):
            return True
        if left is None or right is None or (left != right and "+" not in (left, right)):
            return False
    return True
