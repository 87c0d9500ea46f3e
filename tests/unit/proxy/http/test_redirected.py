"""A post to a node that lacks the stream: 307, with the address of the node that serves it."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tests.support.http_site import JSON_HEADERS, TOKEN, Site, opened
from tests.support.ports import free_port
from tests.unit.proxy.test_pushed import PushWorld, reading

from slackwater.model.deployment import HttpListenSpec
from slackwater.proxy.http.app import Elsewhere
from slackwater.proxy.http.server import HttpServer
from slackwater.proxy.http.tokens import Tokens
from slackwater.runtime.service.own_address import reachable_at
from slackwater.runtime.service.parts import HTTP_AT
from slackwater.status.observed import counters

AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}


@contextmanager
def node(elsewhere: Elsewhere, folder: Path) -> Iterator[int]:
    """A node with another stream only; returns its port."""
    port, ended = free_port(), threading.Event()
    made = HttpServer(HttpListenSpec(port=port), {}, folder, lambda: 0, ended.set, elsewhere)
    made.start()
    yield port
    made.stop()


def posted(port: int, stream: str, headers: dict[str, str]) -> tuple[int, str | None]:
    """Return status and location."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request("POST", f"/streams/{stream}", b"{}", JSON_HEADERS | headers)
        response = connection.getresponse()
        response.read()
        return response.status, response.getheader("Location")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with opened(PushWorld(tmp_path), free_port(), tmp_path) as made:
        yield made


def test_the_address_is_that_of_the_node_that_serves_the_stream(site: Site, tmp_path: Path) -> None:
    other = f"http://127.0.0.1:{site.port}"
    elsewhere = Elsewhere(
        {"room": None, "guarded": Tokens([TOKEN]), "away": None},
        lambda name: None if name == "away" else other,
    )
    with node(elsewhere, tmp_path) as port:
        assert posted(port, "room", {}) == (307, f"{other}/streams/room")
        assert posted(port, "guarded", AUTHORIZED) == (307, f"{other}/streams/guarded")
        assert posted(port, "guarded", {}) == (401, None), "streams are not revealed"
        assert posted(port, "room", {"Host": "rebound.example"}) == (421, None)
        assert posted(port, "away", {}) == (503, None)
    status, answer = site.post(reading(1000))
    assert (status, answer["accepted"]) == (200, 1)


def test_heartbeats_have_the_address(tmp_path: Path) -> None:
    world = PushWorld(tmp_path)
    proxy = world.proxy()
    assert not any(name.startswith(HTTP_AT) for name in proxy.detail())
    world.context_now.http_at = "http://n1:8088"
    assert proxy.detail()[HTTP_AT + "http://n1:8088"] == 1
    assert HTTP_AT + "http://n1:8088" not in counters(proxy.detail())


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        (HttpListenSpec("n1.example", 8088), "http://n1.example:8088"),
        (HttpListenSpec("fd00::1", 443, "c.pem", "k.pem"), "https://[fd00::1]:443"),
        (HttpListenSpec("0.0.0.0", 8088), "http://127.0.0.1:8088"),
    ],
)
def test_a_listener_on_all_addresses_is_reached_where_kafka_is(
    listen: HttpListenSpec, address: str
) -> None:
    assert reachable_at(listen, "nowhere.invalid:x,127.0.0.1:9092") == address


def test_an_address_that_cannot_be_found_is_empty() -> None:
    assert reachable_at(HttpListenSpec("::"), "nowhere.invalid:x") == ""
