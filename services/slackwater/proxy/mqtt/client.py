"""Keeps a stream connected to its MQTT broker, in a separate thread.

Each connection has a new paho client, so that no state of an earlier connection is left. The
session is kept by the broker: with a fixed client id and no clean start, it stores the
subscriptions and the QoS 1 messages of a disconnected client. Acknowledgements are manual (decision
91).

paho's own loops are not used: they wait with ``select``, which fails above 1,024 open files, and a
process may serve hundreds of streams. All calls of a client are made in the same thread.

A probe (``link``) is an UNSUBSCRIBE of a filter without a subscription, to which the broker must
respond. A PING would serve as well, but paho does not report its response.
"""

from __future__ import annotations

import logging
import selectors
import socket
import ssl
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from paho.mqtt.client import Client, ConnectFlags, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from slackwater.model.errors import SlackwaterError
from slackwater.model.mqtt import MqttSpec
from slackwater.model.names import ProxyName
from slackwater.proxy.mqtt.credentials import BrokerError, password_of, tls_context_of
from slackwater.proxy.mqtt.link import Link, Message
from slackwater.proxy.mqtt.messages import cut
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.log import named

_log = logging.getLogger(__name__)
KEEP_ALIVE_S: Final = 30
FIRST_WAIT_S: Final = 0.5
WAIT_S_MAX: Final = 30.0
READY_US_MAX: Final = 30_000_000
"""Maximum time to connect and subscribe."""
SELECT_S_MAX: Final = 1.0
SESSION_S_MAX: Final = 2**32 - 2
PROBE: Final = "slackwater/probe"
"""A filter without a subscription. Its name must not match one of the stream's filters."""
_PROTOCOLS: Final = {"3.1.1": MQTTProtocolVersion.MQTTv311, "5": MQTTProtocolVersion.MQTTv5}
_NO_RETAINED: Final = SubscribeOptions.RETAIN_DO_NOT_SEND


class BrokerClient:
    """Connects, and reconnects with back-off, until closed."""

    def __init__(self, stream: str, spec: MqttSpec, link: Link, clock: SystemClock) -> None:
        self._spec, self._link, self._clock = spec, link, clock
        self._left: Sequence[str] = ()
        self._expects_session = False
        self._stopping = threading.Event()
        self._woken: socket.socket | None = None
        self._reported = ""
        self._name = ProxyName(stream).process
        self._thread = threading.Thread(target=self._run, name=f"mqtt/{stream}", daemon=True)

    def start(self, left: Sequence[str], *, expects_session: bool) -> None:
        """Start to connect; attempts continue until closed."""
        self._left, self._expects_session = left, expects_session
        self._thread.start()

    def close(self) -> None:
        """End the connection."""
        self._stopping.set()
        self._wake()
        if self._thread.is_alive():
            self._thread.join(SELECT_S_MAX)

    def _wake(self) -> None:
        woken = self._woken
        if woken is not None:
            with suppress(OSError):  # full, so that the thread wakes anyway, or closed
                woken.send(b"\0")

    def _run(self) -> None:
        with named(self._name):
            self._stay_connected()

    def _stay_connected(self) -> None:
        wait_s = FIRST_WAIT_S
        while not self._stopping.is_set():
            connection = Connection(
                self._spec, self._link, self._clock, self._left, self._expects_session
            )
            try:
                self._serve(connection)
                reason = "the connection has ended"
            except (OSError, ValueError, SlackwaterError) as error:
                reason = str(error)
            except Exception:  # noqa: BLE001 - whatever a broker sends, the stream goes on
                _log.exception("the connection to %s failed", self._spec.address)
                reason = "an unexpected error, which is logged before this line"
            finally:
                self._link.closed()
                connection.close()
            if self._stopping.is_set():
                return
            self._expects_session |= connection.was_ready
            wait_s = FIRST_WAIT_S if connection.was_ready else min(2 * wait_s, WAIT_S_MAX)
            self._report(reason, wait_s, connection.was_ready)
            self._stopping.wait(wait_s)

    def _report(self, reason: str, wait_s: float, was_ready: bool) -> None:
        """Log a reason once, until it changes or a connection was ready."""
        if was_ready or reason != self._reported:
            _log.warning(
                "no connection to MQTT broker %s: %s; retrying in %g s, with back-off",
                self._spec.address,
                reason,
                wait_s,
            )
        self._reported = reason

    def _serve(self, connection: Connection) -> None:
        ours, self._woken = socket.socketpair()
        with ours, self._woken, selectors.DefaultSelector() as selector:
            ours.setblocking(False)
            self._woken.setblocking(False)
            selector.register(ours, selectors.EVENT_READ)
            self._link.opened(self._wake)
            connection.open()
            while connection.step(selector, ours) and not self._stopping.is_set():
                pass


class Connection:
    """One connection, from CONNECT to its end."""

    def __init__(
        self,
        spec: MqttSpec,
        link: Link,
        clock: SystemClock,
        left: Sequence[str],
        expects_session: bool,
    ) -> None:
        self._spec, self._link, self._clock = spec, link, clock
        self._left, self._expects_session = left, expects_session
        self._ready_by_us = clock.monotonic_us() + READY_US_MAX
        self.was_ready = False
        self._failure = ""
        self._subscribe_mid = self._probe_mid = -1
        self._registered: tuple[int, int] | None = None
        client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=spec.client_id,
            protocol=_PROTOCOLS[spec.version],
            reconnect_on_failure=False,
            manual_ack=True,
            clean_session=None if spec.version == "5" else False,
        )
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_unsubscribe = self._on_unsubscribe
        client.on_message = self._on_message
        client.on_disconnect = self._on_disconnect
        self._client = client

    def open(self) -> None:
        """Connect, and send CONNECT; blocks for connection and TLS, at most for some seconds."""
        spec, client = self._spec, self._client
        if spec.username is not None:
            client.username_pw_set(spec.username, password_of(spec))
        if spec.tls is not None:
            client.tls_set_context(tls_context_of(spec.tls))
        if spec.version == "5":
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = min(spec.session_us // 1_000_000, SESSION_S_MAX)
            properties.ReceiveMaximum = spec.in_flight
            client.connect(
                spec.host, spec.port, KEEP_ALIVE_S, clean_start=False, properties=properties
            )
        else:
            client.connect(spec.host, spec.port, KEEP_ALIVE_S)

    def step(self, selector: selectors.BaseSelector, woken: socket.socket) -> bool:
        """Wait for I/O and process it; return False if the connection has ended."""
        client = self._client
        sock = client.socket()
        if sock is None:
            return self._ended()
        self._register(selector, sock)
        pending = isinstance(sock, ssl.SSLSocket) and sock.pending() and not self._link.is_full
        ready = selector.select(0 if pending else SELECT_S_MAX)
        for key, events in ready:
            if key.fileobj is woken:
                woken.recv(4096)
            elif events & selectors.EVENT_WRITE:
                client.loop_write()
        if not self._link.is_full and (pending or self._is_readable(ready, sock)):
            client.loop_read()
        client.loop_misc()
        self._answer()
        if not self.was_ready and self._clock.monotonic_us() > self._ready_by_us:
            raise BrokerError(f"not subscribed within {READY_US_MAX // 1_000_000} s")
        return client.socket() is not None or self._ended()

    def close(self) -> None:
        """Close the socket; the broker keeps the session."""
        self._client.disconnect()

    # Steps.

    def _register(self, selector: selectors.BaseSelector, sock: Any) -> None:
        events = 0 if self._link.is_full else selectors.EVENT_READ
        events |= selectors.EVENT_WRITE if self._client.want_write() else 0
        wanted = (sock.fileno(), events)
        if wanted == self._registered:
            return
        if self._registered is not None and self._registered[1]:
            selector.unregister(self._registered[0])
        if events:
            selector.register(sock.fileno(), events)
        self._registered = wanted

    @staticmethod
    def _is_readable(ready: Sequence[tuple[selectors.SelectorKey, int]], sock: Any) -> bool:
        return any(
            key.fileobj == sock.fileno() and events & selectors.EVENT_READ for key, events in ready
        )

    def _answer(self) -> None:
        """Send acknowledgements, and a probe if one is due."""
        client, now_us = self._client, self._clock.now_us()
        for mid in self._link.acknowledgements(now_us):
            client.ack(mid, 1)
        if self._link.probe_is_due(now_us):
            self._probe_mid = client.unsubscribe(PROBE)[1] or -1

    def _ended(self) -> bool:
        if self._failure:
            raise BrokerError(self._failure)
        return False

    # Callbacks: packets from the broker.

    def _on_connect(
        self,
        client: Client,
        _data: object,
        flags: ConnectFlags,
        reason: ReasonCode,
        _properties: Properties | None,
    ) -> None:
        if reason.is_failure:
            self._failure = f"the broker refused the connection: {reason}"
            return
        spec = self._spec
        if self._expects_session and not flags.session_present:
            self._link.session_was_lost()
            _log.warning(
                "MQTT broker %s has lost the session of client %s: messages published while the "
                "client was disconnected are lost",
                spec.address,
                spec.client_id,
            )
        options: Any
        if spec.version == "5":
            chosen = SubscribeOptions(qos=spec.qos, retainHandling=_NO_RETAINED)
            options = [(each, chosen) for each in spec.topics]
        else:
            options = [(each, spec.qos) for each in spec.topics]
        if self._left:
            client.unsubscribe(list(self._left))
        result, mid = client.subscribe(options)
        self._subscribe_mid = mid if result == MQTTErrorCode.MQTT_ERR_SUCCESS and mid else -1

    def _on_subscribe(
        self,
        client: Client,
        _data: object,
        mid: int,
        reasons: Sequence[ReasonCode],
        _properties: Properties | None,
    ) -> None:
        if mid != self._subscribe_mid:
            return
        refused = [
            f"{each!r} ({reason})"
            for each, reason in zip(self._spec.topics, reasons, strict=False)
            if reason.is_failure
        ]
        if refused:
            self._failure = f"the broker refused to subscribe {', '.join(refused)}"
            client.disconnect()
            return
        if any(reason.value < self._spec.qos for reason in reasons):
            _log.warning("%s grants QoS 0 only: messages can be lost", self._spec.address)
        self.was_ready = True
        self._link.subscribed()
        _log.info("subscribed at MQTT broker %s", self._spec.address)

    def _on_unsubscribe(self, _client: Client, _data: object, mid: int, *_rest: object) -> None:
        if mid == self._probe_mid:
            self._link.answered()

    def _on_message(self, _client: Client, _data: object, message: MQTTMessage) -> None:
        mid = message.mid if message.qos == 1 else 0
        if message.retain:
            # The last message of a topic, repeated with each subscription: history, not a reading.
            self._link.ignored(mid)
            return
        payload = bytes(message.payload)
        try:
            topic = message.topic
        except UnicodeDecodeError:
            topic = repr(message._topic)
        self._link.put(
            Message(
                topic=topic,
                payload=cut(payload),
                size=len(payload),
                mid=mid,
                is_repeated=bool(message.dup),
                connection=self._link.connection,
                arrived_us=self._clock.now_us(),
            )
        )

    def _on_disconnect(
        self,
        _client: Client,
        _data: object,
        _flags: object,
        reason: ReasonCode,
        _properties: Properties | None,
    ) -> None:
        if not self._failure and reason.is_failure:
            self._failure = f"disconnected: {reason}"
