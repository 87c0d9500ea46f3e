"""Hostile input to running streams, on real processes: no process ends, no valid reading is lost.

One stream reads a topic, another files by ``ingest``. One message or line in a hundred is from the
fuzzer's grammar. Every valid reading must be in a stable result once, and every malformed one in
quarantine once, with its place. ``make drills ARGS="-k hostile"`` sends a million messages and a
hundred files.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from tests.fuzz.grammar import CSV_STREAMS, JSON_STREAMS, bad_line, bad_message
from tests.support.reader_that_dies import WORD, install
from tests.support.starting import make_topics
from tests.support.waiting import WAIT_S_MAX, eventually

from slackwater.deployment.parse import load_deployment
from slackwater.formats.columns import time_of
from slackwater.formats.csvfile import CsvFile
from slackwater.formats.csvtext import read_rows
from slackwater.formats.json_input import JsonReader
from slackwater.formats.messages import Bad
from slackwater.machine.broker import EmbeddedBroker
from slackwater.model.deployment import StreamSpec
from slackwater.proxy.sensors import hand_over
from slackwater.stack.stack import StackOptions
from slackwater.stack.stack_thread import StackThread

pytestmark = [pytest.mark.slow]

DEPLOYMENT = """\
apiVersion: slackwater/v1
streams:
  lab:
    topic: {name: lab-readings, format: json}
    key: {field: k}
    time: {field: at, unit: us}
    fields: [t, h]
    expect_every: 5s
  room:
    {key: {column: k}, time: {column: at, unit: us}, fields: [t, h], expect_every: 5s}
queries:
  topic-rows: {from: [lab], where: key = 'good', select: {n: t}, bound: 5s, replicas: 1}
  file-rows: {from: [room], where: key = 'good', select: {n: t}, bound: 5s, replicas: 1}
"""
MESSAGE_BYTES_MAX = 900_000
LINES = 500
ODD = 100
UNDELIVERED_MAX = 50_000
"""Maximum in the producer, whose own queue has room for 100,000."""
FILES_START_US = 1_000_000_002_000_000
"""After the times of the grammar's lines: one ahead would make later valid ones late."""


class Hostile:
    """A stack, the input sent to it, and its output."""

    def __init__(self, folder: Path, stack: StackThread) -> None:
        self.folder, self.stack = folder, stack
        self.spec: Mapping[str, StreamSpec] = load_deployment(folder / "d.yaml").streams
        self.random = Random(7)
        self.good: dict[str, int] = {"topic-rows": 0, "file-rows": 0}
        self.malformed: dict[str, set[str]] = {"lab": set(), "room": set()}
        self._consumers: dict[str, Consumer] = {}
        self._read_to: dict[str, int] = {}

    def send_messages(self, total: int, also: dict[int, bytes] | None = None) -> None:
        """Send valid messages with increasing times, with unusual ones among them."""
        producer = Producer(
            {"bootstrap.servers": self.stack.stack.bootstrap, "enable.idempotence": True}
        )
        reader, start = JsonReader(self.spec["lab"]), time.time_ns() // 1_000
        for offset in range(total):
            message = (also or {}).get(offset)
            if message is None and offset % ODD == 1 and offset < total - 1:
                message = bad_message(self.random, JSON_STREAMS[0])
                message = b"x" if len(message) > MESSAGE_BYTES_MAX else message
                if isinstance(reader.reading_of(message), Bad):
                    self.malformed["lab"].add(f"0:{offset}")
                elif message[:12] == b'{"boundary":':
                    message = b"{}"  # a boundary must be valid, or later readings are late
                    self.malformed["lab"].add(f"0:{offset}")
            elif message is None:
                n = self.good["topic-rows"]
                message = b'{"k":"good","at":%d,"t":%d,"h":1}' % (start + offset, n)
                self.good["topic-rows"] += 1
            producer.produce("lab-readings", message, on_delivery=_delivered)
            while len(producer) >= UNDELIVERED_MAX:
                producer.poll(0.1)
        assert producer.flush(WAIT_S_MAX) == 0
        # Of now, and later than the bucket of the last one: one far ahead of the clock would count
        # as one that was on its way as long as the others, and complete nothing.
        at = max(start + total, time.time_ns() // 1_000) + 20_000
        end = b'{"k":"end","at":%d,"t":0,"h":0}' % at
        producer.produce("lab-readings", end, on_delivery=_delivered)
        assert producer.flush(WAIT_S_MAX) == 0

    def hand_over_files(self, total: int) -> None:
        """Submit files, each of which continues after the one before it."""
        start = FILES_START_US
        for i in range(total):
            job = f"{i:03}"
            lines = [b"k,at,t,h"]
            for line in range(LINES):
                if i % 2 == 1 and line % ODD == 1:
                    lines.append(self._odd_line())
                else:
                    n = self.good["file-rows"]
                    lines.append(b"good,%d,%d,1" % (start + i * 10_000 + line, n))
                    self.good["file-rows"] += 1
            if i == total - 1:
                lines.append(b"end,%d,0,0" % (start + total * 10_000 + 2_000_000))
            path = self.folder / f"file-{i:03}.csv"
            path.write_bytes(b"\n".join(lines) + b"\n")
            for piece in CsvFile(self.spec["room"], path).pieces():
                self.malformed["room"] |= {f"{job}:{one.line}" for one in piece.malformed}
            hand_over(self.folder / "data", "room", job, path, speed=1e8)

    def end_files(self) -> None:
        """Submit a reading of now, when the files have been read.

        One far ahead of the clock, as in the last file, need not complete the others.
        """
        inbox = self.folder / "data" / "proxy" / "room.inbox"
        files = len(list(self.folder.glob("file-*.csv")))
        eventually(lambda: len(list(inbox.glob("*.done"))) == files)
        path = self.folder / "end.csv"
        path.write_bytes(b"k,at,t,h\nend,%d,0,0\n" % (FILES_START_US + 2_000_000))
        hand_over(self.folder / "data", "room", "end", path)

    def _odd_line(self) -> bytes:
        """Return an unusual line that is a row by itself, and whose time delays no other."""
        while True:
            line = bad_line(self.random, CSV_STREAMS[0]).encode(errors="replace")
            rows = read_rows(line + b"\n", 1, ",", last=True).rows
            if b"\n" in line or b"\r" in line or any(row.fault for row in rows):
                continue
            cells = rows[0].cells if rows else ()
            at = time_of(cells[1].strip(), CSV_STREAMS[0].time) if len(cells) > 1 else None
            if at is None or at < FILES_START_US:
                return line

    def values(self, topic: str) -> Iterator[dict[str, Any]]:
        """Return the new values of a topic, up to its end.

        The end is the broker's end offset: on a busy machine a consumer that finds nothing for a
        while may not have reached the topic yet.
        """
        consumer = self._consumers.get(topic)
        if consumer is None:
            consumer = self._consumers[topic] = Consumer(
                {
                    "bootstrap.servers": self.stack.stack.bootstrap,
                    "group.id": "judge",
                    "isolation.level": "read_committed",
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                }
            )
            consumer.assign([TopicPartition(topic, 0, 0)])
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT_S_MAX)
        until = time.monotonic() + WAIT_S_MAX
        while self._read_to.get(topic, 0) < end:
            assert time.monotonic() < until, f"{topic} cannot be read up to {end}"
            for message in consumer.consume(10_000, 0.5):
                error = message.error()
                if error is None:
                    yield orjson.loads(message.value() or b"{}")
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    self._read_to[topic] = message.offset() or 0

    def stable(self, query: str, seen: Counter[int]) -> Counter[int]:
        """Return the count of each valid reading in the stable results, including earlier calls."""
        rows = self.values(f"sw.results.{query}.stable")
        seen.update(int(row["fields"]["n"]) for row in rows if row["kind"] == "stable")
        return seen

    def await_all_good(self, query: str, timeout_s: float) -> None:
        seen: Counter[int] = Counter()
        until = time.monotonic() + timeout_s
        while len(self.stable(query, seen)) < self.good[query]:
            assert time.monotonic() < until, f"{query}: {len(seen)} of {self.good[query]}"
        assert set(seen) == set(range(self.good[query]))
        assert set(seen.values()) == {1}, "a valid reading is in two results"

    def quarantined(
        self, stream: str, reason: str, n: int, timeout_s: float
    ) -> dict[str, set[str]]:
        """Return places by reason, without duplicates, once there are ``n`` for this one.

        A place is without the id of the topic, which is not made again here.

        They are in a separate topic, where they may arrive after the answers with the valid ones.
        """
        found: dict[str, set[str]] = {}
        until = time.monotonic() + timeout_s
        while True:
            for entry in self.values(f"sw.quarantine.{stream}"):
                place = entry["position"].partition("@")[0]
                assert not any(place in places for places in found.values())
                found.setdefault(entry["reason"], set()).add(place)
            if len(found.get(reason, ())) >= n:
                return found
            assert time.monotonic() < until, f"{n} readings of {stream} as {reason}: {found}"

    def close(self) -> None:
        for consumer in self._consumers.values():
            consumer.close()


def _delivered(error: object, _message: object) -> None:
    assert error is None, error


Make = Callable[[], Hostile]


@pytest.fixture(name="hostile")
def _hostile(tmp_path: Path) -> Iterator[Make]:
    made: list[Hostile] = []
    (tmp_path / "d.yaml").write_text(DEPLOYMENT)
    with EmbeddedBroker(tmp_path / "broker") as broker:
        make_topics(broker.bootstrap, ["lab-readings"])
        path = tmp_path / "d.yaml"
        options = StackOptions(
            path, load_deployment(path), tmp_path / "data", bootstrap=broker.bootstrap
        )
        stack = StackThread(options)

        def make() -> Hostile:
            stack.open()
            stack.start_up()
            made.append(Hostile(tmp_path, stack))
            return made[0]

        try:
            yield make
        finally:
            for one in made:
                one.close()
            stack.stop()


def run(hostile: Hostile, messages: int, files: int, timeout_s: float) -> None:
    pids = hostile.stack.pids()
    hostile.hand_over_files(files)
    hostile.send_messages(messages)
    hostile.await_all_good("topic-rows", timeout_s)
    hostile.end_files()
    hostile.await_all_good("file-rows", timeout_s)
    assert hostile.stack.pids() == pids, "a process died"
    for stream in ("lab", "room"):
        assert hostile.malformed[stream]
        found = hostile.quarantined(stream, "malformed", len(hostile.malformed[stream]), timeout_s)
        assert found["malformed"] == hostile.malformed[stream]


def test_hostile_input_ends_nothing_and_hides_nothing(hostile: Make) -> None:
    run(hostile(), messages=10_000, files=6, timeout_s=WAIT_S_MAX)


@pytest.mark.drill
@pytest.mark.timeout(3_600)
def test_hostile_in_full(hostile: Make) -> None:
    run(hostile(), messages=1_000_000, files=100, timeout_s=1_500)


def test_a_message_that_kills_its_reader_is_set_aside_and_the_stream_goes_on(
    hostile: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a reader that crashes: the proxy ends by SIGABRT and continues without the message."""
    monkeypatch.setenv("PYTHONPATH", install(tmp_path / "site"))
    stage = hostile()
    pids = stage.stack.pids()
    stage.hand_over_files(4)
    stage.send_messages(3_000, {1_500: b'{"k":"%s","at":1,"t":1,"h":1}' % WORD})
    stage.await_all_good("topic-rows", WAIT_S_MAX)
    assert stage.quarantined("lab", "crash", 1, WAIT_S_MAX)["crash"] == {"0:1500"}
    now = stage.stack.pids()
    assert {name for name in pids if now.get(name) != pids[name]} == {"proxy"}
    ends = [e.event for e in stage.stack.events() if e.process == "proxy" and "ended" in e.event]
    assert ends == ["ended by SIGABRT"]
    # The other stream of the process continues, without quarantined messages.
    stage.end_files()
    stage.await_all_good("file-rows", WAIT_S_MAX)
    assert "crash" not in stage.quarantined("room", "malformed", 1, WAIT_S_MAX)
