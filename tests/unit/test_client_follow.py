"""Following three topics in memory: from the beginning, from the end, best answers, repeats."""

from __future__ import annotations

from typing import Any

import orjson
from tests.unit.histories import Root, terms
from tests.unit.test_client_check import CELLS

from slackwater.cli import tables
from slackwater.client.answers import BestAnswers, RecDone, Undone, WindowAnswer
from slackwater.client.follow import KINDS, Follow, Follower, Seen
from slackwater.codec.results import encode_gap
from slackwater.runtime.memory import MemoryBroker
from slackwater.runtime.topics import RESULT_KINDS, results_topic


def broker() -> MemoryBroker:
    made = MemoryBroker()
    for kind in RESULT_KINDS:
        made.create_topic(results_topic("climate", kind))
    return made


def write(to: MemoryBroker, records: list[dict[str, Any]]) -> None:
    with to.transaction() as transaction:
        for record in records:
            kind = record.get("label", record["kind"])
            topic = results_topic("climate", kind if kind in RESULT_KINDS else "corrections")
            value = {name: v for name, v in record.items() if name != "seen_at"}
            transaction.append(topic, 0, orjson.dumps(value))


def root() -> tuple[Root, list[dict[str, Any]], list[dict[str, Any]]]:
    made = Root(terms(), CELLS)
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
    assert (kinds.count(Undone), kinds.count(RecDone)) == (1, 1)
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


def test_what_retention_took_is_reported_and_the_rest_delivered() -> None:
    log, (_, first, second) = broker(), root()
    write(log, first)
    write(log, second)
    topic = results_topic("climate", "tentative")
    log.delete_records({(topic, 0): 3})
    follower = Follower(log, "climate", 1)
    seen: list[Any] = []
    for _ in range(100):
        seen += follower.poll(0.01)
        if follower.at_present:
            break
    assert sum(isinstance(item, Seen) for item in seen) == len(first) + len(second) - 3
    assert [(cut.first, cut.last) for cut in follower.cuts] == [(3, 5)]


def test_the_horizon_of_tentative_answers_is_bounded_and_says_so() -> None:
    made = Root(terms(), CELLS)
    made.tentative(5, ["room-2"])
    answers = BestAnswers(tentative_windows_max=3)
    for record in made.records:
        answers.apply(record, made.now)
    assert len(answers.windows()) == 3
    assert answers.tentative_dropped == 2
    assert answers.best(made.terms.first) == {}
    assert answers.best(made.terms.first + 4_000_000)[0].missing == ("room-2",)
    assert answers.measures.n_tentative == 5


def test_a_gap_can_be_asked_for() -> None:
    """R15: retention was outrun; the line precedes the answer that lacks the readings."""
    log, (_, first, _) = broker(), root()
    write(log, first)
    seq = len(first)
    gap = encode_gap(
        query="climate", part=0, seq=seq, epoch=0, stream="room-1", lost=7,
        gap_from=1_000_000_000, gap_to=1_001_000_000, emitted_at=0,
    )  # fmt: skip
    write(log, [orjson.loads(gap)])

    (record,) = Follow(Follower(log, "climate", 1), frozenset({"gap"}), True, BestAnswers(), {})

    assert (record["seq"], record["stream"], record["lost"]) == (seq, "room-1", 7)
    assert tables.line(record) == (
        "gap       1970-01-01 00:16:40        to 1970-01-01 00:16:41, part 0: "
        "7 readings of room-1 lost"
    )
