"""The connection to an MQTT broker, against a socket with scripted responses."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.ports import free_port
from tests.support.waiting import eventually

from slackwater.model.mqtt import MqttSpec, MqttTlsSpec
from slackwater.proxy.mqtt import client as client_module
from slackwater.proxy.mqtt.client import BrokerClient
from slackwater.proxy.mqtt.link import Link
from slackwater.runtime.service.clock import SystemClock

CONNACK_NEW, CONNACK_KEPT = b"\x20\x02\x00\x00", b"\x20\x02\x01\x00"
CONNACK_REFUSED = b"\x20\x02\x00\x05"
CONNECT, PUBACK, SUBSCRIBE, UNSUBSCRIBE = 0x10, 0x40, 0x82, 0xA2


def published(mid: int, payload: bytes, *, flags: int = 0x02, topic: bytes = b"lab/a") -> bytes:
    body = len(topic).to_bytes(2, "big") + topic + mid.to_bytes(2, "big") + payload
    assert len(body) < 128
    return bytes([0x30 | flags, len(body)]) + body


class Part:
    """A broker's side of one connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    def packet(self) -> tuple[int, bytes]:
        """Return the next packet of the client: type with flags, body."""
        kind, length = self._exactly(1)[0], self._exactly(1)[0]
        assert length < 128
        return kind, self._exactly(length)

    def expect(self, kind: int) -> bytes:
        found, body = self.packet()
        assert found == kind, hex(found)
        return body

    def accept(self, connack: bytes = CONNACK_NEW, grant: bytes = b"\x01") -> None:
        self.expect(CONNECT)
        self.sock.sendall(connack)
        mid = self.expect(SUBSCRIBE)[:2]
        self.sock.sendall(bytes([0x90, 2 + len(grant)]) + mid + grant)

    def _exactly(self, count: int) -> bytes:
        got = b""
        while len(got) < count:
            more = self.sock.recv(count - len(got))
            if not more:
                raise ConnectionError("the client has left")
            got += more
        return got


class Played:
    """Accepts connections and runs the next script with each; the last one is repeated."""

    def __init__(self, *parts: Callable[[Part], None]) -> None:
        self.port = free_port()
        self.server = socket.create_server(("127.0.0.1", self.port))
        self.connections = 0
        self.failures: list[BaseException] = []
        self._parts = parts
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                sock, _ = self.server.accept()
            except OSError:
                return
            part = self._parts[min(self.connections, len(self._parts) - 1)]
            self.connections += 1
            with sock:
                sock.settimeout(60)
                try:
                    part(Part(sock))
                except OSError:
                    continue
                except AssertionError as error:
                    self.failures.append(error)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., tuple[Played, Link]]]:
    monkeypatch.setattr(client_module, "FIRST_WAIT_S", 0.01)
    made: list[tuple[BrokerClient, Played]] = []

    def start(
        *parts: Callable[[Part], None], left: tuple[str, ...] = (), **spec: object
    ) -> tuple[Played, Link]:
        played, link = Played(*parts), Link(4)
        own = MqttSpec("127.0.0.1", played.port, ("lab/+",), "c", version="3.1.1")
        given = replace(own, **spec)  # type: ignore[arg-type]
        client = BrokerClient("lab", given, link, SystemClock())
        client.start(left, expects_session=False)
        made.append((client, played))
        return played, link

    yield start
    for client, played in made:
        played.server.close()
        client.close()
        assert not played.failures


def test_a_message_is_acknowledged_on_request_and_not_before(
    started: Callable[..., tuple[Played, Link]],
) -> None:
    acknowledged = threading.Event()

    def part(broker: Part) -> None:
        broker.accept()
        broker.sock.sendall(published(7, b"one") + published(8, b"two", flags=0x0A))
        broker.sock.settimeout(0.3)
        with pytest.raises(TimeoutError):
            broker.packet()
        broker.sock.settimeout(60)
        acknowledged.set()
        assert broker.expect(PUBACK) == b"\x00\x07"
        assert broker.expect(PUBACK) == b"\x00\x08"
        broker.packet()

    before_us = SystemClock().now_us()
    _, link = started(part)
    link.wait(2, 60)
    (first, second), _ = link.take(9)
    assert before_us <= first.arrived_us <= second.arrived_us <= SystemClock().now_us()
    assert (first.topic, first.payload, first.mid, first.is_repeated) == ("lab/a", b"one", 7, False)
    assert (second.payload, second.mid, second.is_repeated) == (b"two", 8, True)
    assert acknowledged.wait(60)
    link.acknowledge([first, second])


def test_retained_messages_are_acknowledged_and_not_handed_over(
    started: Callable[..., tuple[Played, Link]],
) -> None:
    def part(broker: Part) -> None:
        broker.accept()
        broker.sock.sendall(published(7, b"old", flags=0x03) + published(8, b"new"))
        assert broker.expect(PUBACK) == b"\x00\x07"
        broker.packet()

    _, link = started(part)
    link.wait(1, 60)
    assert [message.payload for message in link.take(9)[0]] == [b"new"]
    assert link.retained == 1


def test_a_probe_is_answered_by_an_unsuback(started: Callable[..., tuple[Played, Link]]) -> None:
    def part(broker: Part) -> None:
        broker.accept()
        body = broker.expect(UNSUBSCRIBE)
        assert b"slackwater/probe" in body
        broker.sock.sendall(b"\xb0\x02" + body[:2])
        broker.packet()

    _, link = started(part)
    eventually(lambda: link.is_connected)
    link.ask()
    link.wait(9, 60)
    assert link.take(9)[1] is not None


def test_filters_of_before_are_left(started: Callable[..., tuple[Played, Link]]) -> None:
    seen: list[bytes] = []

    def part(broker: Part) -> None:
        broker.expect(CONNECT)
        broker.sock.sendall(CONNACK_KEPT)
        seen.append(broker.expect(UNSUBSCRIBE))
        broker.packet()

    started(part, left=("old/+",))
    eventually(lambda: bool(seen))
    assert b"old/+" in seen[0]


def test_it_connects_again_and_notes_a_lost_session(
    started: Callable[..., tuple[Played, Link]],
) -> None:
    def ends(broker: Part) -> None:
        broker.accept()
        broker.sock.sendall(published(7, b"one"))

    def stays(broker: Part) -> None:
        broker.accept()
        broker.packet()

    played, link = started(ends, stays)
    eventually(lambda: played.connections == 2 and link.is_connected)
    assert link.sessions_lost == 1
    assert link.take(9)[0] == []  # the broker sends it again


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (
            lambda broker: (broker.expect(CONNECT), broker.sock.sendall(CONNACK_REFUSED)),
            "refused the connection",
        ),
        (lambda broker: broker.accept(grant=b"\x80"), "refused to subscribe 'lab/+'"),
    ],
)
def test_a_refusal_is_logged_and_tried_again(
    started: Callable[..., tuple[Played, Link]],
    caplog: pytest.LogCaptureFixture,
    part: Callable[[Part], None],
    expected: str,
) -> None:
    def waits(broker: Part) -> None:
        part(broker)
        broker.packet()
        broker.packet()

    played, link = started(waits, username="u")
    eventually(lambda: played.connections >= 3)
    assert expected in caplog.text
    assert caplog.text.count("no connection to MQTT broker") == 1
    assert not link.is_connected


def test_whatever_a_broker_sends_the_client_goes_on(
    started: Callable[..., tuple[Played, Link]],
) -> None:
    chance = random.Random(5)

    def rubbish(broker: Part) -> None:
        broker.expect(CONNECT)
        if chance.random() < 0.7:
            broker.sock.sendall(CONNACK_NEW)
        broker.sock.sendall(chance.randbytes(chance.randrange(1, 200)))

    def good(broker: Part) -> None:
        broker.accept()
        broker.sock.sendall(published(7, b"x", topic=b"\xff\xfe"))
        broker.packet()

    played, link = started(*[rubbish] * 6, good)
    eventually(lambda: link.is_connected)
    link.wait(1, 60)
    assert "xff" in link.take(9)[0][-1].topic
    assert played.connections == 7


def test_secrets_are_read_from_files_and_not_logged(
    started: Callable[..., tuple[Played, Link]],
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    seen: list[bytes] = []

    def part(broker: Part) -> None:
        seen.append(broker.expect(CONNECT))
        broker.sock.sendall(CONNACK_REFUSED)

    secret = tmp_path / "secret"
    played, _ = started(part, username="u", password_file=str(secret))
    eventually(lambda: "password_file" in caplog.text)
    assert "No such file" in caplog.text
    assert played.connections == 0
    secret.write_text("top-secret\n")
    eventually(lambda: f"run chmod 600 {secret}" in caplog.text)
    secret.chmod(0o600)
    eventually(lambda: bool(seen))
    assert seen[0].endswith(b"\x00\x01u\x00\x0atop-secret")
    eventually(lambda: "refused" in caplog.text)
    assert "top-secret" not in caplog.text


def test_tls_files_that_cannot_be_used_are_named(
    started: Callable[..., tuple[Played, Link]],
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    started(lambda broker: None, tls=MqttTlsSpec(ca_file=str(tmp_path / "ca.pem")))
    eventually(lambda: "ca.pem cannot be used" in caplog.text)
