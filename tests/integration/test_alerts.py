"""Alerts on real processes: a source is cut off, the evaluator is killed, no alert is lost.

The room has readings of both sources, 40 degrees of the one and 0 of the other: without the second
one it seems hot, and is not. The oven has readings of the one that stays, and becomes hot while the
other one is away. What is committed is compared with a plain evaluation of all results.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.simulator.alerting.oracle import Expected, expected_of, expected_of_stream
from tests.support.starting import SENDS_ONCE, make_topics
from tests.support.waiting import TEST_S_MAX, WAIT_S_MAX, eventually
from tests.unit.notifier.test_notifier import Hook

from slackwater.codec.results import format_time
from slackwater.delivery.records import AlertRecord, decode_delivery
from slackwater.deployment.parse import load_deployment
from slackwater.machine.broker import EmbeddedBroker
from slackwater.model.names import RESULT_KINDS, UNPREFIXED
from slackwater.notifier.app import Notifier
from slackwater.runtime.logs.transport import read_to_end
from slackwater.stack.stack import StackOptions
from slackwater.stack.stack_thread import StackThread

pytestmark = [pytest.mark.slow]
KILLS = int(os.environ.get("ALERT_KILLS", "200"))
"""Of the drill: a run of 200 takes an hour, several runs have a part of them each."""
SEED = int(os.environ.get("ALERT_SEED", "0"))
"""Of the moments at which it is killed."""
MOMENT_S_MAX = 1.5
"""A kill follows an alert after a random time, in which a window is evaluated and committed."""

CUT, STEADY = "s-cut", "s-steady"
CHANGES = ("firing", "ended", "confirmed", "withdrawn")
STREAM = """\
  {stream}:
    topic: {{name: {stream}-readings, format: json}}
    key: {{field: place}}
    time: {{field: at, unit: us}}
    fields: [t, h]
    expect_every: 1s
"""
DEPLOYMENT = f"""\
apiVersion: slackwater/v1
streams:
{"".join(STREAM.format(stream=s) for s in (CUT, STEADY))}queries:
  climate:
    from: [{CUT}, {STEADY}]
    window: {{size: 1s}}
    aggregate: {{t: [count, avg], h: [max]}}
    bound: 1s
    replicas: 1
alerts:
  hot: {{query: climate, when: t_avg > 26, for: 2, tentative: act}}
  surely-hot: {{query: climate, when: t_avg > 26}}
  silent: {{stream: {CUT}, missing: 3s}}
"""


class Places:
    """Sends a reading of each place every 50 ms; one source can be cut off, and keeps its own."""

    def __init__(self, bootstrap: str) -> None:
        patient = {**SENDS_ONCE, "message.timeout.ms": 600_000}
        self._producer = Producer({"bootstrap.servers": bootstrap} | patient)
        self._stop = threading.Event()
        self.is_cut = threading.Event()
        self.oven = 20.0
        self._kept: list[bytes] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            at = time.time_ns() // 1000
            self._kept.append(_reading("room", at, 0.0))
            for place, value in (("room", 40.0), ("oven", self.oven)):
                self._producer.produce(f"{STEADY}-readings", _reading(place, at, value))
            if not self.is_cut.is_set():
                for reading in self._kept:
                    self._producer.produce(f"{CUT}-readings", reading)
                self._kept.clear()
            self._producer.poll(0)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(WAIT_S_MAX) == 0


def _reading(place: str, at: int, value: float) -> bytes:
    return json.dumps({"place": place, "at": at, "t": value, "h": 10.0}).encode()


@pytest.fixture(name="stack")
def _stack(tmp_path: Path) -> Iterator[StackThread]:
    with EmbeddedBroker(tmp_path / "broker") as broker:
        make_topics(broker.bootstrap, [f"{CUT}-readings", f"{STEADY}-readings"])
        path = tmp_path / "deployment.yaml"
        path.write_text(DEPLOYMENT)
        options = StackOptions(
            path, load_deployment(path), tmp_path / "data", bootstrap=broker.bootstrap
        )
        stack = StackThread(options)
        try:
            stack.open()
            yield stack
        finally:
            stack.stop()


def _alerts(stack: StackThread) -> list[AlertRecord]:
    """Return all committed records of alerts that begin or end one."""
    log = (UNPREFIXED.alerts("climate"), 0)
    written = read_to_end(stack.stack.transport, log, isolation="read_committed")
    records = [decode_delivery(raw.value) for raw in written]
    return [r for r in records if isinstance(r, AlertRecord) and r.state in CHANGES]


def _found(stack: StackThread) -> dict[tuple[str, str], list[object]]:
    found: defaultdict[tuple[str, str], list[object]] = defaultdict(list)
    for record in _alerts(stack):
        began = record.began
        start = format_time(began.window_start)
        found[record.rule, record.key].append(
            (record.state, start)
            if record.rule == "silent"
            else Expected(
                record.state, start, began.tentative, began.values, record.exact, began.missing
            )
        )
    return dict(found)


def _expected(stack: StackThread) -> dict[tuple[str, str], list[object]]:
    """Evaluate all results plainly."""
    results: list[bytes] = []
    for kind in RESULT_KINDS:
        log = (UNPREFIXED.results("climate", kind), 0)
        written = read_to_end(stack.stack.transport, log, isolation="read_committed")
        results += [raw.value for raw in written]
    results.sort(key=lambda value: int(json.loads(value)["seq"]))
    found: dict[tuple[str, str], list[object]] = {}
    for rule in stack.stack.options.deployment.queries["climate"].alerts:
        if rule.stream is not None:
            found[rule.name, ""] = [*expected_of_stream(rule, results, frozenset())]
            continue
        by_key = expected_of(rule, results, frozenset(), 1_000_000)
        found |= {(rule.name, key): [*of] for key, of in by_key.items()}
    return {at: of for at, of in found.items() if of}


def _states(stack: StackThread, rule: str, key: str) -> list[tuple[str, bool]]:
    alerts = (a for a in _alerts(stack) if (a.rule, a.key) == (rule, key))
    return [(alert.state, alert.began.tentative) for alert in alerts]


@pytest.mark.parametrize(
    "kills", [pytest.param(2, id="short"), pytest.param(KILLS, id="full", marks=pytest.mark.drill)]
)
@pytest.mark.timeout(TEST_S_MAX * 4)
def test_alerts_are_there_once_whatever_dies(
    stack: StackThread, kills: int, tmp_path: Path
) -> None:
    places, moments = Places(stack.stack.bootstrap), random.Random(SEED)
    stack.start_up()
    places.start()
    eventually(
        lambda: stack.ready().get("delivery/climate.alerts", False), "the evaluator has committed"
    )
    with _notified(stack, tmp_path) as hook:
        try:
            for _ in range(kills // 2):
                _cut_off(stack, places, moments)
                places.oven = 20.0
        finally:
            places.stop()
        committed = {alert.event_id for alert in _alerts(stack)}
        eventually(lambda: committed <= {key for key, _, _ in hook.got}, "all are sent")
    eventually(lambda: _found(stack) == _expected(stack), "the alerts are those of the results")
    ids = [alert.event_id for alert in _alerts(stack)]
    assert len(ids) == len(set(ids)), "an alert is there twice"
    states = {*_states(stack, "hot", "oven"), *_states(stack, "hot", "room")}
    assert states >= {("firing", True), ("withdrawn", True), ("confirmed", True)}
    assert {state for state, _ in _states(stack, "surely-hot", "room")} <= {"firing", "ended"}


@contextlib.contextmanager
def _notified(stack: StackThread, folder: Path) -> Iterator[Hook]:
    """Send all alerts to a webhook, which refuses some at first."""
    hook, stopping = Hook(), threading.Event()
    hook.refuses = 3
    notifier = Notifier(
        stack.stack.transport,
        lambda: [UNPREFIXED.alerts("climate")],
        folder / "notifier.json",
        webhook=hook.receiver,
    )
    notifier.open()

    def run() -> None:
        while not stopping.is_set():
            notifier.turn()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield hook
    finally:
        stopping.set()
        thread.join()
        notifier.close()
        hook.server.shutdown()
        hook.server.server_close()


def _kill(stack: StackThread, moments: random.Random) -> None:
    """Kill the process of the evaluator, at a random moment."""
    threading.Event().wait(moments.uniform(0, MOMENT_S_MAX))
    stack.kill("host/0")


def _cut_off(stack: StackThread, places: Places, moments: random.Random) -> None:
    """Cut the source off, kill the evaluator twice, and connect the source again."""
    before = len(_alerts(stack))
    places.is_cut.set()
    eventually(
        lambda: ("firing", True) in _states_since(stack, "room", before),
        "the room seems hot without the source",
    )
    places.oven = 40.0
    _kill(stack, moments)
    eventually(
        lambda: ("firing", True) in _states_since(stack, "oven", before),
        "the oven seems hot without the source",
    )
    places.is_cut.clear()
    _kill(stack, moments)
    eventually(
        lambda: (
            ("withdrawn", True) in _states_since(stack, "room", before)
            and ("confirmed", True) in _states_since(stack, "oven", before)
        ),
        "both have ended",
    )


def _states_since(stack: StackThread, key: str, before: int) -> list[tuple[str, bool]]:
    alerts = (a for a in _alerts(stack)[before:] if (a.rule, a.key) == ("hot", key))
    return [(alert.state, alert.began.tentative) for alert in alerts]
