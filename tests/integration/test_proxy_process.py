"""Sensor proxies as processes on a real broker: killed, silenced, started twice, with a topic."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import orjson
import pytest
from confluent_kafka import Producer
from tests.support.quarantine_counts import DistinctCounts
from tests.support.waiting import WAIT_S_MAX, eventually

from slackwater.codec import decode_source
from slackwater.machine.broker import EmbeddedBroker
from slackwater.model.names import Names
from slackwater.model.records import Kind, SourcePosition, SourceRecord
from slackwater.primitives.eventclock import AnchoredClock, EventClock, WallClock
from slackwater.protocols.dpc.sunion.cursor import SourceCursor
from slackwater.proxy.sensors import hand_over
from slackwater.runtime.logs.kafka import KafkaTransport, read_to_end
from slackwater.runtime.logs.topics import TopicLayout, ensure_topics, topics_for
from slackwater.runtime.service.heartbeats import HeartbeatListener
from slackwater.runtime.service.registry import Registry

ROOM = Path(__file__).parents[1] / "data" / "room_climate" / "node-1.csv.gz"
FIRST_US = 1_458_031_648_545_000

DEPLOYMENT = """
apiVersion: slackwater/v1
streams:
  killed: &room
    {key: {column: node}, time: {column: ts, unit: ms}, fields: [temperature], disorder: 0ms}
  beside: *room
  silenced: *room
  twice: *room
  other: *room
  lab:
    topic: {name: lab-readings, format: json}
    key: {field: mote}
    time: {field: at, unit: us}
    fields: [temperature]
    disorder: 20s  # the producer of the test may be held up for a while
    sporadic: true
  quiet:
    topic: {name: quiet-readings, format: json}
    key: {field: mote}
    time: {field: at, unit: us}
    fields: [temperature]
    expect_every: 1h  # nothing is promised by the clock while the test runs, however slowly
  carried:
    topic: {name: carried-readings, format: json}
    key: {from: record}
    time: {from: record}
    fields: [temperature]
    expect_every: 1h
  full: {key: {column: mote}, time: {column: at, unit: us}, fields: [x]}
  nowhere:
    topic: {name: no-such-topic, format: json}
    key: {field: mote}
    time: {field: at, unit: us}
    fields: [temperature]
    expect_every: 5s
  wrong: {key: {column: node}, time: {column: ts, unit: ms}, fields: [pressure]}
queries:
  climate:
    from: [killed, beside, silenced, twice, other, lab, quiet, carried, full, nowhere, wrong]
    window: {size: 60s}
    aggregate: [count]
    bound: 2s
"""


@dataclass
class Stage:
    """A broker, and the proxies that a test starts on it."""

    broker: EmbeddedBroker
    folder: Path
    transport: KafkaTransport
    listener: HeartbeatListener
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    @contextmanager
    def broker_paused(self) -> Iterator[None]:
        os.kill(self.broker.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.broker.pid, signal.SIGCONT)

    def clock(self, event_clock: EventClock) -> None:
        Registry(self.transport).publish_clock(event_clock)

    def proxy(
        self, stream: str, *options: str, also: Sequence[str] = ()
    ) -> subprocess.Popen[bytes]:
        started_us = time.time_ns() // 1000
        streams = [stream, *also]
        command = [sys.executable, "-m", "slackwater.proxy", *streams]
        command += ["--deployment", str(self.folder / "d.yaml"), "--bootstrap", self.bootstrap]
        command += ["--data-dir", str(self.folder), *options]
        with (self.folder / f"{stream}.log").open("ab") as log:
            process = subprocess.Popen(command, stderr=log)
        self.processes.append(process)

        def ready(name: str) -> bool:
            beat = self.listener.latest(name)
            return beat is not None and beat.ready and beat.started_at >= started_us

        names = [f"proxy/{name}" for name in streams]
        eventually(lambda: all(map(ready, names)) or process.poll() is not None)
        return process

    def records(self, stream: str) -> list[tuple[int, int, SourceRecord]]:
        """Return (offset, Kafka's own time in ms, record)."""
        log = (self.transport.names.source(stream), 0)
        raw = read_to_end(self.transport, log)
        return [(r.offset, r.timestamp_ms, decode_source(r.value)) for r in raw]

    def accepted(self, stream: str) -> list[SourceRecord]:
        cursor = SourceCursor(SourcePosition(0, 0, 0, -(2**62)), strict=True)
        return [r for offset, _, r in self.records(stream) if cursor.offer(offset, r)]

    def readings(self, stream: str) -> list[int]:
        """Return the stimes of all accepted readings; check ids and watermarks."""
        stimes: list[int] = []
        watermark = -(2**62)
        for record in self.accepted(stream):
            if record.kind is Kind.START:
                continue  # its boundary covers earlier readings; the older one may have continued
            assert record.boundary >= watermark
            if record.readings:
                assert record.first_id == len(stimes)
                assert record.stime_min >= watermark
                assert record.columns is not None
                stimes += record.columns.load().stimes.tolist()
            watermark = record.boundary
        return stimes

    def counts(self, stream: str) -> dict[str, int]:
        distinct = DistinctCounts()
        for raw in read_to_end(self.transport, (self.transport.names.quarantine(stream), 0)):
            distinct.add(raw.value)
        return dict(distinct.counts.get(stream, {}))

    def detail(self, stream: str, name: str) -> int:
        beat = self.listener.latest(f"proxy/{stream}")
        return -1 if beat is None else beat.detail.get(name, -1)


def kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("proxies")
    (folder / "d.yaml").write_text(DEPLOYMENT)
    with EmbeddedBroker(folder / "broker") as broker:
        transport = KafkaTransport(broker.bootstrap)
        ensure_topics(broker.bootstrap, topics_for(["lab"], []), WAIT_S_MAX)
        own = [TopicLayout("lab-readings", 2, {}), TopicLayout("quiet-readings", 2, {})]
        own.append(TopicLayout("carried-readings", 1, {"message.timestamp.type": "LogAppendTime"}))
        ensure_topics(broker.bootstrap, own, WAIT_S_MAX)
        listener = HeartbeatListener(transport).start()
        made = Stage(broker, folder, transport, listener)
        yield made
        for process in made.processes:
            kill(process)
        listener.stop()


@contextmanager
def alone(stage: Stage, prefix: str) -> Iterator[Stage]:
    """Return the deployment under a prefix, on the same broker: separate registry and topics."""
    folder, names = stage.folder / prefix, Names(prefix)
    folder.mkdir()
    (folder / "d.yaml").write_text(f"prefix: {prefix}\n{DEPLOYMENT}")
    transport = KafkaTransport(stage.bootstrap, names)
    ensure_topics(stage.bootstrap, topics_for(["silenced"], [], names), WAIT_S_MAX)
    listener = HeartbeatListener(transport).start()
    made = Stage(stage.broker, folder, transport, listener)
    try:
        yield made
    finally:
        for process in made.processes:
            kill(process)
        listener.stop()


def anchor(in_s: float, speed: float) -> AnchoredClock:
    return AnchoredClock(time.time_ns() // 1000 + round(in_s * 1e6), FIRST_US, speed)


def test_killed_in_the_middle_and_restarted_nothing_is_lost_or_doubled(stage: Stage) -> None:
    stage.clock(anchor(0, 900))
    until, end = FIRST_US + 5 * 3600 * 1_000_000, FIRST_US + 6 * 3600 * 1_000_000
    options = ["--input", f"killed={ROOM}", "--input", f"beside={ROOM}"]
    options += ["--end-at", str(until), "--end-boundary", str(end)]
    for kill_at in (400, 1500):
        process = stage.proxy("killed", *options, also=["beside"])
        eventually(lambda at=kill_at: stage.detail("killed", "readings") >= at)  # type: ignore[misc]
        kill(process)
    last = stage.proxy("killed", *options, also=["beside"])
    both = ("killed", "beside")
    for stream in both:
        eventually(lambda s=stream: stage.detail(s, "ended") == 1)  # type: ignore[misc]
        eventually(lambda s=stream: stage.accepted(s)[-1].boundary == end)  # type: ignore[misc]
    last.terminate()
    assert last.wait(WAIT_S_MAX) == 0
    for stream in both:
        records = stage.records(stream)
        assert sum(record.kind is Kind.START for _, _, record in records) == 3
    from slackwater.deployment.parse import load_deployment
    from slackwater.judge.readers.files import read_stream  # the line-by-line reader, as the oracle

    spec = load_deployment(stage.folder / "d.yaml").streams["killed"]
    wanted = [r.stime for r in read_stream(spec, ROOM).until(until).accepted]
    for stream in both:
        assert stage.readings(stream) == wanted


def test_a_silence_holds_across_a_restart_and_makes_nothing_late(stage: Stage) -> None:
    """With a separate registry: the clock is published when the proxy is ready, and not before.

    If the machine is so slow that the second start follows the silence, less is tested.
    """
    with alone(stage, "silent.") as own:
        end = FIRST_US + 3 * 3600 * 1_000_000
        options = ["--input", str(ROOM), "--end-at", str(end), "--end-boundary", str(end)]
        options += ["--silence", "1:5"]
        process = own.proxy("silenced", *options)
        clock = anchor(0.5, 1_500)
        own.clock(clock)
        eventually(lambda: time.time() * 1e6 > clock.anchor_wall_us + 1.5e6)
        kill(process)
        own.proxy("silenced", *options)
        eventually(lambda: own.detail("silenced", "ended") == 1)
        begins_ms, ends_ms = clock.anchor_wall_us / 1000 + np.array([1_000, 6_000])
        records = own.records("silenced")
        # Records passed to the client as it begins may still arrive, later on a busy machine.
        during = [r.kind for _, at_ms, r in records if begins_ms < at_ms < ends_ms - 1]
        assert during in ([], [Kind.INSERTION], [Kind.INSERTION] * 2)
        assert sum(at_ms < begins_ms for _, at_ms, _ in records) >= 1
        assert sum(r.kind is Kind.START for _, _, r in records) == 2
        assert own.counts("silenced") == {}
        assert len(own.readings("silenced")) > 2000


def stands_by(stage: Stage, name: str, stream: str) -> bool:
    logged = f"another process writes stream {stream} now: standing by"
    return logged in (stage.folder / f"{name}.log").read_text()


def goes_on(stage: Stage, stream: str) -> None:
    before = len(stage.readings(stream))
    eventually(lambda: len(stage.readings(stream)) > before + 30)


def test_started_twice_the_older_one_stands_by_and_takes_over_from_a_dead_one(
    stage: Stage,
) -> None:
    stage.clock(anchor(0, 600))
    options = ["--input", str(ROOM)]
    older = stage.proxy("twice", *options)
    newer = stage.proxy("twice", *options)
    eventually(lambda: stands_by(stage, "twice", "twice"))
    goes_on(stage, "twice")
    assert (older.poll(), newer.poll()) == (None, None)
    kill(newer)
    goes_on(stage, "twice")
    older.terminate()
    assert older.wait(WAIT_S_MAX) == 0


def test_started_twice_the_older_one_of_several_streams_stands_by_for_that_stream(
    stage: Stage,
) -> None:
    stage.clock(anchor(0, 600))
    options = ["--input", f"twice={ROOM}", "--input", f"other={ROOM}"]
    older = stage.proxy("twice", *options, also=["other"])
    newer = stage.proxy("twice", "--input", str(ROOM))
    eventually(lambda: stands_by(stage, "twice", "twice"))
    for stream in ("twice", "other"):
        goes_on(stage, stream)
    assert (older.poll(), newer.poll()) == (None, None)
    for process in (newer, older):
        process.terminate()
        assert process.wait(WAIT_S_MAX) == 0


def put(producer: Producer, topic: str, value: object, partition: int = 0) -> None:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    producer.produce(topic, data, partition=partition)
    producer.poll(0)


def now_us() -> int:
    return time.time_ns() // 1000


def test_a_topic_of_json_with_bad_messages_and_a_kill(stage: Stage) -> None:
    stage.clock(WallClock())
    producer = Producer({"bootstrap.servers": stage.bootstrap, "linger.ms": 1})
    process = stage.proxy("lab")

    def some(n: int, partition: int) -> None:
        for i in range(n):
            reading = {"mote": i % 3, "at": now_us(), "temperature": 20 + i / 10}
            put(producer, "lab-readings", reading, partition)
            time.sleep(0.002)
        producer.flush()

    some(200, 0)
    eventually(lambda: stage.detail("lab", "readings") == 200)
    put(producer, "lab-readings", b"nonsense")
    put(producer, "lab-readings", {"mote": "x", "at": now_us() - 60_000_000, "temperature": 1})
    put(producer, "lab-readings", {"mote": "x", "at": now_us() + 2 * 86_400_000_000})
    put(producer, "lab-readings", {"mote": 1.5, "at": now_us(), "temperature": 1})
    producer.flush()
    eventually(lambda: sum(stage.counts("lab").values()) == 4)
    kill(process)
    some(200, 0)
    some(100, 1)
    stage.proxy("lab")
    eventually(lambda: len(stage.readings("lab.1")) == 100 and len(stage.readings("lab.0")) == 400)
    assert stage.counts("lab") == {"malformed": 2, "late": 1, "ahead": 1}
    entries = [
        orjson.loads(raw.value) for raw in read_to_end(stage.transport, ("sw.quarantine.lab", 0))
    ]
    places, ids = zip(*(e["position"].split("@") for e in entries), strict=True)
    assert {*places} == {"0:200", "0:201", "0:202", "0:203"}
    assert len({*ids}) == 1, "the id of the topic"
    assert {e["stream"] for e in entries} == {"lab"}
    # It is running and has read everything, so its boundary follows the clock (trace-10).
    read_at = now_us()
    eventually(lambda: stage.accepted("lab.0")[-1].boundary > read_at - 20_000_000)


def test_with_expect_every_a_partition_that_never_held_a_record_follows(stage: Stage) -> None:
    stage.clock(WallClock())
    producer = Producer({"bootstrap.servers": stage.bootstrap, "linger.ms": 1})
    stage.proxy("quiet")
    at = now_us() - 100_000  # none of the readings is ahead of the clock
    for i in range(10):
        put(producer, "quiet-readings", {"mote": "a", "at": at + i * 1000, "temperature": 1})
    producer.flush()
    eventually(lambda: len(stage.readings("quiet.0")) == 10)
    assert stage.accepted("quiet.0")[-1].boundary == at + 9000
    eventually(lambda: stage.accepted("quiet.1")[-1].boundary == at + 9000)
    put(producer, "quiet-readings", {"boundary": at + 50_000})
    producer.flush()
    eventually(lambda: stage.accepted("quiet.1")[-1].boundary == at + 50_000)
    put(producer, "quiet-readings", {"mote": "a", "at": at + 60_000, "temperature": 1}, 1)
    put(producer, "quiet-readings", {"mote": "a", "at": at + 90_000, "temperature": 1}, 0)
    producer.flush()
    eventually(lambda: stage.accepted("quiet.0")[-1].boundary == at + 90_000)
    eventually(lambda: stage.accepted("quiet.1")[-1].boundary == at + 60_000)


def test_keys_and_times_are_those_of_the_records_of_a_topic(stage: Stage) -> None:
    """Of a topic whose broker sets the times, over a kill of the proxy."""
    stage.clock(WallClock())
    producer = Producer({"bootstrap.servers": stage.bootstrap})
    before_us = now_us() // 1_000 * 1_000
    for key in (b"kitchen", b"hall", None, b"\xff"):
        producer.produce("carried-readings", b'{"temperature":1}', key, partition=0, timestamp=5)
    producer.flush()
    process = stage.proxy("carried")
    eventually(lambda: len(stage.readings("carried.0")) == 2)
    kill(process)
    producer.produce("carried-readings", b'{"temperature":2}', b"kitchen", partition=0, timestamp=6)
    producer.flush()
    stage.proxy("carried")
    eventually(lambda: len(stage.readings("carried.0")) == 3)
    stimes = stage.readings("carried.0")
    assert before_us <= min(stimes) <= max(stimes) <= now_us()
    assert stimes == sorted(stimes)
    keys = [key for record in stage.accepted("carried.0") for key in keys_of(record)]
    assert keys == ["kitchen", "hall", "kitchen"]
    eventually(lambda: stage.counts("carried") == {"malformed": 2})
    entries = [
        orjson.loads(raw.value)
        for raw in read_to_end(stage.transport, ("sw.quarantine.carried", 0))
    ]
    assert {e["position"].partition("@")[0]: e["detail"] for e in entries} == {
        "0:2": "key: its record has none",
        "0:3": "key: that of its record is not UTF-8",
    }


def keys_of(record: SourceRecord) -> list[str]:
    """Return the key of each reading of a record."""
    if record.columns is None or not record.readings:
        return []
    columns = record.columns.load()
    return [columns.keys[i] for i in columns.key_index.tolist()]


def test_a_full_spool_makes_the_sensor_wait_and_loses_nothing(stage: Stage) -> None:
    """No reading is dropped for lack of space; it remains at its sender (guarantee-6)."""
    stage.clock(WallClock())
    n, bytes_max = 150_000, 1 << 20
    file = stage.folder / "full.csv"
    file.write_text("mote,at,x\n" + "".join(f"m,{10 * i},{i}\n" for i in range(n)))
    stage.proxy("full", "--spool-bytes-max", str(bytes_max))
    eventually(lambda: stage.accepted("full")[-1].boundary > 0)  # it has its clock

    with stage.broker_paused():
        hand_over(stage.folder, "full", "sensor", file)
        eventually(lambda: "waits until there is room" in (stage.folder / "full.log").read_text())
        with closing(sqlite3.connect(stage.folder / "proxy" / "full.sqlite")) as spool:
            ((kept, held),) = spool.execute("SELECT max(last_id) + 1, sum(bytes) FROM batches")
        assert 0 < kept < n
        assert bytes_max / 2 < held <= bytes_max

    eventually(
        lambda: stage.detail("full", "readings") == n and stage.detail("full", "spool_bytes") == 0
    )
    stimes = stage.readings("full")
    assert [at - stimes[0] for at in stimes] == [10 * i for i in range(n)]
    assert stage.counts("full") == {}


def test_what_cannot_work_ends_with_its_code_and_a_sentence(stage: Stage) -> None:
    missing = stage.proxy("nowhere")
    assert missing.wait(WAIT_S_MAX) == 3
    assert "no-such-topic" in (stage.folder / "nowhere.log").read_text()
    wrong = stage.proxy("wrong", "--input", str(ROOM))
    assert wrong.wait(WAIT_S_MAX) == 2
    reported = (stage.folder / "wrong.log").read_text()
    assert "has no column 'pressure'" in reported
    assert "node-1.csv.gz" in reported
