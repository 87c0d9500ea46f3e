"""Several streams of one proxy process: a fault of one of them does not affect the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Unpack, cast

import pytest
from tests.support.memory import MemoryBroker
from tests.support.own_topics import SeenTopics
from tests.support.proxy_world import SPEC
from tests.support.topic_world import ChangingTopics
from tests.support.waiting import WAIT_S_MAX

from slackwater.codec import decode_source, encode_source
from slackwater.codec.state_records import encode_heartbeat
from slackwater.formats.dead_letters import Faults
from slackwater.formats.messages import nothing
from slackwater.model.deployment import Deployment, QuerySpec, WindowSpec
from slackwater.model.errors import DeploymentError, EnvironmentProblem, SlackwaterError
from slackwater.model.names import Names, ProxyName
from slackwater.model.records import Heartbeat, Kind, SourceRecord
from slackwater.primitives.eventclock import WallClock
from slackwater.protocols.dpc.source.core import SourceCore, SourceRules
from slackwater.proxy.inputs import StreamOptions
from slackwater.proxy.registered import RegistryWatch
from slackwater.proxy.requests import BodyContent, Pushed, RequestQueue
from slackwater.proxy.sensors import SensorInput, hand_over
from slackwater.proxy.serving import ProxyShared, Serving, StreamControl
from slackwater.proxy.shell import InputContext
from slackwater.runtime.logs.transport import read_to_end
from slackwater.runtime.service.beat import HeartbeatChanges
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.heartbeats import HeartbeatListener, HeartbeatSender
from slackwater.runtime.service.owntopics import OwnTopics
from slackwater.runtime.service.parts import FAILED_CODE, FAILURES, LEARN, PartBeat
from slackwater.runtime.service.registry import QueryDefinition, Registry

A, B = (replace(SPEC, name=name, ahead_us=86_400_000_000) for name in ("a", "b"))


@dataclass
class ReportedPart:
    """Records a stream's heartbeats."""

    ready: bool = False
    detail: dict[str, int] = field(default_factory=dict)
    lasting: dict[str, int] = field(default_factory=dict)
    begun: int = 1
    stopped: bool = False

    def update(self, **changes: Unpack[HeartbeatChanges]) -> None:
        self.ready = changes.get("ready", self.ready)
        self.detail = dict(changes.get("detail", self.detail))

    def begin_again(self, lasting: Mapping[str, int] | None = None) -> None:
        self.ready = self.stopped = False
        self.begun += 1
        self.lasting |= lasting or {}

    def stop(self) -> None:
        self.stopped = True


class Process:
    """A process that serves ``a`` and ``b``, on a broker in memory."""

    def __init__(self, folder: Path, options: Mapping[str, StreamOptions] | None = None) -> None:
        self.folder, self.broker = folder, MemoryBroker()
        self.own_topics = SeenTopics()
        for name in ("a", "b"):
            self.broker.create_topic(f"sw.source.{name}")
            self.broker.create_topic(f"sw.quarantine.{name}")
        for topic in ("sw.heartbeats", "sw.registry"):
            self.broker.create_topic(topic)
        registry = Registry(self.broker)
        registry.publish_clock(WallClock())
        self.reported: dict[str, ReportedPart] = {}
        self.changed = threading.Event()
        listener = HeartbeatListener(self.broker).start()
        self._listener = listener
        shared = ProxyShared(
            deployment=Deployment("wall", {"a": A, "b": B}, {}),
            cluster="",
            data_dir=folder,
            transport=self.broker,
            producer=self.broker.producer(in_flight_bytes_max=2**26),
            in_flight_bytes_max=2**25,
            clock=SystemClock(),
            listener=listener,
            registry=registry,
            watch=RegistryWatch(registry),
            faults=Faults.open(folder / "proxy", "a"),
            sender=self._sender,
            topics=ChangingTopics(),
            own_topics=OwnTopics(registry, self.broker.names, self.own_topics, self._lost),
            make_topics=lambda _: None,
        )
        self.servings = {
            spec.name: Serving(
                shared,
                spec,
                ProxyName(spec.name),
                (options or {}).get(spec.name, StreamOptions()),
                self.changed.set,
            )
            for spec in (A, B)
        }

    def _lost(self, name: str, error: SlackwaterError) -> None:
        self.servings[name.removeprefix("proxy/")].lost(error)

    def _sender(self, part: str) -> ReportedPart:
        return self.reported.setdefault(part.removeprefix("proxy/"), ReportedPart())

    def start(self) -> None:
        for serving in self.servings.values():
            serving.start()

    def stop(self) -> None:
        for serving in self.servings.values():
            serving.control.stop()
        for serving in self.servings.values():
            serving.join()
        self._listener.stop()

    def records(self, stream: str) -> list[SourceRecord]:
        raw = read_to_end(self.broker, (f"sw.source.{stream}", 0))
        return [decode_source(each.value) for each in raw]

    def starts(self, stream: str) -> int:
        return sum(record.kind is Kind.START for record in self.records(stream))

    def watermark(self, stream: str) -> int:
        return max((record.boundary for record in self.records(stream)), default=0)

    def goes_on(self, stream: str) -> bool:
        """Return whether its boundary follows the clock."""
        before = self.watermark(stream)
        return eventually(lambda: self.watermark(stream) > before + 200_000)

    def ready(self, *streams: str) -> bool:
        return eventually(
            lambda: all(self.reported[s].ready for s in streams if s in self.reported)
        )

    def ingested(self, stream: str) -> list[float]:
        found = []
        for record in self.records(stream):
            if record.columns is not None and record.readings:
                found += [float(value) for value in record.columns.load().values[0]]
        return found

    def ingest(self, stream: str, name: str, *values: int) -> None:
        path = self.folder / f"{name}.csv"
        path.write_text("node,ts,t\n" + "".join(f"n,{1_000 + v},{v}\n" for v in values))
        hand_over(self.folder, stream, name, path, speed=1e6)


def eventually(holds: Callable[[], bool], within_s: float = WAIT_S_MAX) -> bool:
    give_up = time.monotonic() + within_s
    while not holds() and time.monotonic() < give_up:
        time.sleep(0.005)
    return holds()


Make = Callable[..., Process]


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Make]:
    made: list[Process] = []

    def make(options: Mapping[str, StreamOptions] | None = None) -> Process:
        made.append(Process(tmp_path, options))
        made[0].start()
        return made[0]

    yield make
    for each in made:
        each.stop()


def test_two_streams_are_served_by_one_process(process: Make) -> None:
    both = process()
    assert both.ready("a", "b")
    both.ingest("a", "one", 1, 2, 3)
    both.ingest("b", "two", 4, 5)
    assert eventually(lambda: both.ingested("a") == [1, 2, 3])
    assert eventually(lambda: both.ingested("b") == [4, 5])
    assert both.goes_on("a")
    assert both.goes_on("b")
    both.stop()
    assert [both.starts(stream) for stream in ("a", "b")] == [1, 1]
    assert all(reported.stopped for reported in both.reported.values())
    assert both.reported["a"].lasting == {}


def test_an_error_of_one_stream_has_it_served_again_alone(
    process: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = threading.Event()
    step = SensorInput.step

    def failing(self: SensorInput, now_us: int) -> int:
        if self.logs[0].name == "a" and fails.is_set():
            fails.clear()
            raise ZeroDivisionError("an error of a test")
        return step(self, now_us)

    monkeypatch.setattr(SensorInput, "step", failing)
    both = process()
    assert both.ready("a", "b")
    both.ingest("a", "one", 1, 2, 3)
    assert eventually(lambda: both.ingested("a") == [1, 2, 3])
    fails.set()
    assert eventually(lambda: both.starts("a") == 2)
    assert both.ready("a")
    assert both.reported["a"].lasting[FAILURES] == 1
    assert both.reported["a"].lasting[FAILED_CODE] == 1
    both.ingest("a", "two", 4)
    assert eventually(lambda: both.ingested("a") == [1, 2, 3, 4])
    assert both.goes_on("b")
    assert (both.starts("b"), both.reported["b"].begun, both.reported["b"].lasting) == (1, 1, {})


def test_a_record_that_the_broker_refuses_ends_the_serving_of_its_stream_alone(
    process: Make,
) -> None:
    both = process()
    assert both.ready("a", "b")
    complete = both.broker.log(("sw.source.a", 0)).bytes_max
    both.broker.log(("sw.source.a", 0)).bytes_max = 1
    assert eventually(lambda: both.reported["a"].lasting.get(FAILURES, 0) >= 1)
    assert both.goes_on("b")
    both.broker.log(("sw.source.a", 0)).bytes_max = complete
    assert both.goes_on("a")
    assert both.starts("b") == 1


def test_a_stream_whose_source_log_was_made_again_writes_nothing_into_it(process: Make) -> None:
    both = process()
    assert both.ready("a", "b")
    both.own_topics.ids["sw.source.a"] = "another"
    both.own_topics.look()
    assert eventually(lambda: both.reported["a"].lasting.get(FAILURES, 0) >= 2)
    assert both.reported["a"].lasting[FAILED_CODE] == EnvironmentProblem.exit_code
    assert both.starts("a") == 1
    assert both.goes_on("b")
    assert both.reported["b"].lasting == {}


def test_a_stream_that_is_dropped_begins_again_as_after_a_kill(process: Make) -> None:
    both = process()
    assert both.ready("a", "b")
    both.ingest("a", "one", *range(500))
    assert eventually(lambda: len(both.ingested("a")) == 500)
    both.servings["a"].control.drop()
    assert eventually(lambda: both.starts("a") == 2)
    assert both.ready("a")
    assert both.goes_on("a")
    assert both.ingested("a") == list(range(500)), "nothing is sent twice, nothing is lost"
    assert both.reported["a"].lasting == {}, "that was not its own failure"
    assert both.starts("b") == 1
    assert both.goes_on("b")


def test_a_stream_that_is_held_stands_still_and_no_other_does(process: Make) -> None:
    both = process()
    assert both.goes_on("a")
    both.servings["a"].control.hold()

    def stands_still() -> bool:
        before = both.watermark("a")
        assert both.goes_on("b")
        return both.watermark("a") == before

    assert eventually(stands_still), "it may have been in a step when it was held"
    assert stands_still()
    both.servings["a"].control.release()
    assert both.goes_on("a")
    assert both.starts("a") == 1


class OtherWriter(threading.Thread):
    """Takes over stream ``a``, and sends its heartbeats until it is killed."""

    def __init__(self, both: Process) -> None:
        super().__init__(daemon=True)
        self._both, self._killed = both, threading.Event()
        rules = SourceRules("a", ("t",), 0, "promise", clock_boundaries=True, learning=None)
        start = SourceCore(rules).start("another spool", 0)
        both.broker.writer(lambda _: None).append("sw.source.a", 0, encode_source(start))

    def run(self) -> None:
        writer = self._both.broker.writer(lambda _: None)
        while not self._killed.wait(0.02):
            now_us = time.time_ns() // 1000
            beat = Heartbeat("proxy/a", 1, now_us, now_us, 0, True, {}, (), {})
            writer.append("sw.heartbeats", 0, encode_heartbeat(beat))

    def kill(self) -> None:
        self._killed.set()
        self.join()


def test_a_stream_that_others_write_stands_by_until_they_are_gone(
    process: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slackwater.proxy.serving.STANDBY_S", 0.4)
    monkeypatch.setattr("slackwater.proxy.serving.STANDBY_LOOK_S", 0.02)
    both = process()
    assert both.goes_on("a")
    other = OtherWriter(both)
    other.start()
    assert eventually(lambda: both.reported["a"].stopped), "it would report for the other"
    assert both.goes_on("b")
    starts, records = both.starts("a"), len(both.records("a"))
    for _ in range(5):  # a second: longer than the silence for which it waits
        assert both.goes_on("b")
    assert len(both.records("a")) == records
    assert not both.servings["a"].is_over
    assert not both.changed.is_set(), "the process continues"
    other.kill()
    assert both.goes_on("a")
    assert both.starts("a") == starts + 1
    assert not both.reported["a"].stopped


def test_a_stream_that_stands_by_can_be_stopped_and_takes_over_when_it_is_killed(
    process: Make,
) -> None:
    both = process()
    assert both.goes_on("a")
    OtherWriter(both)
    assert eventually(lambda: both.reported["a"].stopped)
    both.servings["a"].control.drop()
    assert both.goes_on("a"), "like a process that is killed and restarted"
    both.reported["a"].stopped = False
    OtherWriter(both)
    assert eventually(lambda: both.reported["a"].stopped)
    both.servings["a"].control.stop()
    assert eventually(lambda: both.servings["a"].is_over)


def test_a_stream_that_cannot_be_served_is_tried_again_beside_the_others(
    process: Make, tmp_path: Path
) -> None:
    file = tmp_path / "wrong.csv"
    file.write_text("node,ts,other\nn,1,1\n")
    both = process({"a": StreamOptions(input=file)})
    assert eventually(lambda: both.servings["a"].is_over)
    assert isinstance(both.servings["a"].error, DeploymentError)
    assert both.reported["a"].lasting[FAILED_CODE] == 2
    assert both.goes_on("b")
    file.write_text("node,ts,t\nn,1,1\n")
    assert both.ready("a")
    assert eventually(lambda: not both.servings["a"].is_over)


def test_a_pause_of_one_streams_disk_delays_no_other(
    process: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, goes_on = threading.Event(), threading.Event()
    step = SensorInput.step

    def slow(self: SensorInput, now_us: int) -> int:
        if self.logs[0].name == "a" and hangs.is_set():
            goes_on.wait(WAIT_S_MAX)
        return step(self, now_us)

    monkeypatch.setattr(SensorInput, "step", slow)
    both = process()
    assert both.ready("a", "b")
    hangs.set()
    assert both.goes_on("b")
    goes_on.set()
    assert both.goes_on("a")
    assert (both.starts("a"), both.starts("b")) == (1, 1)


def test_the_heartbeat_of_a_stream_begins_anew_and_keeps_the_count_of_its_failures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("slackwater.runtime.service.heartbeats.Producer", lambda _config: None)
    sender = HeartbeatSender("127.0.0.1:1", "proxy", names=Names(), carries=True)

    def reported() -> Heartbeat:
        sender._full = None  # its thread, which does not run, would do so at each change
        (beat,) = sender._next_heartbeat().each()
        assert beat.process == "proxy/room"
        kept = {name: n for name, n in beat.detail.items() if name in ("readings", FAILURES)}
        return replace(beat, detail=kept)

    beat = PartBeat(sender, "proxy/room")
    beat.update(inc=4, ready=True, detail={"readings": 3})
    first = reported()
    assert (first.inc, first.ready, first.detail) == (4, True, {"readings": 3})
    beat.begin_again({FAILURES: 1})
    second = reported()
    assert (second.inc, second.ready, second.detail) == (-1, False, {FAILURES: 1})
    assert second.started_at > first.started_at
    beat.update(ready=True, detail={"readings": 5})
    assert reported().detail == {"readings": 5, FAILURES: 1}
    beat.stop()
    assert not sender._next_heartbeat().parts


def test_a_rein_wakes_whom_it_stops_drops_and_holds() -> None:
    control, ends = StreamControl(), threading.Event()

    def loop() -> None:
        while not control.wait(WAIT_S_MAX):
            pass
        ends.set()

    control.hold()
    threading.Thread(target=loop, daemon=True).start()
    control.release()
    assert not ends.wait(0.01)
    control.stop()
    assert ends.wait(WAIT_S_MAX)
    assert control.is_set()


def test_a_wake_up_ends_a_wait_once_and_nothing_else() -> None:
    """Also one that precedes the wait; a held loop remains held."""
    control = StreamControl()
    control.wake()
    assert not control.wait(WAIT_S_MAX)
    began = time.monotonic()
    assert not control.wait(0.05)
    assert time.monotonic() - began >= 0.04, "the wake-up was used"
    woken = threading.Event()

    def loop() -> None:
        control.wait(WAIT_S_MAX)
        woken.set()

    control.hold()
    threading.Thread(target=loop, daemon=True).start()
    control.wake()
    assert not woken.wait(0.05)
    control.release()
    assert woken.wait(WAIT_S_MAX)


def test_a_posted_request_wakes_its_stream() -> None:
    """The stream sleeps until its next cut point, and a request wakes it."""
    control = StreamControl()
    queue = RequestQueue(control.wake)
    queue.open()
    waits: list[bool] = []
    loop = threading.Thread(target=lambda: waits.append(control.wait(WAIT_S_MAX)), daemon=True)
    loop.start()
    assert queue.put(Pushed(b"", lambda _: BodyContent(nothing(0), str, ()))) is None
    loop.join(WAIT_S_MAX)
    assert waits == [False]
    assert len(queue.take()) == 1


# --- queries that are added at run time ----------------------------------------------------------

WINDOW = WindowSpec(7_000_000, 7_000_000)
ADDED = QueryDefinition(
    *("added", 0, 7, 250_000),
    QuerySpec("added", ("a",), None, (), WINDOW, ("count",), bound_us=2_000_000),
)


def test_a_stream_learns_a_query_that_is_added_while_it_is_served(process: Make) -> None:
    both = process()
    assert both.ready("a", "b")
    Registry(both.broker).publish_queries(ADDED)
    both.servings["a"].verbs[LEARN]()
    context = both.servings["a"]._input_context
    assert context is not None
    assert eventually(lambda: "added" in context.found)
    grid, start_time = context.found["added"]
    assert (grid.window, start_time) == (WINDOW, 7)
    assert both.starts("a") == 1


class SlowRegistry:
    """Responds when it is released, with the queries registered at the time of the request."""

    def __init__(self) -> None:
        self.registered: dict[str, QueryDefinition] = {}
        self.asked, self.goes_on = threading.Semaphore(0), threading.Semaphore(0)

    def wait_for_clock(self) -> WallClock:
        return WallClock()

    def all_queries(self) -> dict[str, QueryDefinition]:
        found = dict(self.registered)
        self.asked.release()
        assert self.goes_on.acquire(timeout=WAIT_S_MAX)
        return found


def test_a_query_that_is_added_while_the_registry_is_read_is_not_missed() -> None:
    registry = SlowRegistry()
    watch = RegistryWatch(cast(Registry, registry))
    found: list[set[str]] = []

    class WaitingInput:
        name, learning, event_clock = ProxyName("a"), None, None
        stop = threading.Event()

        def start_clock(self, clock: object) -> None: ...

        def registered(self, queries: Mapping[str, QueryDefinition], learned: object) -> bool:
            found.append({*queries})
            return True

    context = cast(InputContext, WaitingInput())
    watch.notify(context)
    assert registry.asked.acquire(timeout=WAIT_S_MAX)
    registry.registered = {"added": ADDED}
    watch.notify(context)
    registry.goes_on.release(2)
    assert eventually(lambda: found == [set(), {"added"}])
    assert eventually(lambda: not watch._runs)


def test_a_deleted_query_is_not_waited_for(process: Make) -> None:
    both = process()
    assert both.ready("a", "b")
    Registry(both.broker).publish_queries(replace(ADDED, state="deleted"))
    context = both.servings["a"]._input_context
    assert context is not None
    context.deployment = Deployment("wall", {"a": A}, {"added": ADDED.spec})
    assert not context.registered({}, {})
    assert context.registered(Registry(both.broker).all_queries(), {})
    assert context.found == {}
