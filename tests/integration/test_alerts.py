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
from tests.support.shared_deployment import SharedDeployment
from tests.support.starting import SENDS_ONCE, make_topics
from tests.support.waiting import TEST_S_MAX, WAIT_S_MAX, eventually
from tests.unit.notifier.test_notifier import Hook

from slackwater.codec.results import format_time
from slackwater.delivery.records import AlertRecord, decode_delivery
from slackwater.deployment.parse import parse_deployment
from slackwater.model.names import RESULT_KINDS, UNPREFIXED
from slackwater.notifier.app import Notifier
from slackwater.runtime.logs.transport import read_to_end

pytestmark = [pytest.mark.slow]
KILLS = int(os.environ.get("ALERT_KILLS", "200"))
"""Of the drill: a run of 200 takes an hour, several runs have a part of them each."""
SEED = int(os.environ.get("ALERT_SEED", "0"))
"""Of the moments at which it is killed."""
MOMENT_S_MAX = 1.5
"""A kill follows an alert after a random time, in which a window is evaluated and committed."""

QUERY, CUT, STEADY = "places", "p-cut", "p-steady"
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
  {QUERY}:
    from: [{CUT}, {STEADY}]
    window: {{size: 1s}}
    aggregate: {{t: [count, avg], h: [max]}}
    bound: 1s
    replicas: 1
alerts:
  hot: {{query: {QUERY}, when: t_avg > 26, for: 2, tentative: act}}
  surely-hot: {{query: {QUERY}, when: t_avg > 26}}
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


def _alerts(shared: SharedDeployment) -> list[AlertRecord]:
    """Return all committed records of alerts that begin or end one."""
    log = (UNPREFIXED.alerts(QUERY), 0)
    written = read_to_end(shared.transport, log, isolation="read_committed")
    records = [decode_delivery(raw.value) for raw in written]
    return [r for r in records if isinstance(r, AlertRecord) and r.state in CHANGES]


def _found(shared: SharedDeployment) -> dict[tuple[str, str], list[object]]:
    found: defaultdict[tuple[str, str], list[object]] = defaultdict(list)
    for record in _alerts(shared):
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


def _expected(shared: SharedDeployment) -> dict[tuple[str, str], list[object]]:
    """Evaluate all results plainly."""
    results: list[bytes] = []
    for kind in RESULT_KINDS:
        log = (UNPREFIXED.results(QUERY, kind), 0)
        written = read_to_end(shared.transport, log, isolation="read_committed")
        results += [raw.value for raw in written]
    results.sort(key=lambda value: int(json.loads(value)["seq"]))
    found: dict[tuple[str, str], list[object]] = {}
    for rule in parse_deployment(DEPLOYMENT, "deployment.yaml").deployment.queries[QUERY].alerts:
        if rule.stream is not None:
            found[rule.name, ""] = [*expected_of_stream(rule, results, frozenset())]
            continue
        by_key = expected_of(rule, results, frozenset(), 1_000_000)
        found |= {(rule.name, key): [*of] for key, of in by_key.items()}
    return {at: of for at, of in found.items() if of}


def _states(shared: SharedDeployment, rule: str, key: str) -> list[tuple[str, bool]]:
    alerts = (a for a in _alerts(shared) if (a.rule, a.key) == (rule, key))
    return [(alert.state, alert.began.tentative) for alert in alerts]


@pytest.mark.parametrize(
    "kills", [pytest.param(2, id="short"), pytest.param(KILLS, id="full", marks=pytest.mark.drill)]
)
@pytest.mark.timeout(TEST_S_MAX * 4)
def test_alerts_are_there_once_whatever_dies(
    shared: SharedDeployment, kills: int, tmp_path: Path
) -> None:
    make_topics(shared.bootstrap, [f"{CUT}-readings", f"{STEADY}-readings"])
    places, moments = Places(shared.bootstrap), random.Random(SEED)
    shared.apply(DEPLOYMENT)
    places.start()
    evaluator = f"delivery/{QUERY}.alerts"
    eventually(lambda: shared.stack.ready().get(evaluator, False), "the evaluator has committed")
    with _notified(shared, tmp_path) as hook:
        try:
            for _ in range(kills // 2):
                _cut_off(shared, places, moments)
                _cool_down(shared, places)
        finally:
            places.stop()
        committed = {alert.event_id for alert in _alerts(shared)}
        eventually(lambda: committed <= {key for key, _, _ in hook.got}, "all are sent")
    eventually(lambda: _found(shared) == _expected(shared), "the alerts are those of the results")
    ids = [alert.event_id for alert in _alerts(shared)]
    assert len(ids) == len(set(ids)), "an alert is there twice"
    states = {*_states(shared, "hot", "oven"), *_states(shared, "hot", "room")}
    assert states >= {("firing", True), ("withdrawn", True), ("confirmed", True)}
    assert {state for state, _ in _states(shared, "surely-hot", "room")} <= {"firing", "ended"}


@contextlib.contextmanager
def _notified(shared: SharedDeployment, folder: Path) -> Iterator[Hook]:
    """Send all alerts to a webhook, which refuses some at first."""
    hook, stopping = Hook(), threading.Event()
    hook.refuses = 3
    notifier = Notifier(
        shared.transport,
        lambda: [UNPREFIXED.alerts(QUERY)],
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


def _kill(shared: SharedDeployment, moments: random.Random) -> None:
    """Kill the process of the evaluator, at a random moment."""
    threading.Event().wait(moments.uniform(0, MOMENT_S_MAX))
    shared.stack.kill("host/0")


def _cut_off(shared: SharedDeployment, places: Places, moments: random.Random) -> None:
    """Cut the source off, kill the evaluator twice, and connect the source again."""
    before = len(_alerts(shared))
    places.is_cut.set()
    eventually(
        lambda: ("firing", True) in _states_since(shared, "room", before),
        "the room seems hot without the source",
    )
    places.oven = 40.0
    _kill(shared, moments)
    eventually(
        lambda: ("firing", True) in _states_since(shared, "oven", before),
        "the oven seems hot without the source",
    )
    places.is_cut.clear()
    _kill(shared, moments)
    eventually(
        lambda: (
            ("withdrawn", True) in _states_since(shared, "room", before)
            and ("confirmed", True) in _states_since(shared, "oven", before)
        ),
        "both have ended",
    )


def _cool_down(shared: SharedDeployment, places: Places) -> None:
    """Cool the oven, and wait until its exact alert has ended: while that stands, none begins."""
    before = len(_alerts(shared))
    places.oven = 20.0
    eventually(
        lambda: ("ended", False) in _states_since(shared, "oven", before), "the oven has cooled"
    )


def _states_since(shared: SharedDeployment, key: str, before: int) -> list[tuple[str, bool]]:
    alerts = (a for a in _alerts(shared)[before:] if (a.rule, a.key) == ("hot", key))
    return [(alert.state, alert.began.tentative) for alert in alerts]
