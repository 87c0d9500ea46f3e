"""``slackwater.Producer``: its inputs, and that each reading counts once."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.http_site import TOKEN, Site, opened
from tests.support.ports import free_port
from tests.unit.proxy.test_pushed import POSTED, PushWorld, reading

import slackwater
from slackwater.producer import Producer, ProducerError
from slackwater.producer import producer as module
from slackwater.producer.batches import Buffer, as_table, encoded, pieces_of
from slackwater.producer.http_sink import HttpSink
from slackwater.producer.sink import Delivery, TryAgain
from slackwater.producer.state import SenderState

ROOT = Path(__file__).parents[3]
AHEAD = replace(POSTED, ahead_us=3_600_000_000)
"""The clock of the world stands still; what is sent may be far ahead of it."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with opened(PushWorld(tmp_path / "site", AHEAD), free_port(), tmp_path) as made:
        yield made


def producer(site: Site, stream: str = "room", **options: Any) -> Producer:
    return slackwater.Producer(stream, url=f"http://127.0.0.1:{site.port}", **options)


def arrived(site: Site) -> list[float]:
    """Return the times (s) of the readings in the source log, in the order of their ids.

    Spooled readings are sent before the response, and the broker in memory accepts them at once.
    """
    return [stime for _, stime, _ in site.world.readings()]


def columns(first: int, n: int) -> dict[str, Any]:
    return {"node": "n", "ts": np.arange(first, first + n), "t": np.arange(n) / 2}


class Frame:
    """The interface of a data frame of any library."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested: object = None) -> Any:
        return self._table.__arrow_c_stream__(requested)


@pytest.mark.parametrize(
    "readings",
    [
        columns(1000, 3),
        {"node": ["n"] * 3, "ts": [1000, 1001, 1002], "t": pa.array([0, 0.5, 1])},
        [reading(1000), {"node": "n", "ts": 1001}, reading(1002, None)],
        pa.table({"node": ["n"] * 3, "ts": [1000, 1001, 1002], "t": [1.0, None, 2]}),
        pa.record_batch({"node": ["n"] * 3, "ts": [1000, 1001, 1002], "t": [None] * 3}),
        pa.table(
            {
                "node": pa.array(["n"] * 3).dictionary_encode(),
                "ts": np.array([1000, 1001, 1002], "datetime64[s]"),
                "t": [1, 2, 3],
            }
        ),
        Frame(pa.table({"node": ["n"] * 3, "ts": [1000, 1001, 1002], "t": [1, 2, 3]})),
    ],
    ids=["numpy", "lists", "readings", "table", "record batch", "timestamps", "frame"],
)
def test_readings_of_many_forms(site: Site, readings: Any) -> None:
    with producer(site) as sender:
        sender.send(readings)
    assert sender.counts == {"accepted": 3}
    assert sender.position == 3
    assert arrived(site) == [1000, 1001, 1002]


def test_an_array_may_be_filled_again_once_it_is_sent(site: Site) -> None:
    times, values = np.arange(1000, 1003), np.arange(3.0)
    with producer(site, linger_s=60) as sender:
        for _ in range(2):
            sender.send({"node": "n", "ts": times, "t": values})
            times += 3
            values += 3
    readings = [(stime, value) for _, stime, value in site.world.readings()]
    assert readings == [(1000 + i, float(i)) for i in range(6)]


def test_a_producer_that_cannot_begin_does_not_hold_its_state(site: Site, tmp_path: Path) -> None:
    with pytest.raises(ProducerError, match="not an address") as caught:
        slackwater.Producer("room", url="nowhere", state=tmp_path / "state")
    with producer(site, state=tmp_path / "state") as sender:
        sender.send(reading(1000))
    assert caught.value.response == {}
    assert sender.position == 1


def test_a_large_batch_that_is_refused_by_its_headers_ends_the_producer(site: Site) -> None:
    """The response is readable although the body was not read."""
    n = 50_000
    more = {f"unused-{i}": np.zeros(n) for i in range(15)}
    sender = producer(site, "guarded", token="x" * 32, batch_readings=n)
    sender.send(columns(1000, n) | more)
    with pytest.raises(ProducerError, match="returned 401"):
        sender.close(timeout_s=30)


def test_a_masked_value_is_null() -> None:
    table = pieces_of({"node": "n", "ts": [1, 2], "t": np.ma.array([1.0, 2.0], mask=[True, False])})
    assert table["t"].to_pylist() == [None, 2.0]


@pytest.mark.parametrize(
    "value",
    [2**70, "\ud800", [2**70], ["\ud800"], np.array(1.0), [1, "x"], np.zeros((2, 2))],
    ids=str,
)
def test_values_without_a_column_are_an_error_of_the_producer(value: Any) -> None:
    with pytest.raises(ProducerError):
        as_table(pieces_of({"node": "n", "ts": 1, "t": value}))


def test_single_readings_are_sent_in_batches(site: Site) -> None:
    with producer(site, batch_readings=40) as sender:
        for i in range(100):
            sender.send(reading(1000 + i))
    assert arrived(site) == list(range(1000, 1100))
    records = [record.readings for _, record in site.world.raw() if record.readings]
    assert len(records) < 20


def test_a_token_is_sent(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"# of the plant\n{TOKEN}\n")
    with producer(site, "guarded", token_file=file) as sender:
        sender.send(reading(1000))
    assert sender.counts == {"accepted": 1}
    with pytest.raises(ProducerError, match="401"), producer(site, "guarded") as sender:
        sender.send(reading(1001))


def test_refused_readings_are_reported(site: Site) -> None:
    with producer(site) as sender:
        sender.send([reading(1000, "1"), reading(1001, "warm")])
    assert sender.counts == {"accepted": 1, "malformed": 1}
    sender = producer(site)
    sender.send({"node": "n", "t": 1})
    with pytest.raises(ProducerError, match="has no column 'ts'"):
        sender.flush()
    with pytest.raises(ProducerError, match="has no column 'ts'"):
        sender.send(reading(1000))
    with pytest.raises(ProducerError):
        sender.close()


@pytest.mark.parametrize("readings", [7, "text", [1, 2], {"a": [1, 2], "b": [1]}, {"a": [1, "x"]}])
def test_what_is_no_readings_is_refused_at_once(site: Site, readings: Any) -> None:
    with producer(site) as sender, pytest.raises(ProducerError):
        sender.send(readings)


def test_an_answer_that_is_lost_is_asked_for_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver, lost = HttpSink.deliver, iter([True, True, False] * 10)

    def losing(self: HttpSink, batch: Delivery) -> Mapping[str, int]:
        counts = deliver(self, batch)
        if next(lost):
            raise TryAgain("the answer is lost")
        return counts

    monkeypatch.setattr(HttpSink, "deliver", losing)
    monkeypatch.setattr(module, "BACK_OFF_S_MIN", 0.001)
    with producer(site, batch_readings=10) as sender:
        sender.send(columns(1000, 50))
    assert arrived(site) == list(range(1000, 1050))


def test_a_proxy_that_is_away_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BACK_OFF_S_MAX", 0.2)
    world, port = PushWorld(tmp_path / "site", AHEAD), free_port()
    sender = slackwater.Producer("room", url=f"http://127.0.0.1:{port}", batch_readings=10)
    sender.send(columns(1000, 30))
    with pytest.raises(TimeoutError, match="readings are not acknowledged"):
        sender.flush(0.2)
    for first in (1030, 1060):
        with opened(world, port, tmp_path) as site:
            sender.flush()
            found = arrived(site)
        assert found == list(range(1000, first))
        sender.send(columns(first, 30))
    with opened(world, port, tmp_path) as site:
        sender.close()
        assert arrived(site) == list(range(1000, 1090))


SENDER = """
import os, sys
import numpy as np
import slackwater
from slackwater.producer.state import SenderState

url, state, dies_at = sys.argv[1], sys.argv[2], int(sys.argv[3])
acknowledge, begin = SenderState.acknowledge, SenderState.begin

def dying(how):
    def call(self, n):
        if dies_at >= 0 and self.position >= dies_at // 2:
            os._exit(9)
        how(self, n)
    return call

# An even number dies before a batch is sent, an odd one after it has been stored.
if dies_at % 2:
    SenderState.acknowledge = dying(acknowledge)
else:
    SenderState.begin = dying(begin)
with slackwater.Producer("room", url=url, state=state, batch_readings=7) as sender:
    at = sender.position
    while at < 100:
        n = min(1 + (at * 31 + dies_at) % 17, 100 - at)  # other calls in each run
        sender.send({"node": "n", "ts": np.arange(1000 + at, 1000 + at + n), "t": 1.5})
        at += n
"""


def test_a_sender_that_is_killed_and_restarted_counts_once(site: Site, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    script = tmp_path / "sender.py"
    script.write_text(SENDER)
    url = f"http://127.0.0.1:{site.port}"
    for dies_at in (0, 1, 20, 41, 90, 121, 170, -1):
        command = [sys.executable, str(script), url, str(state), str(dies_at)]
        ended = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
        assert ended.returncode == (0 if dies_at < 0 else 9), ended.stderr
    assert arrived(site) == list(range(1000, 1100))
    assert json.loads(state.read_text())["position"] == 100


def test_a_restarted_sender_must_send_the_last_batch_again(site: Site, tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    state = SenderState(path)
    state.begin(5)
    state.close()
    sender = producer(site, state=path)
    sender.send(columns(1000, 3))
    with pytest.raises(ProducerError, match="from reading 0 on had 5 readings before the restart"):
        sender.close()


def test_a_state_belongs_to_one_producer(site: Site, tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    with (
        producer(site, state=path),
        pytest.raises(ProducerError, match="is used by another producer"),
    ):
        producer(site, state=path)
    path.write_text("{}")
    with pytest.raises(ProducerError, match="is not a producer's state"):
        producer(site, state=path)


def test_an_id_of_the_caller_counts_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parts do not depend on a setting that differs between the two senders."""
    monkeypatch.setattr(module, "NAMED_READINGS", 20)
    for batch_readings in (20, 35, 100):
        with producer(site, batch_readings=batch_readings) as sender:
            sender.send(columns(1000, 50), id="monday")
        assert sender.counts["accepted"] == 50
        assert sender.position == 0
    assert arrived(site) == list(range(1000, 1050))
    with pytest.raises(ProducerError, match="422"), producer(site) as sender:
        sender.send(columns(2000, 5), id="monday/0")


def test_named_and_other_readings_keep_their_order(site: Site) -> None:
    with producer(site, batch_readings=10) as sender:
        sender.send(columns(1000, 15))
        sender.send(columns(1015, 5), id="a")
        sender.send(reading(1020))
        sender.send(columns(1021, 4))
    assert arrived(site) == list(range(1000, 1025))


def test_a_full_buffer_makes_the_caller_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_READINGS_MAX", 10)
    sender = slackwater.Producer("room", url=f"http://127.0.0.1:{free_port()}", batch_readings=5)
    sender.send(columns(1000, 20))

    def send() -> None:
        with pytest.raises(ProducerError, match="is closed"):
            sender.send(reading(1))

    second = threading.Thread(target=send)
    second.start()
    second.join(0.3)
    assert second.is_alive()
    sender._stop()
    second.join()


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=12),
    st.lists(st.integers(1, 9), min_size=1, max_size=12),
    st.sampled_from(["table", "readings"]),
)
def test_a_batch_depends_on_its_readings_alone(
    calls: list[int], others: list[int], form: str
) -> None:
    """A batch of n readings has the same bytes for any division into calls."""
    n = min(sum(calls), sum(others))

    def batch(sizes: list[int]) -> bytes:
        buffer, at = Buffer(), 0
        for size in sizes:
            rows = [
                {"node": f"n{i % 3}", "ts": i, "t": None if i % 5 else i / 3}
                for i in range(at, at + size)
            ]
            piece: Any = rows
            if form == "table":
                schema = pa.schema([("node", pa.string()), ("ts", pa.int64()), ("t", pa.float64())])
                piece = pieces_of(pa.Table.from_pylist(rows, schema=schema))
            buffer.add(piece)
            at += size
        assert buffer.has(n)
        return encoded(buffer.take(n, exact=True))

    assert batch(calls) == batch(others)


def test_the_package_imports_nothing_heavy() -> None:
    script = "import sys, slackwater; print([m for m in ('pyarrow', 'numpy') if m in sys.modules])"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
