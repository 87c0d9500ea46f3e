"""A sender of readings that knows the sum of each second, and the sums of a query's windows."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from datetime import datetime

from confluent_kafka import Producer

from slackwater.runtime.logs.transport import Transport, read_to_end
from slackwater.runtime.service.registry import Registry

TOPIC = "lab-readings"


class Sender:
    """Sends readings by one sensor, and knows the sum of each second.

    Twenty a second: a query without a window answers each by itself, which takes 36 ms of CPU in
    all processes together on a slow machine.
    """

    def __init__(self, bootstrap: str, topic: str = TOPIC) -> None:
        self._topic = topic
        # Idempotent: the broker may restart while a request has no response.
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True}
        )
        self.sum_of: dict[int, float] = defaultdict(float)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        sent = 0
        while not self._stopping.wait(0.05):
            sent += 1
            at_ms = int(time.time() * 1000)
            self.sum_of[at_ms // 1000] += sent
            self._producer.produce(
                self._topic, json.dumps({"mote": "m", "at": at_ms, "x": sent}).encode()
            )
            self._producer.poll(0)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._producer.flush()


def generations(transport: Transport, query: str) -> dict[int, int]:
    """The generation that has given the stable answer of each window, by its start in seconds."""
    found: dict[int, int] = {}
    log = (f"sw.results.{query}.stable", 0)
    for raw in read_to_end(transport, log, isolation="read_committed"):
        row = json.loads(raw.value)
        if row["kind"] == "stable":
            start = int(datetime.fromisoformat(row["window_start"]).timestamp())
            found[start] = row.get("generation", 0)
    return found


def sums(transport: Transport, query: str, size_s: int) -> dict[int, float]:
    """The sum of each window of a query, by the window's start in seconds; none is there twice."""
    found: dict[int, float] = {}
    log = (f"sw.results.{query}.stable", 0)
    for raw in read_to_end(transport, log, isolation="read_committed"):
        row = json.loads(raw.value)
        if row["kind"] != "stable":
            continue
        start = int(datetime.fromisoformat(row["window_start"]).timestamp())
        figures = row["fields"].get("x") or row["fields"]["x_sum"]
        assert start not in found, f"{query}: the window of {start} is answered twice"
        assert start % size_s == 0
        found[start] = figures["sum"]
    return found


def check_sums(transport: Transport, sender: Sender, query: str, size_s: int) -> None:
    """Every window from the start to the last is there and exact."""
    found = sums(transport, query, size_s)
    assert sorted(found) == list(range(min(found), max(found) + 1, size_s))
    start_us = Registry(transport).all_queries()[query].e0_us
    if start_us % (size_s * 1_000_000):
        del found[min(found)]  # the query's time begins within this window
    wanted = {at: sum(sender.sum_of[s] for s in range(at, at + size_s)) for at in found}
    assert found == wanted
