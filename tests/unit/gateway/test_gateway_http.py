"""The gateway over HTTP: its API and streams, who may read, and what bad requests get."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.gateway_site import BEGIN, Recorded, Site
from tests.support.waiting import WAIT_S_MAX, eventually

from slackwater.codec.results import format_time
from slackwater.delivery.records import AlertRecord, Firing
from slackwater.gateway.access import SESSION_S, Access, read_access, why_not_from
from slackwater.gateway.app import BODY_BYTES_MAX
from slackwater.gateway.files import read_page
from slackwater.gateway.openapi import document
from slackwater.gateway.server import Listen, check_listening
from slackwater.model.alerts import AlertSpec
from slackwater.model.errors import EnvironmentProblem

VIEW, OPERATE = "view-token-0123456789", "operate-token-0123456789"
EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as started:
        yield started


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    file = tmp_path / "tokens"
    file.write_text(f"# who may read\nview {VIEW}\n\noperate {OPERATE}\n")
    file.chmod(0o600)
    return file


@pytest.fixture
def guarded(tokens: Path) -> Iterator[Site]:
    with Site(tokens) as started:
        yield started


def some() -> Recorded:
    made = Recorded()
    made.window(0, {"a": 20.0, EVIL: 21.0})
    made.window(1, {"a": 20.5}, "tentative", 1, ("room-2",), 1_900)
    made.undo(1, 1)
    made.window(1, {"a": 20.75}, epoch=1, late_ms=9_000)
    return made


def valid(value: Any, schema: Mapping[str, Any], at: str = "") -> None:
    """Check a value against the part of JSON Schema that the document uses."""
    kinds: dict[str, Callable[[Any], bool]] = {
        "object": lambda v: isinstance(v, dict),
        "array": lambda v: isinstance(v, list),
        "string": lambda v: isinstance(v, str),
        "boolean": lambda v: isinstance(v, bool),
        "null": lambda v: v is None,
        "integer": lambda v: isinstance(v, int) and not isinstance(v, bool),
        "number": lambda v: isinstance(v, int | float) and not isinstance(v, bool),
    }
    types = schema.get("type", list(kinds))
    types = [types] if isinstance(types, str) else types
    assert any(kinds[each](value) for each in types), f"{at}: {value!r} is not {types}"
    assert value in schema.get("enum", [value]), f"{at}: {value!r}"
    if isinstance(value, dict):
        assert not schema.get("required", set()) - value.keys(), f"{at}: {value.keys()}"
        for name, of in schema.get("properties", {}).items():
            if name in value:
                valid(value[name], of, f"{at}.{name}")
    if isinstance(value, list):
        for each in value:
            valid(each, schema.get("items", {}), f"{at}[]")


def paths() -> Iterator[tuple[str, dict[str, Any]]]:
    query = {"limit": "5", "window_start": format_time(BEGIN + 10_000_000), "key": "a"}
    for path, methods in document()["paths"].items():
        operation = methods["get"]
        asked = path.replace("{query}", "climate").replace("{stream}", "room-1")
        given = [p["name"] for p in operation["parameters"] if p["in"] == "query"]
        text = "&".join(f"{name}={query[name]}" for name in given if name in query)
        yield f"{asked}?{text}", operation


def test_the_document_describes_the_answers(site: Site) -> None:
    site.publish(some())
    site.refused["room-1"] = [
        {
            "reason": "late",
            "fault": "",
            "count": 1,
            "first_at": None,
            "last_at": None,
            "keys": {},
            "advice": "",
            "example": {},
        }
    ]
    site.rules["climate", "mute"] = AlertSpec("mute", stream="room-2", missing_us=1)
    site.rules["climate", "hot"] = AlertSpec("hot", "x_avg > 26")
    firing = Firing("id", 0, 60_000_000, {"x_avg": 27.5}, ("room-2",), tentative=True)
    for state in ("firing", "withdrawn"):
        site.alerts_view.take(
            AlertRecord("hot", "climate", "<b>", state, firing, 60_000_000, 1, 2, {"x_avg": None})
        )
    other = replace(firing, id="other")
    for rule in ("hot", "mute"):
        site.alerts_view.take(AlertRecord(rule, "climate", "a", "firing", other, 60_000_000, 1, 2))
    asked = 0
    for path, operation in paths():
        if path.startswith("/api/v1/stream?"):
            continue  # no JSON
        found, body = site.get(path)
        assert found == 200, (path, body)
        schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
        valid(body, schema, path)
        asked += 1
    assert asked == 11
    assert site.get("/api/v1/openapi.json")[1] == document()


def test_the_document_names_every_route(site: Site) -> None:
    from slackwater.gateway.app import Gateway

    gateway = Gateway(site.hub, Access(), {}, lambda _: None, dict, lambda: None, lambda: 0)
    routes = {route.path for route in gateway.app()._app.router.routes}  # type: ignore[attr-defined]
    assert {path for path in routes if path.startswith("/api/")} == document()["paths"].keys()


def test_a_stream_begins_with_the_status_and_a_snapshot_and_goes_on(site: Site) -> None:
    made = some()
    site.publish(made)
    with site.events("/api/v1/stream?query=climate") as events:
        assert json.loads(events.next()["data"])["queries"][0]["query"] == "climate"
        assert events.next()["event"] == "snapshot"
        assert [events.change()["kind"] for _ in range(4)] == ["answer", "answer", "undo", "answer"]
        made.window(2, {"a": 1.0})
        site.publish(made)
        last = events.next("change")
        assert last["id"] == "climate/0:9"
        site.set_status(well=False)
        assert not json.loads(events.next("status")["data"])["well"]
    made.window(3, {"a": 2.0})
    site.publish(made)
    with site.events("/api/v1/stream?query=climate", last_event_id=last["id"]) as events:
        assert events.next()["event"] == "status"
        assert events.next() == {
            "id": "climate/0:11",
            "event": "change",
            "data": events_data(3, "a", 2.0),
        }


def events_data(number: int, key: str, average: float) -> str:
    made = Recorded()
    made.seq = 10
    made.window(number, {key: average})
    (change,) = made.take()
    return str(change.body.decode())


@pytest.mark.parametrize(
    "last_id", ["climate/0:99999", "nonsense", "climate/" + "9" * 15_000, "climate/0:1;DROP"]
)
def test_a_forged_id_gives_a_snapshot(site: Site, last_id: str) -> None:
    site.publish(some())
    with site.events("/api/v1/stream?query=climate", last_event_id=last_id) as events:
        assert events.next()["event"] == "status"
        assert events.next()["event"] == "snapshot"


def test_huge_headers_are_refused(site: Site) -> None:
    with site.request("GET", "/", {"Last-Event-ID": "9" * 70_000}) as response:
        assert response.status in (400, 431)


def test_a_gateway_that_starts_lets_its_readers_wait_for_what_they_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("slackwater.gateway.app.SETTLE_S_MAX", 60.0)
    made = some()
    with Site(is_settled=False) as site:

        def read() -> None:
            site.hub.open("climate")
            site.hub.know()

        def rest() -> None:
            site.hub.publish("climate", made.take(), {0: 0})
            site.hub.reach("climate")

        steps = [
            threading.Timer(after_s, site.call, [step])
            for after_s, step in ((0.2, read), (0.4, rest))
        ]
        for step in steps:
            step.start()
        with site.events("/api/v1/stream?query=climate", last_event_id="climate/0:4") as events:
            assert events.next("snapshot", "change")["event"] == "change"
        assert site.get("/api/v1/queries/none/windows")[0] == 404


def test_a_gateway_to_which_kafka_tells_nothing_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slackwater.gateway.app.SETTLE_S_MAX", 0.05)
    with Site(is_settled=False) as site:
        asked = "/api/v1/stream?query=climate"
        assert site.get(asked)[0] == 503
        assert site.get(asked, last_event_id="climate/0:4")[0] == 503, "it keeps what it has"
        assert site.get("/api/v1/queries/climate/windows")[0] == 503
        site.call(lambda: site.hub.open("climate"))
        assert site.get(asked, last_event_id="climate/0:4")[0] == 503
        with site.events(asked) as events:
            assert events.next()["event"] == "status", "a new reader sees that Kafka is away"


def test_a_query_that_is_read_again_ends_its_streams_whose_readers_go_on(site: Site) -> None:
    made = some()
    site.publish(made)
    with site.events("/api/v1/stream?query=climate") as events:
        for _ in range(4):
            last = events.next("change")
        again = some()
        again.window(2, {"a": 1.0})

        def read_again() -> None:
            site.hub.open("climate")
            site.hub.publish("climate", again.take(), {0: 0})
            site.hub.reach("climate")

        site.call(read_again)
        assert events.next() == {}, "the end, without a word of the query's"
    with site.events("/api/v1/stream?query=climate", last_event_id=last["id"]) as events:
        assert events.next("snapshot", "change")["event"] == "change"


def test_a_deleted_query_ends_its_streams(site: Site) -> None:
    with site.events("/api/v1/stream?query=climate") as events:
        events.next("snapshot")
        site.call(lambda: site.hub.end("climate"))
        assert events.next("ended")["data"] == "{}"
        assert events.next() == {}
    assert site.get("/api/v1/stream?query=climate")[0] == 404
    assert site.get("/api/v1/queries/climate/windows")[0] == 404


def test_a_reader_that_has_gone_is_forgotten(site: Site) -> None:
    with site.events("/api/v1/stream?query=climate"):
        assert site.hub.readers == 1
    deadline = time.monotonic() + 10
    while site.hub.readers and time.monotonic() < deadline:
        site.set_status()
        time.sleep(0.05)
    assert site.hub.readers == 0


def test_a_reader_that_does_not_read_is_cut_off(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its outbox overflows, or its connection takes nothing for a while; nobody waits for it."""
    monkeypatch.setattr("slackwater.gateway.streaming.WRITE_S_MAX", 0.5)
    slow = socket.create_connection(("127.0.0.1", site.port))
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    slow.sendall(b"GET /api/v1/stream?query=climate HTTP/1.1\r\nHost: localhost\r\n\r\n")
    made = Recorded()
    with site.events("/api/v1/stream?query=climate") as events:
        events.next("snapshot")
        for number in range(60):
            made.window(number, {str(key) + "x" * 500: 1.0 for key in range(300)})
            site.publish(made)
            assert events.change()["kind"] == "answer"
        eventually(lambda: site.hub.readers == 1, "the slow reader is cut off")
    # TCP sends the rest when it next probes the full receive buffer: the longer the buffer has been
    # full, the rarer the probes, up to two minutes.
    slow.settimeout(WAIT_S_MAX)
    with slow:
        sent = b""
        is_reset = False
        try:
            while data := slow.recv(65_536):
                sent += data
        except ConnectionResetError:
            is_reset = True
    assert is_reset, "an orderly end would wait for it once more"
    assert len(sent) < 2_000_000, "it was sent what fits its buffers"


def test_keys_are_data(site: Site) -> None:
    site.publish(some())
    _, body = site.get("/api/v1/queries/climate/windows")
    assert body["windows"][0]["rows"][1]["key"] == EVIL
    start = format_time(BEGIN)
    with site.request("GET", f"/api/v1/queries/{EVIL.replace(' ', '%20')}") as response:
        assert response.status == 404
        assert response.headers["content-type"] == "application/json"
        assert response.headers["x-content-type-options"] == "nosniff"
    assert site.get(f"/api/v1/queries/climate/history?window_start={start}&key=nobody")[0] == 404


def test_a_value_is_explained(site: Site) -> None:
    site.publish(some())
    start = format_time(BEGIN + 10_000_000)
    found, body = site.get(f"/api/v1/queries/climate/history?window_start={start}&key=a")
    assert found == 200
    assert [step["what"] for step in body["steps"]] == ["tentative", "undo", "stable"]
    assert body["steps"][2]["difference"]["temperature"]["avg"] == 0.25


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/v1/queries/climate/windows?limit=0", 400),
        ("/api/v1/queries/climate/windows?limit=1e9", 400),
        ("/api/v1/queries/climate/windows?limit=99999999999999999", 400),
        ("/api/v1/queries/climate/history?window_start=yesterday&key=a", 400),
        ("/api/v1/queries/climate/history?window_start=2016-03-15T08:47:00Z", 400),
        ("/api/v1/queries/climate/history?window_start=%2B999999999999-01-01&key=a", 404),
        ("/api/v1/streams/..%2F..%2Fetc/quarantine", 404),
        ("/api/v1/streams/%00/quarantine", 404),
        ("/api/v1/nothing", 404),
        ("/page/../gateway/app.py", 404),
        ("/page/..%2f..%2fapp.py", 404),
        ("/page//etc/passwd", 404),
        ("/page/%2e%2e/app.py", 404),
        ("/page/vendor", 404),
        ("/page/" + "a/" * 3_000, 404),
    ],
)
def test_bad_requests_get_a_reason(site: Site, path: str, expected: int) -> None:
    found, body = site.get(path)
    assert (found, list(body)) == (expected, ["error"])


def test_only_reading_is_allowed(site: Site) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        with site.request(method, "/api/v1/queries", body=b"{}") as response:
            assert response.status == 405


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1.evil.example"}, 421),
        ({"Host": "[::1"}, 421),
        ({"Host": ""}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Host": "localhost", "Origin": "http://localhost"}, 200),
    ],
)
def test_foreign_hosts_and_origins(site: Site, headers: dict[str, str], expected: int) -> None:
    with site.request("GET", "/api/v1/overview", headers) as response:
        assert response.status == expected


def test_every_response_has_strict_headers(site: Site) -> None:
    for path in ("/", "/api/v1/overview", "/api/v1/nothing", "/page/nothing"):
        with site.request("GET", path) as response:
            policy = response.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert response.headers["x-content-type-options"] == "nosniff"
            assert "server" not in response.headers


def test_the_page_is_packed_and_cached_by_its_content(site: Site) -> None:
    with site.request("GET", "/", {"Accept-Encoding": "gzip"}) as response:
        assert response.headers["content-encoding"] == "gzip"
        tag = response.headers["etag"]
    with site.request("GET", "/", {"If-None-Match": tag}) as response:
        assert response.status == 304


def test_what_a_page_transfers_is_small() -> None:
    assert sum(len(file.packed) for file in read_page().values()) < 60_000


def test_half_open_connections_end(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slackwater.proxy.http.server.HEADERS_S_MAX", 0.3)
    with socket.create_connection(("127.0.0.1", site.port)) as half:
        half.sendall(b"GET / HTTP/1.1\r\nHost: loc")
        half.settimeout(10)
        assert half.recv(10) == b""


# -- tokens -----------------------------------------------------------------------------------


def test_without_a_token_nothing_is_read_but_the_page(guarded: Site) -> None:
    assert guarded.get("/")[0] == 200
    assert guarded.get("/api/v1/session")[1] == {"right": None, "needs_token": True}
    for path, _ in paths():
        expected = 200 if "openapi" in path or "session" in path else 401
        assert guarded.get(path)[0] == expected, path


@pytest.mark.parametrize("token", [VIEW, OPERATE])
def test_a_program_sends_its_token(guarded: Site, token: str) -> None:
    assert guarded.get("/api/v1/overview", authorization=f"Bearer {token}")[0] == 200
    with guarded.events("/api/v1/stream", authorization=f"bearer {token}") as events:
        assert events.next()["event"] == "status"


@pytest.mark.parametrize(
    "value", ["", "Bearer", "Bearer ", f"Basic {VIEW}", f"Bearer {VIEW}x", "Bearer \xff", VIEW]
)
def test_a_wrong_token_is_none(guarded: Site, value: str) -> None:
    assert guarded.get("/api/v1/overview", authorization=value)[0] == 401


def _post(site: Site, body: bytes, **headers: str) -> tuple[int, dict[str, Any], str]:
    named = {"Content-Type": "application/json"} | headers
    with site.request("POST", "/api/v1/session", named, body) as response:
        cookie = response.headers["set-cookie"] or ""
        return response.status, json.loads(response.read()), cookie


def test_the_page_gets_a_cookie_that_scripts_cannot_read(guarded: Site) -> None:
    found, body, cookie = _post(guarded, json.dumps({"token": VIEW}).encode())
    assert (found, body["right"]) == (200, "view")
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert VIEW not in cookie
    value = cookie.partition(";")[0]
    assert guarded.get("/api/v1/overview", cookie=value)[0] == 200
    assert guarded.get("/api/v1/session", cookie=value)[1]["right"] == "view"
    forged = value[:-1] + ("0" if value[-1] != "0" else "1")
    assert guarded.get("/api/v1/overview", cookie=forged)[0] == 401


@pytest.mark.parametrize(
    ("body", "headers", "expected"),
    [
        (b'{"token": "wrong-token-0123456789"}', {}, 401),
        (b'{"token": 7}', {}, 400),
        (b"[]", {}, 400),
        (b"\xff{", {}, 400),
        (b"token=x", {"Content-Type": "application/x-www-form-urlencoded"}, 415),
        (b'{"token": "' + b"x" * BODY_BYTES_MAX + b'"}', {}, 413),
        (b"{}", {"Origin": "http://evil.example"}, 403),
    ],
)
def test_bad_sessions(guarded: Site, body: bytes, headers: dict[str, str], expected: int) -> None:
    assert _post(guarded, body, **headers)[0] == expected


def test_a_session_ends_with_its_time_and_with_its_token(tokens: Path) -> None:
    access = read_access(tokens)
    cookie = access.session(VIEW, 1_000)
    assert access.right_of(None, cookie, 1_000 + SESSION_S - 1) == "view"
    assert access.right_of(None, cookie, 1_000 + SESSION_S) is None
    later = f"{10**12}.{cookie.partition('.')[2]}"
    assert access.right_of(None, later, 1_000) is None
    assert access.right_of("Basic x", cookie, 1_000) is None, "a header takes precedence"
    tokens.write_text(f"operate {OPERATE}\n")
    assert read_access(tokens).right_of(None, cookie, 1_000) is None


@pytest.mark.parametrize(
    "text", ["", VIEW, f"admin {VIEW}", "view short", f"view {VIEW} more", f"view {VIEW}\xff"]
)
def test_a_token_file_with_errors(tmp_path: Path, text: str) -> None:
    file = tmp_path / "tokens"
    file.write_bytes(text.encode("latin-1"))
    file.chmod(0o600)
    with pytest.raises(EnvironmentProblem) as found:
        read_access(file)
    assert VIEW not in str(found.value)


def test_a_token_file_that_others_read_is_refused(tokens: Path) -> None:
    tokens.chmod(0o644)
    with pytest.raises(EnvironmentProblem, match="chmod"):
        read_access(tokens)


def test_an_address_that_others_reach_needs_tokens(tokens: Path) -> None:
    check_listening(Listen("127.0.0.1"), Access())
    check_listening(Listen("::1"), Access())
    check_listening(Listen("0.0.0.0"), read_access(tokens))
    check_listening(Listen("0.0.0.0"), Access(is_open=True))
    for host in ("0.0.0.0", "192.0.2.1", "plant.example"):
        with pytest.raises(EnvironmentProblem, match="--tokens"):
            check_listening(Listen(host), Access())


def test_with_tokens_any_host_is_answered_but_no_other_origin() -> None:
    assert why_not_from("plant.example:8090", None, has_tokens=True) is None
    assert why_not_from("plant.example:8090", "https://plant.example:8090", has_tokens=True) is None
    assert why_not_from("plant.example:8090", "https://evil.example", has_tokens=True) is not None


def test_the_vendored_chart_is_the_one_that_was_reviewed() -> None:
    import hashlib

    folder = Path("services/slackwater/gateway/page/vendor")
    for line in (folder / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split()
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    assert b"uPlot (v1.6.32)" in (folder / "uplot.js").read_bytes()[:100]
    assert "MIT" in (folder / "LICENSE").read_text()
