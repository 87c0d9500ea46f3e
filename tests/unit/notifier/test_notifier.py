"""The notifier with a webhook that fails: each change arrives, and no secret is in the log."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.support.memory import MemoryBroker
from tests.unit.delivery.test_notices import record

from slackwater.model.errors import UsageError
from slackwater.notifier.app import AlertReceiver, Notifier, receiver, receiver_states

TOPIC = "sw.alerts.climate"


class Hook:
    """A webhook that refuses the first requests, and keeps what it has accepted."""

    def __init__(self) -> None:
        self.refuses = 0
        self.got: list[tuple[str, str, str]] = []
        self.bodies: list[Any] = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status = 200
                if hook.refuses:
                    hook.refuses, status = hook.refuses - 1, 503
                else:
                    key, token = self.headers["Idempotency-Key"], self.headers["Authorization"]
                    state = body["state"] if isinstance(body, dict) else "standing"
                    hook.bodies.append(body)
                    hook.got.append((key, state, token))
                self.send_response(status)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def receiver(self) -> AlertReceiver:
        url = f"http://user:secret@127.0.0.1:{self.server.server_port}/hook?key=secret"
        return receiver("webhook", url.replace("user:secret@", ""), "secret-token")


@pytest.fixture(name="hook")
def _hook() -> Iterator[Hook]:
    hook = Hook()
    yield hook
    hook.server.shutdown()
    hook.server.server_close()


@pytest.fixture(name="broker")
def _broker() -> MemoryBroker:
    broker = MemoryBroker()
    broker.create_topic(TOPIC, 1)
    return broker


def write(broker: MemoryBroker, *records: object) -> None:
    writer = broker.writer(lambda _: None)
    for each in records:
        writer.append(TOPIC, 0, each.encode(), each.log_key)  # type: ignore[attr-defined]
    writer.await_delivered()


def notifier(broker: MemoryBroker, hook: Hook, folder: Path) -> Notifier:
    found = Notifier(broker, lambda: [TOPIC], folder / "notifier.json", webhook=hook.receiver)
    found.open()
    return found


def until(of: Notifier, hook: Hook, count: int) -> None:
    for _ in range(100):
        of.turn()
        if len(hook.got) >= count:
            return
    raise AssertionError(f"only {hook.got}")


def test_each_change_arrives_though_the_webhook_fails(
    broker: MemoryBroker, hook: Hook, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(broker, record("firing", key="of the past"))
    of = notifier(broker, hook, tmp_path)
    of.turn()
    assert hook.got == [], "the first start sends no past"
    hook.refuses = 2
    write(broker, record("firing", tentative=True), record("withdrawn", tentative=True))
    until(of, hook, 2)
    assert [(key, state) for key, state, _ in hook.got] == [
        ("room-True-firing", "firing"),
        ("room-True-withdrawn", "withdrawn"),
    ]
    assert {token for _, _, token in hook.got} == {"Bearer secret-token"}
    assert "answered 503" in caplog.text
    assert "secret" not in caplog.text
    assert "secret" not in (tmp_path / "notifier.json").read_text()
    assert receiver_states(tmp_path / "notifier.json")["webhook"]["sent"] == 2


def test_a_heartbeat_tells_how_far_behind_a_receiver_is(hook: Hook, tmp_path: Path) -> None:
    broker = MemoryBroker(lambda: 1_000)
    broker.create_topic(TOPIC, 1)
    of = notifier(broker, hook, tmp_path)
    of.turn()
    assert of.states == {"webhook": "delivers"}
    hook.refuses = 1_000
    write(broker, record("firing"), record("ended"))
    of.turn()
    found = of.detail
    assert of.states == {"webhook": "answered 503"}
    assert (found["receiver.webhook.waiting"], found["receiver.webhook.failures"]) == (2, 1)
    assert found["receiver.webhook.behind_ms"] > 1_000_000, "since the time of the record"
    hook.refuses = 0
    until(of, hook, 2)
    assert of.states == {"webhook": "delivers"}
    assert of.detail == {
        "receiver.webhook.sent": 2,
        "receiver.webhook.waiting": 0,
        "receiver.webhook.failures": 0,
        "receiver.webhook.behind_ms": 0,
    }


def test_a_restart_goes_on_where_the_receivers_have_acknowledged(
    broker: MemoryBroker, hook: Hook, tmp_path: Path
) -> None:
    of = notifier(broker, hook, tmp_path)
    of.turn()
    hook.refuses = 1_000
    write(broker, record("firing"), record("ended"))
    of.turn()
    of.close()
    hook.refuses = 0
    until(notifier(broker, hook, tmp_path), hook, 2)
    assert [state for _, state, _ in hook.got] == ["firing", "ended"]


@pytest.mark.parametrize("url", ["", "ftp://x/", "http://", "http://h:99999999/", "hook"])
def test_a_wrong_url_is_not_printed(url: str) -> None:
    with pytest.raises(UsageError) as raised:
        receiver("webhook", f"{url}?token=secret" if url else url)
    assert "secret" not in str(raised.value)
