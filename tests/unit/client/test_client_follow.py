"""Following three topics in memory: from the beginning, from the end, best answers, repeats."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import orjson
import pytest
from tests.support.memory import MemoryBroker
from tests.support.own_topics import SeenTopics
from tests.unit.histories import Root, expectations
from tests.unit.judge.test_client_check import CELLS

from slackwater.cli import tables
from slackwater.client.answers import (
    BestAnswers,
    CorrectionsDone,
    ResultReading,
    Undone,
    WindowAnswer,
)
from slackwater.client.follow import KINDS, POLL_RECORDS_MAX, Follow, Follower, Seen
from slackwater.codec.results import ResultHead, encode_gap, format_time
from slackwater.delivery.merge import HELD_RECORDS_MAX
from slackwater.model.names import RESULT_KINDS, Names
from slackwater.model.records import Gap
from slackwater.protocols.dpc.soutput.answers import GapNote
from slackwater.runtime.logs.transport import Log
from slackwater.runtime.service.owntopics import TopicLostError
from slackwater.runtime.service.registry import Registry

BUCKET = 100_000


def broker() -> MemoryBroker:
    made = MemoryBroker()
    for kind in RESULT_KINDS:
        made.create_topic(Names().results("climate", kind))
    return made


def write(to: MemoryBroker, records: list[dict[str, Any]]) -> None:
    with to.transaction() as transaction:
        for record in records:
            kind = record.get("label", record["kind"])
            topic = Names().results("climate", kind if kind in RESULT_KINDS else "corrections")
            value = {name: v for name, v in record.items() if name != "seen_at"}
            transaction.append(topic, 0, orjson.dumps(value))


def root() -> tuple[Root, list[dict[str, Any]], list[dict[str, Any]]]:
    made = Root(expectations(), CELLS)
    made.stable(1)
    made.tentative(2, ["room-2"])
    first = list(made.records)
    made.stable(3)
    return made, first, made.records[len(first) :]


def test_from_the_beginning_to_the_present_end() -> None:
    log, (made, first, second) = broker(), root()
    write(log, first)
    write(log, second)
    changes: list[object] = []
    names = ("stable", "tentative", "undo", "rec_done")
    answers = BestAnswers()
    follow = Follow(
        Follower(log, "climate", 1), KINDS, True, answers, dict.fromkeys(names, changes.append)
    )
    records = list(follow)
    assert [r["seq"] for r in records] == list(range(len(made.records)))
    assert all("seen_at" in r for r in records)
    assert (follow.repeats, follow.cuts) == (0, [])
    kinds = [type(change) for change in changes]
    assert kinds.count(WindowAnswer) == 6
    assert (kinds.count(Undone), kinds.count(CorrectionsDone)) == (1, 1)
    assert {answer.label for answer in answers.windows()} == {"stable"}
    assert answers.measures.n_tentative_all == 2
    assert answers.measures.n_tentative == 0


def test_from_the_end_only_what_comes() -> None:
    log, (_, first, second) = broker(), root()
    write(log, first)
    follower = Follower(log, "climate", 1, "end")
    assert follower.poll(0.01) == []
    write(log, second)
    seen: list[dict[str, Any]] = []
    for _ in range(100):
        seen += [item.record for item in follower.poll(0.01) if isinstance(item, Seen)]
        if len(seen) == len(second):
            break
    assert [r["seq"] for r in seen] == [r["seq"] for r in second]
    assert follower.cuts == []


def test_from_the_end_a_window_of_more_rows_than_are_held_of_a_topic() -> None:
    """The start is known once all topics were read to their ends: no topic is paused."""
    log, rows = broker(), HELD_RECORDS_MAX + 2 * POLL_RECORDS_MAX
    follower = Follower(log, "climate", 1, "end")
    head = {"query": "climate", "part": 0, "epoch": 0, "kind": "stable", "missing": []}
    times = dict.fromkeys(("window_start", "window_end", "due_at", "emitted_at"), "")
    row = {**head, **times, "fields": {}}
    write(log, [{**row, "seq": seq, "key": f"k{seq}"} for seq in range(7, 7 + rows)])
    seen = 0
    for _ in range(500):
        seen += len(follower.poll(0.01))
        if seen == rows:
            break
    assert seen == rows


class MarkersOneByOne(MemoryBroker):
    """The markers of a transaction reach the topics while end offsets are being requested."""

    def __init__(self, meanwhile: Callable[[], None], first: str) -> None:
        super().__init__()
        self.meanwhile, self.first = meanwhile, first

    def end_offsets(self, logs: Iterable[Log], **how: Any) -> dict[Log, int]:
        wanted, ends = list(logs), dict[Log, int]()
        for log in sorted(wanted, key=lambda log: self.first not in log[0]):
            ends |= super().end_offsets([log], **how)
            if self.first in log[0]:
                meanwhile, self.meanwhile = self.meanwhile, lambda: None
                meanwhile()
        return ends


@pytest.mark.parametrize("first", RESULT_KINDS)
def test_from_the_end_what_was_committed_while_it_was_asked_for_is_no_gap(first: str) -> None:
    """REC_DONE is the last of its transaction, and was readable at the request for the ends."""
    made, before, during = root()
    log = MarkersOneByOne(lambda: write(log, during), first)
    for kind in RESULT_KINDS:
        log.create_topic(Names().results("climate", kind))
    write(log, before)
    follower = Follower(log, "climate", 1, "end")
    seen = seqs_of(follower, 1)
    made.stable(1)
    after = made.records[len(before) + len(during) :]
    write(log, after)
    seen += seqs_of(follower, len(after))
    assert (follower.cuts, follower.repeats) == ([], 0)
    assert seen == list(range(seen[0], made.seq)), "nothing is missing after the first"
    assert seen[0] <= after[0]["seq"]


def test_from_the_end_the_last_record_is_found_behind_what_was_given_up() -> None:
    """A root that was fenced in a long transaction leaves records that are invisible to readers."""
    log, (made, before, during) = broker(), root()
    write(log, before)
    fenced = log.transaction()
    for seq in range(made.seq, made.seq + 200):
        value = orjson.dumps({"query": "climate", "part": 0, "kind": "stable", "seq": seq})
        fenced.append(Names().results("climate", "stable"), 0, value)
    fenced.abort()
    follower = Follower(log, "climate", 1, "end")
    write(log, during)
    assert seqs_of(follower, len(during)) == [record["seq"] for record in during]


def seqs_of(follower: Follower, count: int) -> list[int]:
    """Return the seqs of the next ``count`` records, or of those within half a second."""
    seen: list[int] = []
    for _ in range(50):
        seen += [item.record["seq"] for item in follower.poll(0.01) if isinstance(item, Seen)]
        if len(seen) >= count:
            break
    return seen


def test_what_retention_took_is_reported_and_the_rest_delivered() -> None:
    log, (_, first, second) = broker(), root()
    write(log, first)
    write(log, second)
    topic = Names().results("climate", "tentative")
    log.delete_records({(topic, 0): 3})
    follower = Follower(log, "climate", 1)
    seen: list[Any] = []
    for _ in range(100):
        seen += follower.poll(0.01)
        if follower.at_present:
            break
    assert sum(isinstance(item, Seen) for item in seen) == len(first) + len(second) - 3
    assert [(cut.first, cut.last) for cut in follower.cuts] == [(3, 5)]


def test_a_record_that_does_not_decode_is_reported_as_a_cut_and_the_rest_delivered() -> None:
    """Otherwise a follower from the beginning could never pass it."""
    log, (made, first, second) = broker(), root()
    write(log, first[:2])
    with log.transaction() as transaction:
        transaction.append(Names().results("climate", "stable"), 0, b"no result at all")
    write(log, first[3:] + second)
    follower = Follower(log, "climate", 1)
    seen: list[Any] = []
    for _ in range(100):
        seen += follower.poll(0.01)
        if follower.at_present:
            break
    assert sum(isinstance(item, Seen) for item in seen) == len(made.records) - 1
    assert [(cut.first, cut.last) for cut in follower.cuts] == [(2, 2)]


def test_from_the_end_the_last_record_may_be_one_that_does_not_decode() -> None:
    log, (_, first, second) = broker(), root()
    write(log, first)
    with log.transaction() as transaction:
        transaction.append(Names().results("climate", "tentative"), 0, b"no result at all")
    follower = Follower(log, "climate", 1, "end")
    write(log, second)
    assert seqs_of(follower, len(second)) == [record["seq"] for record in second]


STABLE = Names().results("climate", "stable")


def watched() -> tuple[MemoryBroker, SeenTopics]:
    """Return a broker with a registry, and what is seen of its topics."""
    made, topics = broker(), SeenTopics()
    made.create_topic(Names().registry)
    return made, topics


def test_a_topic_that_is_made_again_ends_the_following_with_its_name() -> None:
    (log, topics), (_, first, _) = watched(), root()
    write(log, first)
    follow = iter(
        Follow(
            Follower(log, "climate", 1, observe=topics), KINDS, False, BestAnswers(), {}
        )
    )  # fmt: skip
    assert [next(follow)["seq"] for _ in first] == list(range(len(first)))
    topics.look()
    topics.ids[STABLE] = "another"
    topics.look()
    with pytest.raises(TopicLostError, match=f"{STABLE} was deleted and made again"):
        next(follow)
    assert topics.is_closed


def test_a_topic_that_was_made_again_is_not_followed() -> None:
    log, topics = watched()
    Registry(log).publish_topics({STABLE: "recorded"})
    with pytest.raises(TopicLostError, match=STABLE):
        Follower(log, "climate", 1, observe=topics)


def test_a_hole_in_a_topic_that_was_made_again_is_not_reported_as_a_cut() -> None:
    (log, topics), (_, first, second) = watched(), root()
    follower = Follower(log, "climate", 1, observe=topics)
    write(log, first)
    assert seqs_of(follower, len(first)) == [record["seq"] for record in first]
    topics.ids[STABLE] = "another"  # not looked at yet
    write(log, second[1:])
    with pytest.raises(TopicLostError, match=STABLE):
        seqs_of(follower, len(second))
    assert follower.cuts == []


def test_without_an_answer_of_the_broker_a_cut_is_a_cut() -> None:
    (log, topics), (_, first, second) = watched(), root()
    follower = Follower(log, "climate", 1, observe=topics)
    write(log, first)
    assert seqs_of(follower, len(first)) == [record["seq"] for record in first]
    topics.is_away = True
    write(log, second[1:])
    assert seqs_of(follower, len(second) - 1) == [record["seq"] for record in second[1:]]
    assert len(follower.cuts) == 1


def read_all(log: MemoryBroker, follower: Follower) -> BestAnswers:
    answers = BestAnswers()
    for _ in Follow(follower, KINDS, True, answers, {}):
        pass
    return answers


def test_r5_a_window_that_retention_has_begun_to_take_is_no_answer() -> None:
    """Of two rows and a boundary that counts them one row is left: not the exact answer."""
    log, made = broker(), Root(expectations(), CELLS)
    made.stable(2)
    write(log, made.records)
    assert [r["kind"] for r in made.records] == ["stable", "stable", "boundary"] * 2
    log.delete_records({(Names().results("climate", "stable"), 0): 1})

    answers = read_all(log, Follower(log, "climate", 1))

    assert [len(answer.rows) for answer in answers.windows()] == [2]
    assert answers.best(made.expectations.first) == {}
    assert answers.incomplete == 1


def test_r5_what_was_read_of_a_window_before_retention_took_the_rest_is_in_no_other() -> None:
    """A client slower than retention: a row of W0, then nothing up to W2's rows."""
    log, made = broker(), Root(expectations(), CELLS)
    made.stable(3)
    foreign = {**made.records[0], "key": "of-w0"}
    write(log, [foreign])
    follower = Follower(log, "climate", 1)
    answers = BestAnswers()
    follow = iter(Follow(follower, KINDS, False, answers, {}))
    assert next(follow)["key"] == "of-w0"
    write(log, made.records[1:])
    log.delete_records({(Names().results("climate", "stable"), 0): 6})
    while not answers.windows():
        next(follow)

    (answer,) = answers.windows()
    assert "of-w0" not in answer.rows
    assert len(answer.rows) == 2


def test_the_horizon_of_tentative_answers_is_bounded_and_logged() -> None:
    made = Root(expectations(), CELLS)
    made.tentative(5, ["room-2"])
    answers = BestAnswers(tentative_windows_max=3)
    for record in made.records:
        answers.apply(record, made.now)
    assert len(answers.windows()) == 3
    assert answers.tentative_dropped == 2
    assert answers.best(made.expectations.first) == {}
    assert answers.best(made.expectations.first + 4_000_000)[0].missing == ("room-2",)
    assert answers.measures.n_tentative == 5


def test_r5_many_rows_are_no_more_kept_than_many_windows() -> None:
    """A client that follows a query of a thousand keys for hours."""
    made = Root(expectations(), CELLS)
    made.stable(3)
    made.tentative(3, ["room-2"])
    for rows_max, kept in ((1_000, [2, 2, 2]), (5, [2, 2]), (1, [2])):
        answers = BestAnswers(rows_max=rows_max)
        for record in made.records:
            answers.apply(record, made.now)
        assert [a.row_count for a in answers.windows() if a.label == "stable"] == kept
        tentative = [a.row_count for a in answers.windows() if a.label == "tentative"]
        assert sum(tentative) <= rows_max or len(tentative) == 1
        assert len(tentative) + answers.tentative_dropped == 3


def row(label: str, stime: int, key: str, x: float | None) -> dict[str, Any]:
    """A reading of a query without a window."""
    return {"kind": label, "part": 0, "stime": format_time(stime), "key": key, "fields": {"x": x}}


def bucket(label: str, start: int, buckets: int = 1, epoch: int = 1) -> dict[str, Any]:
    """The boundary of a bucket of 100 ms, or of a run; ``applied`` counts its rows."""
    end = format_time(start + buckets * BUCKET)
    return {
        "kind": "boundary", "part": 0, "label": label, "epoch": epoch, "windows": buckets,
        "window_start": format_time(start), "window_end": end, "missing": ["s1"], "due_at": end,
    }  # fmt: skip


def undo(first: int, last: int) -> dict[str, Any]:
    times = {"undo_from": format_time(first), "undo_to": format_time(last)}
    return {"kind": "undo", "part": 0, "epoch": 1, **times}


def applied(*records: dict[str, Any]) -> BestAnswers:
    answers, rows = BestAnswers(), 0
    for record in records:
        rows = rows + 1 if "key" in record else rows
        answers.apply({"keys": rows, **record}, seen_at=0)
        rows = rows if "key" in record else 0
    return answers


def test_without_a_window_the_answer_is_readings_in_their_order() -> None:
    answers = applied(
        row("tentative", 7, "b", 1.5),
        row("tentative", 7, "a", None),
        bucket("tentative", 0),
        row("tentative", BUCKET + 1, "a", 2.0),
        bucket("tentative", BUCKET),
        bucket("tentative", 2 * BUCKET),
    )

    assert answers.best(0)[0].readings == (
        ResultReading(7, "b", {"x": 1.5}),
        ResultReading(7, "a", {"x": None}),
    )
    assert answers.best(BUCKET)[0].readings == (ResultReading(BUCKET + 1, "a", {"x": 2.0}),)
    assert answers.best(2 * BUCKET)[0].readings == ()
    assert all(answer.rows == {} for answer in answers.windows())


def test_a_stable_bucket_replaces_the_readings() -> None:
    answers = applied(
        row("tentative", 7, "a", 1.0),
        bucket("tentative", 0),
        undo(0, 0),
        row("stable", 5, "a", 0.5),
        row("stable", 7, "a", 1.0),
        bucket("stable", 0),
    )

    (answer,) = answers.windows()
    assert (answer.label, [r.stime for r in answer.readings]) == ("stable", [5, 7])


@pytest.mark.parametrize(
    ("last", "left"),
    [
        (-1, [(0, 4), (4, 1), (5, 3)]),
        (0, [(1, 3), (4, 1), (5, 3)]),
        (2, [(3, 1), (4, 1), (5, 3)]),
        (3, [(4, 1), (5, 3)]),
        (5, [(6, 2)]),
        (7, []),
    ],
)
def test_an_undo_leaves_of_a_run_of_empty_buckets_what_it_does_not_revoke(
    last: int, left: list[tuple[int, int]]
) -> None:
    """A run of four, a bucket with a reading, a run of three; [S, T) always begins at the first."""
    answers = applied(
        bucket("tentative", 0, buckets=4),
        row("tentative", 4 * BUCKET, "a", 1.0),
        bucket("tentative", 4 * BUCKET),
        bucket("tentative", 5 * BUCKET, buckets=3),
        undo(0, last * BUCKET),
    )

    found = [(a.window_start // BUCKET, a.windows) for a in answers.windows()]
    assert found == left
    assert all(a.window_end == a.window_start + a.windows * BUCKET for a in answers.windows())
    for start, _ in left:
        assert answers.best(start * BUCKET)[0].missing == ("s1",)


def test_an_undo_leaves_of_skipped_windows_that_overlap_what_it_does_not_revoke() -> None:
    """The distance of their starts is known from the length of a window answered alone."""
    size, slide = 6 * BUCKET, 2 * BUCKET

    def window(label: str, start: int, windows: int = 1) -> dict[str, Any]:
        end = format_time(start + (windows - 1) * slide + size)
        run = bucket(label, start) | {"windows": windows, "window_end": end, "due_at": end}
        return run | ({"skipped": True} if windows > 1 else {})

    answers = applied(
        window("tentative", 0), window("tentative", slide, 5), undo(0, 2 * slide),
        window("stable", 0), window("stable", slide), window("stable", 2 * slide),
    )  # fmt: skip
    (rest,) = [answer for answer in answers.windows() if answer.label == "tentative"]
    assert (rest.window_start, rest.window_end) == (3 * slide, 5 * slide + size)
    assert (rest.windows, rest.skipped, rest.rows) == (3, True, {})
    assert answers.measures.n_tentative_all == 6


def test_stable_answers_before_their_end_are_counted() -> None:
    """``due_at`` is half a second after the end here, so that much is the stream's disorder."""
    for label, seen_at, early in (("stable", -1_500_001, 1), ("stable", -1_500_000, 0),
                                  ("tentative", -9_000_000, 0)):  # fmt: skip
        answers, end = BestAnswers(), 1_000 * BUCKET
        record = bucket(label, end - BUCKET) | {"due_at": format_time(end + 500_000)}
        answers.apply(record | {"keys": 0}, seen_at=end + seen_at)
        assert answers.measures.n_early == early


def test_a_run_that_was_passed_over_is_as_late_as_its_first_window() -> None:
    """Its line has the due time of the last one; the others were due a slide apart before it."""
    slide, late = 2 * BUCKET, 7 * BUCKET

    def due(start: int, windows: int = 1, *, skipped: bool = False) -> dict[str, Any]:
        end = format_time(start + windows * slide)
        run = bucket("tentative", start) | {"windows": windows, "window_end": end, "due_at": end}
        return run | {"keys": 0} | ({"skipped": True} if skipped else {})

    answers = BestAnswers()
    answers.apply(due(0), seen_at=slide + BUCKET)
    assert answers.measures.proc_new == BUCKET
    answers.apply(due(slide, 5, skipped=True), seen_at=2 * slide + late)
    assert answers.measures.proc_new == late
    answers.apply(due(6 * slide), seen_at=7 * slide + late - 1)
    assert answers.measures.proc_new == late

    joined_late = BestAnswers()
    joined_late.apply(due(slide, 5, skipped=True), seen_at=6 * slide + late)
    assert joined_late.measures.proc_new == late, "of the only known time"


def test_a_gap_can_be_asked_for() -> None:
    """trace-15: retention was outrun; the line precedes the answer that lacks the readings."""
    log, (_, first, _) = broker(), root()
    write(log, first)
    seq = len(first)
    note = GapNote(seq, 0, 1_000_000_000, 1_001_000_000, (Gap("room-1", 7),))
    gap = encode_gap(ResultHead("climate", 0), note, 0)
    write(log, [orjson.loads(gap)])

    (record,) = Follow(Follower(log, "climate", 1), frozenset({"gap"}), True, BestAnswers(), {})

    assert (record["seq"], record["stream"], record["lost"]) == (seq, "room-1", 7)
    assert tables.line(record) == (
        "gap       1970-01-01 00:16:40        to 1970-01-01 00:16:41: 7 readings of room-1 lost"
    )


def test_recent_begins_some_records_before_the_end_without_a_hole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log, (made, first, second) = broker(), root()
    write(log, first)
    write(log, second)
    for back in (0, 1, 2, 5, 1_000):
        monkeypatch.setattr("slackwater.client.follow.RECENT_RECORDS", back)
        follower = Follower(log, "climate", 1, "recent")
        seen: list[int] = []
        for _ in range(20):
            seen += [i.record["seq"] for i in follower.poll(0.01) if isinstance(i, Seen)]
        assert seen == list(range(len(made.records)))[len(made.records) - len(seen) :]
        assert follower.cuts == []
    assert len(seen) == len(made.records)
