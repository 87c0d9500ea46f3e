"""The HTTP server of a proxy: refusals, limits, and that it continues."""

from __future__ import annotations

import gzip
import http.client
import json
import random
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.certificates import Authority
from tests.support.http_site import JSON_HEADERS, NOW_US, TOKEN, Site, opened
from tests.support.ports import free_port
from tests.support.waiting import eventually
from tests.unit.proxy.test_pushed import POSTED, PushWorld, reading

from slackwater.model.deployment import HttpListenSpec, TimeSpec
from slackwater.model.errors import EnvironmentProblem
from slackwater.proxy.http import app, server
from slackwater.proxy.http.app import Posted
from slackwater.proxy.http.server import HttpServer
from slackwater.proxy.http.tokens import Tokens, read_tokens


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with opened(PushWorld(tmp_path), free_port(), tmp_path) as made:
        yield made


def test_a_posted_body_is_answered_with_its_counts(site: Site) -> None:
    assert site.post([reading(1000), reading(1001)]) == (200, {"stream": "room", "accepted": 2})
    status, answer = site.post([reading(1002), reading(1003, "warm")])
    assert (status, answer["accepted"], answer["malformed"]) == (200, 1, 1)
    assert answer["errors"] == [{"index": 1, "reason": "malformed", "detail": "field t"}]


def test_a_body_has_the_time_at_which_it_was_complete(tmp_path: Path) -> None:
    spec = replace(POSTED, time=TimeSpec(from_="arrival"))
    world = PushWorld(tmp_path, spec)
    with opened(world, free_port(), tmp_path) as made:
        assert made.post([{"node": "a", "t": 1}, {"node": "b", "t": 2}])[1]["accepted"] == 2
        eventually(lambda: len(world.readings()) == 2)
    assert [round(second * 1_000_000) for _, second, _ in world.readings()] == [NOW_US] * 2


def test_lines_are_named_by_their_number(site: Site) -> None:
    lines = b'{"node":"n","ts":1,"t":1}\n\n{"node":"n","ts":2,"t":"warm"}\n'
    status, answer = site.post(lines, {"Content-Type": "application/x-ndjson; charset=utf-8"})
    assert (status, answer["errors"]) == (
        200,
        [{"line": 3, "reason": "malformed", "detail": "field t"}],
    )


def test_a_repeated_request_is_answered_as_the_first(site: Site) -> None:
    headers = {"Idempotency-Key": "k-1"}
    assert site.post(reading(1000), headers)[1] == {"stream": "room", "accepted": 1}
    repeated = {"stream": "room", "accepted": 1, "repeated": True}
    assert site.post(reading(1000), headers)[1] == repeated
    assert site.post(reading(1001), headers)[0] == 422


@pytest.mark.parametrize(
    ("status", "body", "headers", "stream"),
    [
        (400, [{"node": "a"}, 7], {}, "room"),
        (400, b"[{]", {}, "room"),
        (400, {}, {"Idempotency-Key": ""}, "room"),
        (400, {}, {"Idempotency-Key": "k" * 256}, "room"),
        (404, {}, {}, "nowhere"),
        (413, b"[" + b"{}," * 100_000 + b"{}]", {}, "room"),
        (413, {}, {"Content-Length": str(app.BODY_BYTES_MAX + 1)}, "room"),
        (415, b"a=1", {"Content-Type": "application/x-www-form-urlencoded"}, "room"),
        (415, b"x", {"Content-Encoding": "br"}, "room"),
        (415, b"x", {"Content-Encoding": "gzip, gzip"}, "room"),
        (400, b"x", {"Content-Encoding": "gzip"}, "room"),
        (400, b"", {"Content-Encoding": "gzip"}, "room"),
        (400, gzip.compress(b"[]", mtime=0)[:-3], {"Content-Encoding": "gzip"}, "room"),
        (400, gzip.compress(b"[]", mtime=0) + b"more", {"Content-Encoding": "gzip"}, "room"),
        (
            413,
            gzip.compress(bytes(app.UNPACKED_BYTES_MAX + 1), mtime=0),
            {"Content-Encoding": "gzip"},
            "room",
        ),
        (421, {}, {"Host": "rebound.example"}, "room"),
        (421, {}, {"Host": "[::1"}, "room"),
        (401, {}, {}, "guarded"),
        (401, {}, {"Authorization": "Bearer wrong"}, "guarded"),
        (401, {}, {"Authorization": f"Basic {TOKEN}"}, "guarded"),
    ],
)
def test_each_mistake_has_its_status_and_a_reason(
    site: Site, status: int, body: Any, headers: dict[str, str], stream: str
) -> None:
    found, answer = site.post(body, headers, stream)
    assert found == status
    assert answer["error"]
    assert not site.world.readings()


def test_a_token_opens_its_stream(site: Site) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}", "Host": "plant.example"}
    assert site.post(reading(1000), headers, "guarded")[0] == 200


def test_a_body_of_gzip_is_unpacked(site: Site) -> None:
    packed = {"Content-Encoding": "gzip", "Idempotency-Key": "k-1"}
    body = json.dumps([reading(1000), reading(1001)]).encode()
    members = gzip.compress(body[:20]) + gzip.compress(body[20:])
    assert site.post(gzip.compress(body), packed) == (200, {"stream": "room", "accepted": 2})
    for again in (members, gzip.compress(body, 1)):
        assert site.post(again, packed | {"Content-Encoding": "X-GZIP"})[1]["repeated"]
    assert site.post(body, {"Idempotency-Key": "k-1"})[1]["repeated"], "the bytes are the same"


def test_bodies_that_are_unpacked_share_the_memory(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some kilobytes become megabytes, which are reserved step by step."""
    monkeypatch.setattr(app.Room, "reserve", _of_small_room)
    body = gzip.compress(b"[" + b" " * 4_000_000 + json.dumps(reading(1000)).encode() + b"]")
    assert len(body) < 10_000
    status, answer = site.post(body, {"Content-Encoding": "gzip"})
    assert (status, "memory limit" in answer["error"]) == (429, True)
    assert site.post([reading(1000)])[0] == 200


def _of_small_room(room: app.Room, size: int) -> None:
    if size > 100_000:
        raise app.Refusal(429, "the bodies of other requests fill the proxy's memory limit")
    room.left -= size


def test_a_slash_at_the_end_makes_no_difference(site: Site) -> None:
    assert site.post([reading(1000)], stream="room/") == (200, {"stream": "room", "accepted": 1})
    assert site.post([reading(1000)], stream="nowhere/")[0] == 404


@pytest.mark.parametrize("path", ["", "room/more", "room//"])
def test_an_unknown_path_is_refused_with_the_right_form(site: Site, path: str) -> None:
    status, answer = site.post([reading(1000)], stream=path)
    assert (status, "are posted to /streams/NAME" in answer["error"]) == (404, True)
    assert not site.world.readings()


def test_another_method_is_refused_in_json(site: Site) -> None:
    with closing(site.connect()) as connection:
        connection.request("GET", "/streams/room")
        response = connection.getresponse()
        assert response.status == 405
        assert json.loads(response.read())["error"]


def test_bodies_that_wait_share_a_bounded_memory(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow sender occupies the memory of its body until its time limit."""
    monkeypatch.setattr(app, "BODY_S_MAX", 1.0)
    size = app.BODY_BYTES_MAX
    head = b"POST /streams/room HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += b"Content-Length: %d\r\n\r\n[" % size
    slow = [
        socket.create_connection(("127.0.0.1", site.port), timeout=30)
        for _ in range(app.BODIES_BYTES_MAX // size + 1)
    ]
    for connection in slow:
        connection.sendall(head)
    statuses = sorted(int(connection.recv(65_536).split()[1]) for connection in slow)
    assert statuses == [408] * (len(slow) - 1) + [429]
    for connection in slow:
        connection.close()
    assert site.post(reading(1000))[0] == 200


def test_bytes_that_are_no_http_end_their_connection_only(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HEADERS_S_MAX", 0.5)
    head = b"POST /streams/room HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    for data in (
        b"",
        random.Random(1).randbytes(5_000),
        b"\r\n" * 10_000,
        head + b"Content-Length: -1\r\n\r\n{}",
        head + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        head + b"X: " + b"y" * 100,
        head + b"X: " + b"y" * 100_000 + b"\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", site.port), timeout=30) as connection:
            connection.sendall(data)
            try:
                while connection.recv(65_536):
                    pass  # until the server closes the connection
            except ConnectionResetError:
                pass
    assert site.post(reading(1000))[0] == 200


def test_a_connection_serves_request_after_request(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time limit for headers does not close a connection in use."""
    monkeypatch.setattr(server, "HEADERS_S_MAX", 0.2)
    with closing(site.connect()) as connection:
        connection.connect()
        for i in range(20):
            connection.request("POST", "/streams/room", json.dumps(reading(1000 + i)), JSON_HEADERS)
            response = connection.getresponse()
            response.read()
            assert response.status == 200
            threading.Event().wait(0.02)


def test_connections_beyond_their_number_are_closed(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CONNECTIONS_MAX", 2)
    held = [socket.create_connection(("127.0.0.1", site.port), timeout=30) for _ in range(2)]
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        site.post(reading(1000))
    for connection in held:
        connection.close()


def test_connections_in_a_tls_handshake_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CONNECTIONS_MAX", 2)
    issued = Authority(tmp_path).issue("localhost")
    spec = HttpListenSpec("127.0.0.1", free_port(), issued.chain.name, issued.key.name)
    streams = {"guarded": Posted(POSTED, PushWorld(tmp_path).queue, Tokens([TOKEN]))}
    made = HttpServer(spec, streams, tmp_path, lambda: NOW_US, lambda: None)
    made.start()
    address = ("127.0.0.1", spec.port)
    held = [socket.create_connection(address, timeout=30) for _ in range(2)]
    with socket.create_connection(address, timeout=30) as third:
        assert third.recv(1) == b"", "it is closed"
    for connection in held:
        connection.settimeout(0.05)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        connection.close()
    made.stop()


def test_tls_from_files(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("localhost")
    spec = HttpListenSpec("127.0.0.1", free_port(), issued.chain.name, issued.key.name)
    streams = {"guarded": Posted(POSTED, PushWorld(tmp_path).queue, Tokens([TOKEN]))}
    made = HttpServer(spec, streams, tmp_path, lambda: NOW_US, lambda: None)
    made.start()
    trusted = ssl.create_default_context(cafile=str(authority.pem))
    with closing(
        http.client.HTTPSConnection("localhost", spec.port, timeout=30, context=trusted)
    ) as connection:
        connection.request("POST", "/streams/guarded", b"{}", JSON_HEADERS)
        assert connection.getresponse().status == 401
    made.stop()
    with pytest.raises(EnvironmentProblem, match=r"http\.tls"):
        HttpServer(
            replace(spec, key_file="none.key"), streams, tmp_path, lambda: NOW_US, lambda: None
        )


def test_a_port_in_use_ends_the_start(site: Site, tmp_path: Path) -> None:
    streams = {"room": Posted(POSTED, site.world.queue, None)}
    with pytest.raises(EnvironmentProblem, match=f"127.0.0.1:{site.port} cannot be listened on"):
        HttpServer(HttpListenSpec(port=site.port), streams, tmp_path, lambda: NOW_US, lambda: None)


def test_an_address_that_others_reach_needs_tokens(tmp_path: Path) -> None:
    streams = {"room": Posted(POSTED, PushWorld(tmp_path).queue, None)}
    with pytest.raises(EnvironmentProblem, match="room has no token_file"):
        HttpServer(
            HttpListenSpec("0.0.0.0", free_port()), streams, tmp_path, lambda: NOW_US, lambda: None
        )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "has 0 tokens"),
        ("short", ":1: a token has 16"),
        ("# a\n\nwith a blank, and long enough", ":3: a token has 16"),
        ("\n".join(f"token-number-{i:04}" for i in range(101)), "has 101 tokens"),
    ],
)
def test_a_token_file_that_cannot_be_used(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "tokens"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(EnvironmentProblem) as raised:
        read_tokens(path)
    assert reason in str(raised.value)
    assert "with a blank" not in str(raised.value)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_token_file_that_others_can_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "tokens"
    path.write_text(TOKEN)
    path.chmod(mode)
    with pytest.raises(EnvironmentProblem, match=f"mode {mode:04o}.*run chmod 600 {path}"):
        read_tokens(path)


def test_a_token_file_may_hold_several_tokens(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"# the old one\n{TOKEN}\n\nanother-token-of-this-test\n")
    path.chmod(0o600)
    tokens = read_tokens(path)
    assert tokens.accept(f"Bearer {TOKEN}")
    assert tokens.accept("bearer another-token-of-this-test")
    for header in (None, "", "Bearer", f"Bearer {TOKEN}x", TOKEN, "Bearer # the old one"):
        assert not tokens.accept(header)


def test_a_proxy_without_http_does_not_load_the_server() -> None:
    script = (
        "import sys, slackwater.proxy.app as _; print({'uvicorn', 'starlette'} & {*sys.modules})"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "set()"
