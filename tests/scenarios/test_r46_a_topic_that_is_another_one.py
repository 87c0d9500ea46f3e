"""trace-46: a position is an offset of one topic id.

The topic that a stream reads is deleted and made again, truncated, or away for a while.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.scenarios.test_r10_boundaries_promise_only_what_was_read import (
    THEIRS,
    AtOnce,
    Client,
    Fed,
)
from tests.support.proxy_world import SPEC, S, World

from slackwater.codec import decode_source
from slackwater.model.deployment import TopicFrom
from slackwater.model.errors import SlackwaterError
from slackwater.model.records import Gap, SourcePosition
from slackwater.protocols.dpc.sunion.cursor import SourceCursor
from slackwater.proxy.sourcelog import SourceLog
from slackwater.proxy.topic import input as topic_input
from slackwater.proxy.topic.client import Fetched, Notice
from slackwater.proxy.topic.input import TopicInput
from slackwater.proxy.topic.source_logs import take_over
from slackwater.proxy.topic.watched import TopicAwayError, TopicChangedError
from slackwater.runtime.logs.described import TopicState
from slackwater.runtime.logs.transport import read_to_end

TRUNCATION = (
    "Partition log truncation detected at offset 10 (leader epoch 0): broker end offset is 6"
    " (offset leader epoch 0). Reset to INVALID.: Local: Partition log truncation detected"
)
"""As librdkafka 2.14 tells it."""
NO_SUCH_EPOCH = (
    "No epoch found less or equal to offset 10 (leader epoch 4): broker end offset is -1 (offset"
    " leader epoch -1). Reset using configured policy.: Local: Partition log truncation detected"
)
DECLARED = replace(SPEC, topic=THEIRS, disorder_us=S, expect_every_us=5 * S)


class Remade(Fed):
    """A topic that can be made again; the times of its readings are their seconds."""

    def make_again(self, topic_id: str, partitions: int = 1) -> None:
        """Delete the topic and make it again; nobody has seen it yet."""
        broker = self.world.broker
        broker.delete_topic(THEIRS.name)
        broker.create_topic(THEIRS.name, partitions)
        self.world.topics.states[THEIRS.name] = TopicState(topic_id, partitions)
        self.brought, self.partitions = 0, partitions

    def serve_anew(self) -> None:
        """Begin another life of the stream, with what its process remembers."""
        memory = self.world.contexts[-1].topic_memory
        opened = self.world.context()
        opened.topic_memory = memory
        self.proxy = TopicInput(opened, THEIRS)
        self.proxy.begin()

    def gaps(self) -> list[Gap]:
        return [gap for record in self.log() for gap in record.gap]


def begun(made: Remade) -> Remade:
    """Let the proxy read ten readings."""
    made.put(range(900, 910))
    made.proxy.begin()
    made.bring()
    made.world.run(made.proxy, 2)
    assert made.readings() == 10
    return made


@pytest.fixture
def fed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Remade:
    return begun(Remade(World(tmp_path, spec=DECLARED), monkeypatch))


def test_a_topic_that_was_made_again_is_read_from_its_beginning(fed: Remade) -> None:
    """Also if it is longer by then than the old one was: no offset tells the two apart."""
    fed.make_again("second")
    fed.put(range(910, 935))
    fed.world.topics.look()
    with pytest.raises(TopicChangedError, match="made again"):
        fed.world.run(fed.proxy, 1)
    fed.serve_anew()
    fed.bring()
    fed.world.run(fed.proxy, 2)
    assert fed.readings() == 35, "the ten of the old one, and all of the new one"
    ids = [(r.first_id, r.last_id) for r in fed.log() if r.readings]
    assert ids == [(0, 9), (10, 34)], "a continuation of the stream"
    assert fed.gaps() == [Gap("room.0", 1)], "what lay between is not known"
    assert fed.world.counts() == {}
    assert fed.proxy.detail()["made_again"] == 1


def test_messages_of_another_id_are_not_counted_before_the_topic_is_looked_at(
    fed: Remade,
) -> None:
    """The client has learned of the new id, and reads on in it at the old offset."""
    fed.make_again("second")
    fed.put(range(910, 935))
    raw = [b'{"node": "n", "ts": %d, "t": 1}' % at for at in range(920, 935)]
    fed.client.metadata += 1
    fed.client.waiting.append(Fetched(0, np.arange(10, 25), raw))
    with pytest.raises(TopicChangedError):
        fed.world.run(fed.proxy, 1)
    assert fed.readings() == 10
    fed.serve_anew()
    fed.bring()
    fed.world.run(fed.proxy, 2)
    assert fed.readings() == 35


def test_messages_wait_while_the_broker_does_not_tell_the_id(fed: Remade) -> None:
    fed.put(range(910, 920))
    fed.client.metadata += 1
    fed.world.topics.is_away = True
    fed.bring()
    fed.world.run(fed.proxy, 1)
    assert fed.readings() == 10
    fed.world.topics.is_away = False
    fed.brought = 10
    fed.bring()
    fed.world.run(fed.proxy, 2)
    assert fed.readings() == 20, "fetched again"
    assert fed.gaps() == []


def test_without_metadata_nothing_is_asked(fed: Remade) -> None:
    asked = fed.world.topics.asked
    for at in range(910, 930):
        fed.put([at])
        fed.bring()
        fed.world.run(fed.proxy, 1)
    assert fed.readings() == 30
    assert fed.world.topics.asked == asked


def test_unread_messages_of_the_old_topic_are_counted_in_the_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last end that was seen tells how many."""
    fed = Remade(World(tmp_path, spec=replace(DECLARED, expect_every_us=None)), monkeypatch)
    fed.put(range(900, 910))
    fed.proxy.begin()
    fed.bring()
    fed.world.run(fed.proxy, 2)
    fed.put(range(1_002, 1_009))  # seven, which the client does not return
    fed.world.run(fed.proxy, 1)
    fed.make_again("second")
    fed.serve_anew()
    fed.world.run(fed.proxy, 2)
    assert fed.gaps() == [Gap("room.0", 7)]


def test_a_gap_reaches_to_the_last_reading_that_was_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lost readings are of the present, and the watermark is earlier by the disorder."""
    spec = replace(DECLARED, disorder_us=4 * S)
    fed = Remade(World(tmp_path, spec=spec), monkeypatch)
    begun(fed)
    fed.put(range(1_000, 1_003))
    fed.world.broker.delete_records({(THEIRS.name, 0): 13})
    fed.serve_anew()
    fed.put([1_003])
    fed.brought = 0
    fed.bring()
    fed.world.run(fed.proxy, 2)
    cursor = SourceCursor(SourcePosition(0, -1, -1, 0), strict=True, disorder_us=spec.disorder_us)
    reported: list[tuple[int, int, Gap]] = []
    for offset, record in enumerate(fed.log()):
        cursor.offer(offset, record)
        reported = reported or cursor.gaps
    ((start, end, gap),) = reported
    assert gap == Gap("room.0", 3)
    assert start <= 1_000 * S
    assert end > 1_002 * S, "the last lost reading lies in it"


def test_a_gap_is_told_also_if_the_process_ends_before_it_is_sent(fed: Remade) -> None:
    fed.make_again("second")
    fed.world.spec = replace(DECLARED, expect_every_us=5 * S)
    fed.proxy = TopicInput(fed.world.context(), THEIRS)
    fed.proxy.begin()  # START names the new id; nothing follows it
    hints = {log.name: log.hint for log in fed.proxy.logs if log.hint is not None}
    fed.world.contexts[-1].spool.keep_hints(hints)
    fed.proxy = TopicInput(fed.world.context(), THEIRS)
    fed.proxy.begin()
    fed.put([920])
    fed.bring()
    fed.world.run(fed.proxy, 2)
    assert fed.gaps() == [Gap("room.0", 1)]
    assert fed.readings() == 11


def test_a_topic_made_again_before_a_record_reports_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """START names the first topic, whose messages nobody has read.

    The first proxy died before the record that has the position was sent.
    """
    fed = Remade(World(tmp_path, spec=DECLARED), monkeypatch)
    fed.put(range(900, 910))
    with monkeypatch.context() as dying:
        dying.setattr(SourceLog, "append", lambda *_: None)
        fed.proxy.begin()
    fed.make_again("second")
    fed.serve_anew()
    fed.put(range(910, 920))
    fed.bring()
    fed.world.run(fed.proxy, 2)
    assert fed.readings() == 10
    assert fed.gaps() == [Gap("room.0", 1)]


@pytest.mark.parametrize("reads_from", ["beginning", "end"])
def test_the_place_where_a_stream_begins_is_recorded_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads_from: TopicFrom
) -> None:
    """What is written and deleted after that is a gap, also if the process died meanwhile.

    What the topic had lost before the stream began is nobody's.
    """
    theirs = replace(THEIRS, from_=reads_from)
    world = World(tmp_path, spec=replace(DECLARED, topic=theirs))
    fed = Remade(world, monkeypatch, topic=theirs)
    fed.put(range(880, 900))
    world.broker.delete_records({(THEIRS.name, 0): 20})
    fed.proxy.begin()
    fed.put(range(900, 910))
    world.broker.delete_records({(THEIRS.name, 0): 27})
    world.contexts[-1].topic_memory.ends.clear()
    fed.serve_anew()
    fed.bring()
    world.run(fed.proxy, 2)
    assert fed.readings() == 3
    assert fed.gaps() == [Gap("room.0", 7)]


def test_what_retention_deletes_of_a_topic_made_again_is_in_the_gap(fed: Remade) -> None:
    """Nobody has seen the second one before; all its messages are the stream's."""
    fed.make_again("second")
    fed.put(range(910, 935))
    fed.world.broker.delete_records({(THEIRS.name, 0): 20})
    for _ in range(2):
        fed.serve_anew()
    fed.bring()
    fed.world.run(fed.proxy, 2)
    assert fed.readings() == 15
    assert fed.gaps() == [Gap("room.0", 1 + 20)], "of the first one it is not known"


def without_start(fed: Remade, *, is_named: bool = True) -> None:
    """Let retention delete START; records of earlier versions do not name their input."""
    if not is_named:
        fed.proxy.logs[0].core.input_identity = ""
    fed.put(range(910, 920))
    fed.bring()
    fed.world.run(fed.proxy, 2)
    log = ("sw.source.room.0", 0)
    raw = read_to_end(fed.world.broker, log)
    later = next(r.offset for r in raw if decode_source(r.value).first_id == 10)
    fed.world.broker.delete_records({log: later})


def test_a_topic_made_again_is_noticed_also_if_retention_has_deleted_start(fed: Remade) -> None:
    """No proxy ran meanwhile, and the next one has no hint: each record names its input."""
    without_start(fed)
    fed.make_again("second")
    fed.put(range(920, 945))
    fed.proxy = TopicInput(fed.world.context("elsewhere"), THEIRS)
    fed.proxy.begin()
    assert fed.proxy._partitions[0].position == 0
    fed.bring()
    fed.world.run(fed.proxy, 2)
    ids = [(r.first_id, r.last_id) for r in fed.log() if r.readings]
    assert ids == [(10, 19), (20, 44)]
    assert fed.gaps() == [Gap("room.0", 1)]


def test_the_position_remains_when_retention_has_deleted_start(fed: Remade) -> None:
    """A proxy that begins elsewhere has no hint, and the log no START: nothing is read again."""
    without_start(fed)
    _is_read_on(fed)


def test_the_position_of_an_earlier_version_remains_without_start(fed: Remade) -> None:
    without_start(fed, is_named=False)
    _is_read_on(fed)


def _is_read_on(fed: Remade) -> None:
    fed.proxy = TopicInput(fed.world.context(), THEIRS)
    fed.proxy.begin()
    fed.put(range(920, 925))
    fed.brought = 0 if fed.proxy._partitions[0].position == 0 else 20
    fed.bring()
    fed.world.run(fed.proxy, 2)
    ids = [(r.first_id, r.last_id) for r in fed.log() if r.readings]
    assert ids[-1] == (20, 24), "no reading is counted twice"


def test_an_old_hint_neither_drops_nor_repeats_readings(fed: Remade) -> None:
    _has_an_old_hint(fed)


def test_an_old_hint_does_not_count_for_records_that_do_not_name_their_input(fed: Remade) -> None:
    _has_an_old_hint(fed, is_named=False)


def _has_an_old_hint(fed: Remade, *, is_named: bool = True) -> None:
    """A proxy returns to a node where it ran weeks ago, with the hint of that time.

    Retention has deleted what was written since, START too, except for the last records.
    """
    hint = fed.proxy.logs[0].hint
    assert hint is not None
    fed.world.contexts[-1].spool.keep_hints({"room.0": hint})
    fed.proxy = TopicInput(fed.world.context("elsewhere"), THEIRS)
    fed.proxy.begin()
    if not is_named:
        fed.proxy.logs[0].core.input_identity = ""
    for first in (910, 920):
        fed.put(range(first, first + 10))
        fed.bring()
        fed.world.run(fed.proxy, 2)
    log = ("sw.source.room.0", 0)
    raw = read_to_end(fed.world.broker, log)
    last = next(r.offset for r in raw if decode_source(r.value).first_id == 20)
    fed.world.broker.delete_records({log: last})

    fed.proxy = TopicInput(fed.world.context(), THEIRS)
    fed.proxy.begin()
    assert fed.proxy._partitions[0].position == 30, "nothing is read again"
    fed.put(range(930, 935))
    fed.brought = 30
    fed.bring()
    fed.world.run(fed.proxy, 2)
    ids = [(r.first_id, r.last_id) for r in fed.log() if r.readings]
    assert ids[-1] == (30, 34), "no reader takes them for those that it has read"


def test_a_position_without_an_id_is_that_of_an_earlier_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its START names the topic only; the stream goes on at that position."""
    fed = Remade(World(tmp_path, spec=DECLARED), monkeypatch)
    fed.world.topics.states[THEIRS.name] = TopicState("", 1)
    fed.proxy = TopicInput(fed.world.context(), THEIRS)
    fed.put(range(900, 910))
    fed.proxy.begin()
    fed.bring()
    fed.world.run(fed.proxy, 2)
    fed.world.topics.states[THEIRS.name] = TopicState("first", 1)
    fed.serve_anew()
    assert fed.proxy._partitions[0].position == 10
    assert fed.gaps() == []


def truncated(tmp_path: Path, patch: pytest.MonkeyPatch) -> Remade:
    """Let an unclean election lose four of ten messages that were read; the id is the same."""
    fed = Remade(World(tmp_path, spec=replace(DECLARED, expect_every_us=None)), patch)
    begun(fed)
    del fed.world.broker.log((THEIRS.name, 0)).entries[6:]
    fed.brought = 6
    return fed


def test_a_topic_that_ends_before_the_position_is_read_on_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client does not tell where it was truncated, so new messages may be before the end."""
    fed = truncated(tmp_path, monkeypatch)
    fed.world.run(fed.proxy, 4)
    with pytest.raises(TopicChangedError, match="ends at offset 6, before 10"):
        fed.world.run(fed.proxy, 2)
    fed.serve_anew()
    fed.put([1_007, 1_008])
    fed.bring()
    fed.world.run(fed.proxy, 2)
    assert fed.readings() == 12, "those that were read count; the new ones are read"
    assert fed.gaps() == [Gap("room.0", 1)]
    assert fed.proxy.detail()["truncated"] == 1


@pytest.mark.parametrize("new", [2, 4, 9])
@pytest.mark.parametrize("unread", [0, 3])
def test_messages_at_offsets_that_were_read_before_a_truncation_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new: int, unread: int
) -> None:
    """The client tells where the log was truncated; it has ``new`` messages after that.

    ``unread``: messages that were seen, and lost before they could be read.
    """
    fed = Remade(World(tmp_path, spec=replace(DECLARED, expect_every_us=None)), monkeypatch)
    begun(fed)
    fed.put([1_002] * unread)
    fed.world.run(fed.proxy, 1)
    del fed.world.broker.log((THEIRS.name, 0)).entries[6:]
    fed.put([1_003] * new)
    fed.client.waiting = [Notice(0, "gone", -1001, TRUNCATION)]
    with pytest.raises(TopicChangedError, match=f"{THEIRS.name}:0 was truncated to 6"):
        fed.world.run(fed.proxy, 1)
    fed.serve_anew()
    fed.brought = 6
    fed.bring()
    fed.world.run(fed.proxy, 2)
    assert fed.readings() == 10 + new
    assert fed.gaps() == ([Gap("room.0", unread)] if unread else [])
    assert fed.proxy.detail()["truncated"] == 1
    # Later lives of the stream do not read them again.
    fed.serve_anew()
    assert fed.proxy._partitions[0].position == 6 + new


def test_a_truncation_is_no_failure_unless_it_is_told_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failure the stream rests, for longer each time: several partitions are truncated.

    Without a record in between, the second notice of one offset is a failure.
    """
    fed = Remade(World(tmp_path, spec=replace(DECLARED, expect_every_us=None)), monkeypatch)
    begun(fed)
    del fed.world.broker.log((THEIRS.name, 0)).entries[6:]
    raised_as = []
    for _ in range(3):
        fed.client.waiting = [Notice(0, "gone", -1001, TRUNCATION)]
        with pytest.raises(SlackwaterError) as raised:
            fed.world.run(fed.proxy, 1)
        raised_as.append(raised.type)
        fed.serve_anew()
    assert raised_as == [TopicChangedError, SlackwaterError, SlackwaterError]
    fed.put([1_003] * 2)
    fed.brought = 6
    fed.bring()
    fed.world.run(fed.proxy, 2)
    fed.client.waiting = [Notice(0, "gone", -1001, TRUNCATION)]
    with pytest.raises(TopicChangedError):
        fed.world.run(fed.proxy, 1)


def test_what_a_stopped_proxy_was_told_of_a_truncation_is_not_used_behind_its_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops after the notice; another one reads the new messages; it goes on and begins anew."""
    fed = Remade(World(tmp_path, spec=replace(DECLARED, expect_every_us=None)), monkeypatch)
    fed.epoch = 0
    begun(fed)
    stopped = fed.world.contexts[-1].topic_memory
    del fed.world.broker.log((THEIRS.name, 0)).entries[6:]
    fed.client.waiting = [Notice(0, "gone", -1001, TRUNCATION)]
    with pytest.raises(TopicChangedError):
        fed.world.run(fed.proxy, 1)
    fed.put([1_003] * 3)
    fed.brought, fed.epoch = 6, 1
    fed.proxy = TopicInput(fed.world.context(), THEIRS)
    fed.proxy.begin()
    fed.client.waiting = [Notice(0, "gone", -1001, TRUNCATION)]
    with pytest.raises(TopicChangedError):
        fed.world.run(fed.proxy, 1)
    fed.serve_anew()
    fed.bring()
    fed.world.run(fed.proxy, 2)
    assert fed.readings() == 13
    fed.world.contexts[-1].topic_memory = stopped
    fed.serve_anew()
    assert fed.proxy._partitions[0].position == 9, "all that is there has been read"


def test_a_proxy_that_reads_on_until_it_is_superseded_has_truncated_nothing(fed: Remade) -> None:
    """Its last records have positions beyond the end that the next one has seen at its start."""
    earlier = fed.proxy

    def late(*logs_and_context: Any) -> Any:
        fed.put(range(910, 920))
        fed.bring()
        fed.world.run(earlier, 2)
        return take_over(*logs_and_context)

    fed.monkeypatch.setattr(topic_input, "take_over", late)
    fed.serve_anew()
    assert fed.readings() == 20
    fed.put(range(920, 925))
    fed.bring()
    fed.world.run(fed.proxy, 2)
    assert fed.readings() == 25, "each once"
    assert fed.proxy.detail()["truncated"] == 0


def test_messages_that_come_while_the_ends_are_requested_are_no_truncation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The response is late, and the client has returned more by then."""
    fed: Remade
    pending: list[Callable[[], None]] = []

    class Late(AtOnce):
        """Responds to the second request only after the client has returned more messages."""

        def submit(self, act: Callable[..., Any], *arguments: object) -> Future[Any]:
            done = super().submit(act, *arguments)
            if fed.readings() != 10 or fed.brought != 10:
                return done
            late: Future[Any] = Future()
            fed.put([1_003, 1_004])
            fed.bring()
            pending.append(lambda: late.set_result(done.result()))
            return late

    class Returning(Client):
        def read(self, wait_s: float) -> list[Fetched | Notice]:
            found = super().read(wait_s)
            while pending:
                pending.pop()()
            return found

    fed = Remade(
        World(tmp_path, spec=replace(DECLARED, expect_every_us=None)), monkeypatch, Returning()
    )
    monkeypatch.setattr(topic_input, "ThreadPoolExecutor", lambda *_, **__: Late())
    fed.proxy = TopicInput(fed.world.context(), THEIRS)
    fed.put(range(900, 910))
    fed.proxy.begin()
    fed.bring()
    try:
        fed.world.run(fed.proxy, 5)
    except TopicChangedError as change:
        pytest.fail(f"the stream is restarted: {change}")
    assert fed.readings() == 12
    assert fed.brought == 12


def test_a_topic_that_is_away_is_told_from_one_that_was_made_again(fed: Remade) -> None:
    fed.world.topics.states[THEIRS.name] = None
    fed.world.topics.look()
    with pytest.raises(TopicAwayError, match="does not exist"):
        fed.world.run(fed.proxy, 1)


def test_a_topic_with_fewer_partitions_leaves_their_logs_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was made again. The logs get no readings, and follow the others: they delay no query.

    What was unread in those partitions is lost, so each log reports a gap.
    """
    fed = Remade(World(tmp_path, spec=DECLARED), monkeypatch, partitions=3)
    fed.put(range(900, 910))
    fed.proxy.begin()
    fed.bring()
    fed.world.run(fed.proxy, 2)
    fed.make_again("second", 1)
    fed.serve_anew()
    fed.put(range(910, 920))
    fed.bring()
    fed.world.run(fed.proxy, 2)
    watermarks = {log.name: log.core.watermark // S for log in fed.proxy.logs}
    assert watermarks == {"room.0": 918, "room.1": 918, "room.2": 918}
    assert fed.proxy.detail()["partitions"] == 3
    reported = [
        gap
        for log in fed.proxy.logs
        for record in read_to_end(fed.world.broker, (log.topic, 0))
        for gap in decode_source(record.value).gap
    ]
    assert reported == [Gap("room.0", 1), Gap("room.1", 1), Gap("room.2", 1)]


def test_a_quarantined_reading_names_the_id(fed: Remade) -> None:
    """The same offset of the topic that was made again is another reading."""
    fed.world.broker.writer(fed.world.failures.append).append(THEIRS.name, 0, b"not JSON")
    fed.bring()
    fed.world.run(fed.proxy, 1)
    fed.make_again("second")
    fed.serve_anew()
    fed.put(range(910, 920))
    fed.world.broker.writer(fed.world.failures.append).append(THEIRS.name, 0, b"not JSON")
    fed.bring()
    fed.world.run(fed.proxy, 1)
    assert [e["position"] for e in fed.world.quarantined()] == ["0:10@first", "0:10@second"]
    assert fed.world.counts() == {"malformed": 2}


def test_a_quarantined_reading_names_the_incarnation(fed: Remade) -> None:
    """Of two proxies that read a message the entry of the earlier one does not count (trace-23)."""
    fed.world.broker.writer(fed.world.failures.append).append(THEIRS.name, 0, b"not JSON")
    fed.bring()
    fed.world.run(fed.proxy, 1)
    fed.serve_anew()
    fed.world.broker.writer(fed.world.failures.append).append(THEIRS.name, 0, b"not JSON")
    fed.bring()
    fed.world.run(fed.proxy, 1)
    began = [entry["incarnation"] for entry in fed.world.quarantined()]
    assert began[-1] == fed.proxy.logs[0].inc > began[0]


def lived(tmp_path: Path, patch: pytest.MonkeyPatch) -> Remade:
    """Let a proxy read ten messages of leader epoch 4, and end; the topic loses four of them."""
    fed = Remade(World(tmp_path, spec=replace(DECLARED, expect_every_us=None)), patch)
    fed.epoch = 4
    begun(fed)
    del fed.world.broker.log((THEIRS.name, 0)).entries[6:]
    return fed


def begin_elsewhere(fed: Remade) -> None:
    """Start another process, with nothing but the source log."""
    fed.proxy = TopicInput(fed.world.context("elsewhere"), THEIRS)
    fed.proxy.begin()


@pytest.mark.parametrize("new", [2, 4, 9])
def test_a_truncation_while_no_proxy_runs_is_noticed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new: int
) -> None:
    """Also if the log is longer than the position again: its client asks where the epoch ends."""
    fed = lived(tmp_path, monkeypatch)
    fed.put([1_003] * new)
    begin_elsewhere(fed)
    assert fed.client.assignments[-1] == ({0: 10}, {0: 4})
    fed.world.run(fed.proxy, 1)  # an end is seen before the client tells
    fed.client.waiting = [Notice(0, "gone", -1001, TRUNCATION)]
    with pytest.raises(TopicChangedError, match="was truncated to 6"):
        fed.world.run(fed.proxy, 1)
    fed.serve_anew()
    assert fed.client.assignments[-1] == ({0: 6}, {0: 4})
    fed.brought, fed.epoch = 6, 5
    fed.bring()
    fed.world.run(fed.proxy, 2)
    assert fed.readings() == 10 + new
    assert fed.gaps() == []
    assert fed.proxy.detail()["truncated"] == 1
    begin_elsewhere(fed)
    assert fed.client.assignments[-1] == ({0: 6 + new}, {0: 5})


@pytest.mark.parametrize(("new", "at"), [(2, 8), (9, 10)])
def test_a_log_that_does_not_know_the_epoch_is_read_on_with_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new: int, at: int
) -> None:
    """It is not known which of its messages are new: those before the position are in the gap."""
    fed = lived(tmp_path, monkeypatch)
    fed.put([1_003] * new)
    begin_elsewhere(fed)
    fed.client.waiting = [Notice(0, "gone", -1001, NO_SUCH_EPOCH)]
    with pytest.raises(SlackwaterError, match="no longer has offset 10"):
        fed.world.run(fed.proxy, 1)
    fed.serve_anew()
    assert fed.client.assignments[-1] == ({0: at}, {}), "it is not asked for the epoch again"
    fed.brought = at
    fed.bring()
    fed.world.run(fed.proxy, 2)
    assert fed.readings() == 10 + (6 + new - at)
    assert fed.gaps() == [Gap("room.0", 1)]


def test_a_shorter_log_is_read_on_at_its_end_if_the_client_tells_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed = lived(tmp_path, monkeypatch)
    begin_elsewhere(fed)
    assert fed.client.assignments[-1] == ({0: 10}, {0: 4}), "it may still tell"
    fed.world.run(fed.proxy, 4)
    with pytest.raises(TopicChangedError, match="ends at offset 6, before 10"):
        fed.world.run(fed.proxy, 2)
    fed.serve_anew()
    assert fed.client.assignments[-1] == ({0: 6}, {})


def test_an_epoch_is_that_of_the_position(fed: Remade) -> None:
    """An earlier one would pass for a truncation, so behind markers there is none."""
    fed.epoch = 4
    fed.put(range(910, 915))
    fed.bring()
    fed.world.run(fed.proxy, 2)
    fed.epoch = 5
    fed.put(range(915, 920))
    fed.bring()
    fed.world.run(fed.proxy, 2)
    epochs = [(r.input_position, r.input_epoch) for r in fed.log() if r.readings]
    assert epochs == [(10, -1), (15, 4), (20, 5)], "the first messages had none"
    fed.client.waiting = [Notice(0, "end", 23, "")]
    fed.world.run(fed.proxy, 1)
    fed.proxy._await_readable(0)
    assert fed.client.assignments[-1] == ({0: 23}, {})


def test_an_epoch_ends_with_what_retention_has_deleted(fed: Remade) -> None:
    """The position is then behind messages of later epochs."""
    fed.epoch = 4
    fed.put(range(910, 915))
    fed.bring()
    fed.world.run(fed.proxy, 2)
    fed.put(range(915, 930))
    fed.world.broker.delete_records({(THEIRS.name, 0): 20})
    begin_elsewhere(fed)
    assert fed.client.assignments[-1] == ({0: 20}, {})


def test_a_hint_has_the_epoch_and_one_of_an_earlier_version_has_none(fed: Remade) -> None:
    fed.epoch = 4
    fed.put(range(910, 915))
    fed.bring()
    fed.world.run(fed.proxy, 2)
    hint = fed.proxy.logs[0].hint
    assert hint is not None
    assert hint["epoch"] == 4
    for known, epochs in ((hint, {0: 4}), ({k: hint[k] for k in hint if k != "epoch"}, {})):
        fed.world.contexts[-1].spool.keep_hints({"room.0": known})
        fed.serve_anew()
        assert fed.client.assignments[-1] == ({0: 15}, epochs)
