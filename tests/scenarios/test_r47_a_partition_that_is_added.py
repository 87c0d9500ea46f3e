"""trace-47: a partition is added to a topic while it is read.

The proxy takes it in: it records the number of logs, names it in a START of each log, and begins
the new log at the smallest watermark of the others. Orderers take it in where they read that START,
or, with ``partitions: fixed``, those of the query's next generation do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.paper.stage import MS, Input, Orderer, Settings, Source, SourceLog
from tests.scenarios.test_r10_boundaries_promise_only_what_was_read import THEIRS, Fed
from tests.support.proxy_world import SPEC, S, World

from slackwater.codec import encode_ordered
from slackwater.model.deployment import TopicFrom
from slackwater.model.records import Gap, Kind, OrderedRecord
from slackwater.protocols.common.line import LineName
from slackwater.protocols.dpc.sunion.recovery import with_added_logs
from slackwater.proxy import sourcelog
from slackwater.proxy.topic.client import Fetched
from slackwater.proxy.topic.input import TopicInput
from slackwater.proxy.topic.watched import TopicChangedError
from slackwater.runtime.logs.described import TopicState
from slackwater.runtime.logs.transport import read_to_end
from slackwater.runtime.service.registry import Registry
from slackwater.sessions.effects import Effect, Rebuild

ADDED_MS, END_MS, WINDOW_MS = 1_000, 3_000, 100
SETTINGS = Settings(window_ms=WINDOW_MS)


class TopicLog(Source):
    """The source log of one partition; ``begin`` starts its writer, first or again."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        (self._start,) = self.log
        self.log.clear()
        self.inc = 0

    def begin(self, partitions: int, at_ms: float = -(2**40)) -> TopicLog:
        """Append START at this watermark; its writer knows this number of partitions."""
        at, self.inc = round(at_ms * MS), len(self.log)
        start = replace(self._start, partitions=partitions, boundary=at, stime_min=at)
        start = replace(start, stime_max=at, first_id=self._next_id, last_id=self._next_id - 1)
        self.log.append(start)
        return self

    def emit(
        self, times_ms: Iterable[float], boundary_ms: float, value: float = 1.0, key: str = "k"
    ) -> None:
        """Write readings at these times, followed by a boundary."""
        super().emit(times_ms, boundary_ms, value, key)
        self.log[-1] = replace(self.log[-1], inc=self.inc)


class OfTopic(Orderer):
    """An orderer over the logs of one stream, built with as many as are recorded."""

    outdated: str = ""

    def __init__(
        self, logs: Sequence[Source], known: int, replica: int = 0, start_ms: int = 0
    ) -> None:
        self.every = logs
        start = start_ms * MS
        self.known = known
        read = self.reads(known)
        super().__init__(read, SETTINGS, replica=replica, replicas=2, start_time=start)

    def reads(self, known: int) -> Sequence[Source]:
        """Return the logs that it reads if so many are recorded."""
        return self.every[:known]

    def coming(self, known: int) -> int | None:
        """Return the next partition that it would read."""
        return known

    def crash(self) -> None:
        """Restart, as the other logs are those of the same stream."""
        names, coming = ("s",) * len(self.config.logs), self.coming(self.known)
        of = {} if coming is None else {"s": coming}
        self.config = replace(self.config, names=names, coming=of)
        super().crash()

    def rebuild(self, known: int, taken_in: int | None = None) -> None:
        """Build the session again, with as many logs as are recorded now."""
        self.outdated, self.known = "", known
        self.sources = self.reads(known)
        withheld = frozenset(range(known if taken_in is None else taken_in, known))
        logs = tuple(each.name for each in self.sources)
        self.config = replace(self.config, logs=logs, withheld=withheld)
        self.inputs = {of.at: of for of in map(SourceLog, self.sources)}
        self.crash()

    def receives(self, of: Input) -> bool:
        return of.at in self.session.inputs and super().receives(of)

    def _carry_out(self, effects: Iterable[Effect], now: int) -> tuple[bool, list[OrderedRecord]]:
        others: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Rebuild):
                self.outdated = effect.reason
            else:
                others.append(effect)
        return super()._carry_out(others, now)

    def buckets(self) -> dict[int, bytes]:
        """Return the contents of the stable buckets with readings, by their starts."""
        return {
            record.bucket_start: encode_ordered(
                replace(record, inc=0, first_id=0, last_id=0, replica=0, frontier=None)
            )
            for record in self.logs[LineName.STABLE]
            if record.kind is Kind.INSERTION
        }


def run(of: OfTopic, until_ms: float) -> None:
    """Let the orderer read what is there, and take turns until it is outdated or done."""
    of.listen()
    of.step(until_ms)


def topic() -> tuple[TopicLog, TopicLog]:
    """Return the log of a topic with one partition up to 1 s, and that of a second one."""
    first = TopicLog("s.0").begin(1)
    for at in range(100, ADDED_MS + 1, 100):
        first.emit([at - 50], at)
    return first, TopicLog("s.1")


def add(first: TopicLog, second: TopicLog, *, is_silent: bool = False) -> None:
    """Take the second partition in, and write both up to 3 s."""
    first.begin(2, ADDED_MS)
    if not is_silent:
        second.begin(2, ADDED_MS)
    for at in range(ADDED_MS + 100, END_MS + 1, 100):
        first.emit([at - 50], at)
        if not is_silent:
            second.emit([at - 30], at, value=10.0)


def test_it_emits_nothing_beyond_the_record_that_tells_of_another_log() -> None:
    first, second = topic()
    add(first, second)
    orderer = OfTopic((first, second), 1)
    run(orderer, END_MS)
    assert orderer.outdated == "s has 2 source logs now"
    assert max(orderer.buckets(), default=-1) < ADDED_MS * MS
    orderer.rebuild(2)
    run(orderer, END_MS)
    assert orderer.outdated == ""
    assert max(orderer.buckets()) == (END_MS - 100) * MS


@pytest.mark.parametrize("known", [1, 2], ids=["reads START", "starts with both"])
@pytest.mark.parametrize("read_ms", [300, 900, 1_000])
def test_replicas_agree_wherever_they_take_it_in(read_ms: int, known: int) -> None:
    """One reads START as soon as it is written; the other starts later, or restarts before it."""
    first, second = topic()
    prompt = OfTopic((first, second), 1)
    run(prompt, ADDED_MS)
    slow_first = TopicLog("s.0")
    slow_first.log = [r for r in first.log if r.boundary <= read_ms * MS]
    slow = OfTopic((slow_first, second), 1, replica=1)
    run(slow, read_ms)
    slow.save()

    add(first, second)
    run(prompt, END_MS)
    assert prompt.outdated
    prompt.save()
    prompt.rebuild(2)
    run(prompt, END_MS)

    slow.every = (first, second)
    slow.rebuild(known)
    run(slow, END_MS)
    if known == 1:
        assert slow.outdated
        slow.rebuild(2)
        run(slow, END_MS)
    assert slow.buckets() == prompt.buckets()
    assert len(prompt.buckets()) == END_MS // 100


def test_nothing_is_stable_without_the_added_log() -> None:
    """Until the new log begins, windows are tentative and name the stream."""
    first, second = topic()
    orderer = OfTopic((first, second), 1)
    run(orderer, ADDED_MS)
    orderer.save()
    add(first, second, is_silent=True)
    run(orderer, END_MS)
    orderer.rebuild(2)
    orderer.listen()
    for now in range(ADDED_MS, END_MS + 2_000, 50):
        orderer.step(now)
    assert max(orderer.buckets()) == (ADDED_MS - 100) * MS
    tentative = [r for r in orderer.logs[LineName.LIVE] if r.kind is Kind.TENTATIVE]
    assert tentative
    assert {name for record in tentative for name in record.missing} == {"s"}


def taken_in_by_itself() -> dict[int, bytes]:
    """Return the stable buckets of an orderer that takes the added partition in."""
    first, second = topic()
    orderer = OfTopic((first, second), 1)
    run(orderer, ADDED_MS)
    add(first, second)
    run(orderer, END_MS)
    orderer.rebuild(2)
    run(orderer, END_MS)
    return orderer.buckets()


@pytest.mark.parametrize("read_ms", [ADDED_MS, 300], ids=["follows", "starts later"])
def test_a_fixed_query_is_tentative_until_its_next_generation_takes_it_in(read_ms: int) -> None:
    first, second = topic()
    orderer = OfTopic((first, second), 1)
    if read_ms == ADDED_MS:
        run(orderer, ADDED_MS)
        orderer.save()
    add(first, second)
    run(orderer, END_MS)
    for _ in range(2):  # it restarts
        orderer.rebuild(2, taken_in=1)
        for now in range(ADDED_MS, END_MS + 2_000, 50):
            run(orderer, now)
        orderer.save()
    assert orderer.outdated == "", "it knows that there are two"
    assert orderer.session.report().detail["withheld.s"] == 1
    stable = orderer.buckets()
    assert max(stable, default=-1) < ADDED_MS * MS
    tentative = [r for r in orderer.logs[LineName.LIVE] if r.kind is Kind.TENTATIVE]
    assert {record.missing for record in tentative} == {("s",)}
    assert max(record.bucket_start for record in tentative) == (END_MS - 100) * MS
    assert {tuple(r.values[0]) for r in tentative} == {(1.0,)}, "the reading of the other one"

    cut_ms = orderer.saved.frontier // MS
    later = OfTopic((first, second), 2, start_ms=cut_ms)
    run(later, END_MS)
    assert stable | later.buckets() == taken_in_by_itself()
    assert len(later.buckets()) == (END_MS - cut_ms) // 100


def test_a_fixed_query_answers_in_time_however_full_the_added_log_is() -> None:
    """Nobody reads it, so nobody waits for its end (rule-14)."""
    first, second = topic()
    orderer = OfTopic((first, second), 1)
    run(orderer, ADDED_MS)
    orderer.save()
    add(first, second)
    run(orderer, END_MS)
    orderer.rebuild(2, taken_in=1)
    deadline_ms = ADDED_MS + 100 + SETTINGS.bound_ms - 2 * SETTINGS.margin_ms
    run(orderer, deadline_ms - 1)
    live = orderer.logs[LineName.LIVE]
    assert [record for record in live if record.kind is Kind.TENTATIVE] == []
    run(orderer, deadline_ms)
    answered = [record.bucket_start for record in live if record.kind is Kind.TENTATIVE]
    assert answered[:1] == [ADDED_MS * MS]


def test_a_state_record_in_fewer_logs_continues_with_the_added_one() -> None:
    first, second = topic()
    orderer = OfTopic((first, second), 1)
    run(orderer, ADDED_MS)
    orderer.save()
    both = replace(orderer.config, logs=("s.0", "s.1"), names=("s", "s"))
    state = with_added_logs(orderer.saved, both, 0, [0, 0])
    assert state is not None
    assert [at.stream for at in state.streams] == ["s.0", "s.1"]
    assert state.streams[0] == orderer.saved.streams[0]
    assert state.streams[1].next.offset == 0
    for logs, names in [
        (("s.1",), ("s",)),  # a log of the record is missing
        (("s.0", "t.0"), ("s", "t")),  # another stream: another definition
    ]:
        other = replace(orderer.config, logs=logs, names=names)
        assert with_added_logs(orderer.saved, other, 0, [0] * len(logs)) is None


# --- the proxy ------------------------------------------------------------------------------------

DECLARED = replace(SPEC, topic=THEIRS, disorder_us=S, expect_every_us=5 * S)


class Growing(Fed):
    """A topic that gets partitions; ``sent`` says to which one."""

    def grow(self, partitions: int) -> None:
        self.world.broker.grow_topic(THEIRS.name, partitions)
        self.world.topics.states[THEIRS.name] = TopicState("first", partitions)
        self.world.topics.look()
        self.partitions = partitions

    def serve_anew(self) -> None:
        self.proxy = TopicInput(self.world.context(), self.topic)
        self.proxy.begin()

    def bring_of(self, partition: int) -> None:
        """Let the consumer return what a partition holds."""
        left = list(read_to_end(self.world.broker, (THEIRS.name, partition)))
        offsets = np.array([raw.offset for raw in left], np.int64)
        self.client.waiting = [Fetched(partition, offsets, [raw.value for raw in left])]


def begun(made: Growing) -> Growing:
    """Let the proxy read ten readings."""
    made.put(range(900, 910))
    made.proxy.begin()
    made.bring()
    made.world.run(made.proxy, 2)
    return made


@pytest.fixture
def fed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Growing:
    return begun(Growing(World(tmp_path, spec=DECLARED), monkeypatch))


def test_the_proxy_records_the_partition_before_it_names_it_and_begins_its_log(
    fed: Growing,
) -> None:
    registry = Registry(fed.world.broker)
    assert registry.partitions("room") == 1
    fed.grow(2)
    with pytest.raises(TopicChangedError, match="has 2 partitions now"):
        fed.world.run(fed.proxy, 1)
    fed.serve_anew()
    assert registry.partitions("room") == 2
    started = [log.core for log in fed.proxy.logs]
    assert [record.partitions for record in fed.log() if record.kind is Kind.START] == [1, 2]
    assert [core.watermark // S for core in started] == [908, 908], "that of the other log"
    assert [log.name for log in fed.proxy.logs] == ["room.0", "room.1"]


def test_a_proxy_that_sees_a_partition_before_the_first_one_takes_it_in_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two proxies share a topic; the number is recorded by the other one."""
    theirs = replace(THEIRS, proxies=2)
    world = World(tmp_path, spec=replace(DECLARED, topic=theirs))
    fed = Growing(world, monkeypatch, partitions=2, topic=theirs)
    registry = Registry(world.broker)
    registry.publish_partitions("room", 2)
    for partition in range(4):
        world.broker.grow_topic(f"sw.source.room.{partition}", 1)
    second = TopicInput(world.context(share=1), theirs)
    second.begin()
    fed.grow(4)
    with pytest.raises(TopicChangedError, match="has 4 partitions now"):
        world.run(second, 1)
    second = TopicInput(world.context(share=1), theirs)
    second.begin()
    assert [log.name for log in second.logs] == ["room.1"], "the first one has not recorded it"
    world.run(second, 2)
    registry.publish_partitions("room", 4)
    with pytest.raises(TopicChangedError, match="4 partitions have been taken in, not 2"):
        world.run(second, 3)
    second.close()
    second = TopicInput(world.context(share=1), theirs)
    second.begin()
    assert [log.name for log in second.logs] == ["room.1"], "the first log does not tell of it"
    TopicInput(world.context(share=0), theirs).begin()
    with pytest.raises(TopicChangedError, match="2 partitions have been taken in, not 1"):
        world.run(second, 4)
    second.close()
    second = TopicInput(world.context(share=1), theirs)
    second.begin()
    assert [log.name for log in second.logs] == ["room.1", "room.3"]


def test_a_proxy_that_dies_while_it_takes_a_partition_in_begins_its_log_even_so(
    fed: Growing,
) -> None:
    """The START of the first log is written, and that of the new one is not."""
    fed.grow(2)
    opened = TopicInput(fed.world.context(), THEIRS)
    opened.logs[0].begin()
    fed.serve_anew()
    assert [log.core.watermark // S for log in fed.proxy.logs] == [908, 908]


def test_the_number_never_decreases(fed: Growing) -> None:
    fed.grow(3)
    fed.serve_anew()
    fed.world.topics.states[THEIRS.name] = TopicState("second", 1)
    fed.serve_anew()
    assert Registry(fed.world.broker).partitions("room") == 3
    assert len(fed.proxy.logs) == 3


@pytest.mark.parametrize("has_read", [True, False], ids=["has read", "has read nothing"])
@pytest.mark.parametrize("reads_from", ["beginning", "end"])
def test_what_retention_deletes_of_a_new_partition_before_it_is_seen_is_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads_from: TopicFrom, has_read: bool
) -> None:
    """Also if the first proxy that sees it dies after START, and if the stream reads `from: end`.

    The topic's first partition had lost messages before the stream began: they are nobody's. A
    stream that has read nothing has begun, too, although no log has a watermark.
    """
    fed = _reads(tmp_path, monkeypatch, reads_from)
    if has_read:
        fed.put(range(900, 910))
        fed.bring()
        fed.world.run(fed.proxy, 2)
    fed.grow(2)
    fed.put(range(910, 915), partition=1)
    fed.world.broker.delete_records({(THEIRS.name, 1): 3})
    for _ in range(2):
        fed.serve_anew()
        at = fed.proxy.logs[1].core.position
        assert at == 3, "the last two are read"
    fed.bring_of(1)
    fed.world.run(fed.proxy, 2)
    assert sum(record.readings for record in fed.log(1)) == 2
    assert [gap for record in fed.log() for gap in record.gap] == []
    assert [gap for record in fed.log(1) for gap in record.gap] == [Gap("room.1", 3)]


def test_an_added_partition_is_known_also_if_retention_has_deleted_where_the_stream_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy has its hint; the START of the first log and where it begins are gone."""
    fed = _reads(tmp_path, monkeypatch, "end")
    fed.grow(2)
    fed.serve_anew()
    fed.world.run(fed.proxy, 1, hints=True)
    last = fed.proxy.logs[0].inc
    fed.world.broker.delete_records({("sw.source.room.0", 0): last})
    fed.put(range(910, 915), partition=1)
    fed.world.broker.delete_records({(THEIRS.name, 1): 3})
    fed.serve_anew()
    assert [log.core.position for log in fed.proxy.logs] == [20, 3]


@pytest.mark.parametrize(("reads_from", "begins_at"), [("beginning", 3), ("end", 5)])
def test_a_partition_of_an_interrupted_first_start_is_no_added_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads_from: TopicFrom, begins_at: int
) -> None:
    """The first proxy dies before it has recorded where the second log begins.

    What was deleted by then is nobody's. A third partition was added after the beginning.
    """
    append = sourcelog.SourceLog.append

    def only_of_the_first(log: sourcelog.SourceLog, *of: Any) -> None:
        if log.name == "room.0":
            append(log, *of)

    with monkeypatch.context() as dying:
        dying.setattr(sourcelog.SourceLog, "append", only_of_the_first)
        fed = _reads(tmp_path, monkeypatch, reads_from, partitions=2)
    assert [record.kind for record in fed.log(1)] == [Kind.START]
    fed.grow(3)
    for partition in (1, 2):
        fed.put(range(910, 915), partition)
        fed.world.broker.delete_records({(THEIRS.name, partition): 3})
    fed.serve_anew()
    assert [log.core.position for log in fed.proxy.logs] == [20, begins_at, 3]
    fed.bring_of(2)
    fed.world.run(fed.proxy, 2)
    gaps = [[gap for record in fed.log(number) for gap in record.gap] for number in range(3)]
    assert gaps == [[], [], [Gap("room.2", 3)]]


def _reads(
    folder: Path, monkeypatch: pytest.MonkeyPatch, reads_from: TopicFrom, partitions: int = 1
) -> Growing:
    """Let a stream begin behind the twenty messages of the first partition, which are deleted."""
    theirs = replace(THEIRS, from_=reads_from)
    world = World(folder, spec=replace(DECLARED, topic=theirs))
    fed = Growing(world, monkeypatch, partitions=partitions, topic=theirs)
    fed.put(range(880, 900))
    world.broker.delete_records({(THEIRS.name, 0): 20})
    fed.proxy.begin()
    fed.world.topics.look()
    return fed
