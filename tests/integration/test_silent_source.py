"""A disconnected source that sends its backlog, with its own times, when it returns (rule-9).

Two JSON topics, one of whose producers is disconnected; the deployment declares `expect_every:
auto` and nothing else. A plain Kafka client checks: no stable answer is wrong, no reading is lost,
and the answers in between were tentative, without the one source, and undone.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, deque
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.e2e.judging import MOTES, Listener, counted, expected, judge, microseconds, quarantined
from tests.support.shared_deployment import SharedDeployment
from tests.support.starting import SENDS_ONCE, make_topics
from tests.support.waiting import WAIT_S_MAX

pytestmark = [pytest.mark.slow]

QUERY, CUT, STEADY = "cut-off", "s-cut", "s-steady"
MOTES_OF = {CUT: MOTES[:1], STEADY: MOTES[1:]}
TOPIC = {CUT: "cut-readings", STEADY: "steady-readings"}
STREAM = """\
  {stream}:
    topic: {{name: {topic}, format: json}}
    key: {{field: mote}}
    time: {{field: at, unit: us}}
    fields: [temperature]
    expect_every: auto
"""
DEPLOYMENT = f"""\
apiVersion: slackwater/v1
streams:
{"".join(STREAM.format(stream=s, topic=t) for s, t in TOPIC.items())}queries:
  {QUERY}:
    from: [{CUT}, {STEADY}]
    window: {{size: 5s, slide: 1s}}
    aggregate: [count, avg, min, max]
    bound: 2s
    replicas: 1
"""


class Sources:
    """Both producers: a reading of each mote every 30 ms. One of them can be disconnected.

    A disconnected source keeps its readings, and sends them as soon as it is connected again.
    """

    def __init__(self, bootstrap: str) -> None:
        patient = {**SENDS_ONCE, "message.timeout.ms": 600_000}
        self._producer = Producer({"bootstrap.servers": bootstrap} | patient)
        self._stop = threading.Event()
        self.is_cut = threading.Event()
        self.sent: list[tuple[int, str, float]] = []
        self._kept: deque[tuple[str, bytes]] = deque()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        n = 0
        while not self._stop.wait(0.03):
            for stream, motes in MOTES_OF.items():
                for mote in motes:
                    n += 1
                    at, value = time.time_ns() // 1000, 20 + n % 100 / 8
                    reading = {"mote": mote, "at": at, "temperature": value}
                    self.sent.append((at, mote, value))
                    self._kept.append((stream, json.dumps(reading).encode()))
            self._send()

    def _send(self) -> None:
        for _ in range(len(self._kept)):
            stream, text = self._kept.popleft()
            if stream == CUT and self.is_cut.is_set():
                self._kept.append((stream, text))
            else:
                self._producer.produce(TOPIC[stream], text)
        self._producer.poll(0)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(WAIT_S_MAX) == 0


def _partial(records: list[dict[str, Any]], cut_us: int) -> list[dict[str, Any]]:
    """Return rows answered without the one source since it was disconnected."""
    return [
        record
        for record in records
        if record["kind"] == "tentative"
        and record["missing"] == [CUT]
        and microseconds(record["window_end"]) > cut_us + 1_000_000
    ]


@pytest.mark.parametrize(
    ("calm_s", "silent_s"),
    [
        pytest.param(1, 10, id="short"),
        pytest.param(40, 15, id="full", marks=pytest.mark.drill),
    ],
)
def test_a_source_that_is_cut_off_costs_nothing_but_time(
    shared: SharedDeployment, calm_s: int, silent_s: int
) -> None:
    bootstrap = shared.bootstrap
    make_topics(bootstrap, TOPIC.values())
    sources, listener = Sources(bootstrap), Listener(bootstrap, QUERY).start()
    shared.apply(DEPLOYMENT)
    shared.wait_begun(QUERY)
    sources.start()  # readings before the query's start are in no window (trace-24)
    begun = time.time_ns() // 1000
    listener.wait_for_stable(begun + calm_s * 1_000_000)

    sources.is_cut.set()
    cut_us = time.time_ns() // 1000
    until_us = cut_us + silent_s * 1_000_000
    listener.wait(
        lambda records: time.time_ns() // 1000 > until_us and bool(_partial(records, cut_us)),
        "the silence goes on, and answers lack the source",
    )
    sources.is_cut.clear()
    healed_us = time.time_ns() // 1000
    listener.wait_for_stable(healed_us + calm_s * 1_000_000)
    listener.wait(lambda records: records[-1]["kind"] != "undo", "all is replaced")
    sources.stop()
    records = listener.stop()

    _, undone = judge(records)
    exact = counted(records)
    starts = [microseconds(r["window_start"]) for r in records if r["kind"] == "boundary"]
    last = max(start for start, _ in exact)
    wanted = expected(sources.sent, min(starts), last)
    wrong = {at for at in wanted if exact.get(at) != pytest.approx(wanted[at])}
    assert not wrong, f"{len(wrong)} of {len(exact)} stable rows are wrong"
    assert exact.keys() == wanted.keys()
    lost = sum((quarantined(bootstrap, f"sw.quarantine.{stream}") for stream in TOPIC), Counter())
    assert not lost, f"{sum(lost.values())} of {len(sources.sent)} readings are in quarantine"

    partial = [r for r in _partial(records, cut_us) if r["seen_us"] < healed_us]
    assert undone >= silent_s - 9, "windows were answered without the source, and undone"
    assert {record["key"] for record in partial} >= set(MOTES_OF[STEADY])
    for record in partial:
        at = microseconds(record["window_start"]), record["key"]
        is_complete = record["fields"]["temperature"]["count"] == exact[at]["count"]
        assert is_complete == (record["key"] in MOTES_OF[STEADY]), (
            f"only the one source lacks: {at}"
        )
