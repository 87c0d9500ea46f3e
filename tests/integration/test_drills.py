"""Drills.

Every kind of process is killed, at the worst times, and a log is truncated, on one stack.

One rehearsal on real data has all the faults, one after the other: an orderer, all orderers, the
roots, a proxy, the broker; then a silence of three bounds in which the roots and an orderer are
killed, and an aggregator and the roots again during its correction; at last retention outruns an
aggregator, and both aggregators are killed. The consumer's view is checked: stable results exact,
once each, every tentative answer undone.

Two truncations of logs of ``single`` (rule-11 and rule-28): the results are exact, and report no
gap.

- A root is paused; the aggregator's deltas meanwhile are deleted except for the last ones. The root
  finds a hole, and they are sent again.
- An aggregator is paused; the orderer's records meanwhile are deleted except for the last ones,
  then the aggregator is killed. Its successor begins where the log begins. The root finds seqs that
  will never be sent, jumps, finds a hole, and the orderer goes back to the end of the results.
"""

from __future__ import annotations

import threading
import time
from datetime import datetime
from pathlib import Path

import orjson
import pytest
from tests.integration.rehearsing import ROOMS, ROOMS_YAML, Ran, at, rehearse
from tests.support.waiting import WAIT_S_MAX

from slackwater.model.names import Names
from slackwater.protocols.common.line import LineName
from slackwater.protocols.dpc.soutput.config import DeltaLog
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.topics import ordered_partition
from slackwater.runtime.logs.transport import Log
from slackwater.runtime.service.datadir import read_run

pytestmark = [pytest.mark.slow]

QUERIES = """\
queries:
  climate:
    from: [room-1, room-2, room-3, room-4]
    window: {size: 1m}
    aggregate: [count, sum, avg, min, max]
    bound: 3s
  single:
    from: [room-1, room-2, room-3, room-4]
    window: {size: 1m}
    aggregate: [count, sum, avg]
    bound: 3s
    replicas: 1
"""
DEAF_S, RECEIVES_S = 9, 14
PAUSED_S, KILLED_S = 49, 54
FAULTS = at(
    "2s kill orderer/climate.0.a",
    "5s kill orderer",
    f"{DEAF_S}s pause root for {RECEIVES_S - DEAF_S}s",
    "15s kill root",
    "17s kill proxy/room-1",
    "20s kill broker",
    "31s silence room-2 for 9s",
    "35s kill root",
    "37s kill orderer/climate.0.a",
    "40200ms kill aggregator/1",
    "40600ms kill root",
    f"{PAUSED_S}s pause aggregator/0 for {KILLED_S + 1 - PAUSED_S}s",
    f"{KILLED_S}s kill aggregator",
)
DELTAS = (Names().deltas("single", 0), DeltaLog(0, 0, LineName.STABLE).partition(1))
ORDERED = (Names().ordered("single", 0), ordered_partition(0, live=False))
LEFT, UNREAD_MIN = 5, 5
"""Numbers of records to keep, and to be missed by their reader."""


class Retention(threading.Thread):
    """While a reader is paused, deletes its unread records, except for the last ones.

    It waits until there are enough to delete, as long as the reader is paused.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self._folder = folder
        self.unread: dict[Log, int] = {}
        """Number of deleted records that their reader had not read."""

    def run(self) -> None:
        anchor = self._anchor()
        transport = KafkaTransport(self._broker())
        self._cut(transport, DELTAS, anchor + DEAF_S + 0.3, anchor + RECEIVES_S - 0.4)
        self._cut(transport, ORDERED, anchor + PAUSED_S + 0.3, anchor + KILLED_S - 0.4)

    def _cut(self, transport: KafkaTransport, log: Log, since: float, until: float) -> None:
        time.sleep(max(since - time.time(), 0))
        read = end = transport.end_offsets([log])[log]
        while end < read + UNREAD_MIN + LEFT and time.time() < until:
            time.sleep(0.05)
            end = transport.end_offsets([log])[log]
        transport.delete_records({log: end - LEFT})
        self.unread[log] = end - LEFT - read

    def _anchor(self) -> float:
        """Return the start of the replay, from the first line of the results."""
        out = self._folder / "r.jsonl"
        while not (out.exists() and out.read_bytes().count(b"\n")):
            time.sleep(0.1)
        start = orjson.loads(out.read_bytes().splitlines()[0])
        return datetime.fromisoformat(start["wall"]).timestamp()

    def _broker(self) -> str:
        """Return the broker of the rehearsal that runs there."""
        run = read_run(self._folder / "data")
        assert run is not None, "the replay has begun"
        return run.bootstrap


@pytest.fixture(scope="module", name="folder")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("drills")


@pytest.fixture(scope="module", name="retention")
def _retention(folder: Path) -> Retention:
    return Retention(folder)


@pytest.fixture(scope="module", name="ran")
def _ran(folder: Path, retention: Retention) -> Ran:
    retention.start()
    options = ("--speed", "60", "--duration", "57s", "--data-dir", "data")
    return rehearse(folder, ROOMS_YAML + QUERIES, ROOMS, *options, *FAULTS)


def test_no_single_death_loses_or_doubles_a_window(ran: Ran) -> None:
    ran.agreed()
    killed = {process for process, event in ran.events() if event == "killed"}
    kinds = {process.partition("/")[0] for process in killed}
    assert kinds == {"orderer", "root", "proxy", "broker", "aggregator"}


@pytest.mark.parametrize("query", ["climate", "single"])
def test_what_was_tentative_is_undone_and_corrected(ran: Ran, query: str) -> None:
    boundaries = ran.of(query, "boundary")
    assert any("room-2" in b["missing"] for b in boundaries if b["label"] == "tentative")
    last = max(line["epoch"] for line in ran.of(query, "undo"))
    assert any(line["epoch"] == last for line in ran.of(query, "rec_done"))


def test_seqs_that_nobody_will_send_are_said_again(ran: Ran, retention: Retention) -> None:
    retention.join(timeout=WAIT_S_MAX)
    if ran.report["overloaded"] is None:  # else too few may have been written meanwhile
        assert retention.unread[DELTAS] >= UNREAD_MIN, "the root had not read them"
        assert retention.unread[ORDERED] >= UNREAD_MIN, "the aggregator had not read them"
    assert not [line for line in ran.lines if line["kind"] == "gap"]
    last = max(line["window_end"] for line in ran.of("single", "stable"))
    assert last == max(line["window_end"] for line in ran.of("climate", "stable"))
