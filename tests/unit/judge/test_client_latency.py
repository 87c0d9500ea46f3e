"""The time of an answer: when it became readable, and never later than it was read."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.memory import MemoryBroker
from tests.unit.histories import Root, batch, expectations

from slackwater.judge.check import AnsweredRun, Checker
from slackwater.judge.latency import Commits, latencies, percentiles, read_commits
from slackwater.model.errors import EnvironmentProblem
from slackwater.model.names import Names
from slackwater.runtime.logs.transport import Marker, NoAnswerError

S = 1_000_000
CELLS = batch({(second, "a"): {"room-1": 1, "room-2": 1} for second in range(1_000, 1_004)})


def answer(offset: int | None, label: str = "stable") -> AnsweredRun:
    return AnsweredRun(label, 0, S, 9 * S, offset)


def test_an_answer_counts_from_the_first_marker_behind_it() -> None:
    commits = Commits({("stable", 0): [Marker(3, 5_000), Marker(7, 6_000)]})
    assert [commits.at(0, answer(offset)) for offset in (0, 2, 4, 6)] == [5 * S] * 2 + [6 * S] * 2


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(answer(None), id="no offset"),
        pytest.param(answer(8), id="no marker behind it"),
        pytest.param(answer(2, "tentative"), id="another topic"),
    ],
)
def test_without_its_marker_it_counts_from_when_it_was_seen(given: AnsweredRun) -> None:
    assert Commits({("stable", 0): [Marker(3, 5_000)]}).at(0, given) == 9 * S


def test_it_never_counts_from_later_than_it_was_seen() -> None:
    assert Commits({("stable", 0): [Marker(3, 9_001)]}).at(0, answer(0)) == 9 * S


def test_a_window_counts_from_the_commit_of_its_first_answer() -> None:
    """Two windows in time and two that were read 9 s late, of which one was committed late."""
    agreed = expectations(end=1_004 * S)
    root = Root(agreed, CELLS)
    root.stable(2)
    root.now += 9 * S
    root.tentative(2, ["room-1"])
    root.stable(4)
    checker = Checker(agreed, CELLS)
    offsets = {"stable": 0, "tentative": 0}
    for record in root.records:
        topic = record.get("label", record["kind"])
        checker.feed(record, offsets.get(topic))
        offsets[topic] = offsets.get(topic, 0) + 1
    assert checker.finish().ok
    due_ms = [int(due) // 1_000 for due in latencies(checker, []).due]
    commits = Commits(
        {("tentative", 0): [Marker(2, due_ms[2] + 300), Marker(9, due_ms[3] + 4_000)]}
    )
    seen, given = latencies(checker, []).ms, latencies(checker, [], commits).ms
    assert seen[2:].min() > 6_000
    assert given.round().tolist() == [*seen[:2].round(), 300, 4_000]


def test_the_commits_of_a_query_are_those_of_all_parts() -> None:
    now_ms = 5_000
    broker = MemoryBroker(lambda: now_ms)
    for kind in ("stable", "tentative"):
        broker.create_topic(Names().results("q", kind), 2)
    for part in (0, 1):
        with broker.transaction() as transaction:
            transaction.append(Names().results("q", "stable"), part, b"a row")
        now_ms += 1_000
    commits = read_commits(broker, "q", 2)
    assert [commits.at(part, answer(0)) for part in (0, 1)] == [5 * S, 6 * S]


def test_a_broker_that_is_away_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_answer(*_: object, **__: object) -> list[Marker]:
        raise NoAnswerError("it is away")

    monkeypatch.setattr(MemoryBroker, "markers", no_answer)
    with pytest.raises(EnvironmentProblem, match="the commits of q cannot be read: it is away"):
        read_commits(MemoryBroker(), "q", 1)


def test_percentiles_of_nothing_are_null() -> None:
    assert percentiles(np.array([])) == {"n": 0, "p50": None, "p95": None, "p99": None, "max": None}
