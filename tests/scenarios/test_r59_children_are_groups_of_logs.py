"""trace-59, trace-60: the logs of a topic are in several children, and partitions are added.

The definition has the child of each log. An added log goes to one child, which may be ahead of the
others, so it begins with the largest watermark of the logs before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.paper.stage import Source
from tests.scenarios.test_r47_a_partition_that_is_added import (
    ADDED_MS,
    DECLARED,
    END_MS,
    Growing,
    OfTopic,
    TopicLog,
    run,
)
from tests.support.proxy_world import S, World

from slackwater.codec import decode_ordered
from slackwater.model.child_logs import dealt

LOGS = dealt({"s": 2}, 2, in_order=False)
"""Of two partitions each child has one; the third one goes to child 0, the fourth to child 1."""


class OfChild(OfTopic):
    """The orderer of a child, built with as many logs as are recorded."""

    def __init__(self, logs: Sequence[Source], known: int, child: int, replica: int = 0) -> None:
        self.child = child
        super().__init__(logs, known, replica)

    def reads(self, known: int) -> Sequence[Source]:
        return [self.every[log] for log in LOGS.of_child(self.child, "s", known)]

    def coming(self, known: int) -> int | None:
        return LOGS.next_of(self.child, "s", known)

    def read_all(self, recorded: int) -> OfChild:
        """Read what is there, and be built again as often as that is asked for."""
        run(self, END_MS)
        if self.outdated:
            self.save()
            self.rebuild(recorded)
            run(self, END_MS)
        assert not self.outdated
        return self

    @property
    def readings(self) -> int:
        """How many readings its stable buckets have."""
        return sum(len(decode_ordered(of).values[0]) for of in self.buckets().values())


def topic(ahead_ms: int = ADDED_MS) -> list[TopicLog]:
    """Return the logs of two partitions, of which the first one is ahead, and of two more."""
    first, second = TopicLog("s.0").begin(2), TopicLog("s.1").begin(2)
    for at in range(100, ADDED_MS + 1, 100):
        first.emit([at - 50], at)
        if at <= ahead_ms:
            second.emit([at - 40], at)
    return [first, second, TopicLog("s.2"), TopicLog("s.3")]


def add(logs: Sequence[TopicLog], behind_ms: int = ADDED_MS) -> None:
    """Take two more partitions in, and write all four up to the end."""
    logs[0].begin(4, ADDED_MS)
    logs[1].begin(4, behind_ms)
    for log in logs[2:]:
        log.begin(4, ADDED_MS)  # the largest watermark of the others
    for at in range(behind_ms + 100, END_MS + 1, 100):
        for number, log in enumerate(logs):
            if number == 1 or at > ADDED_MS:
                log.emit([at - 50 + 7 * number], at)


def written(logs: Sequence[TopicLog]) -> int:
    return sum(record.readings for log in logs for record in log.log)


@pytest.mark.parametrize("behind_ms", [ADDED_MS, 300])
def test_each_reading_is_in_one_child_wherever_the_partitions_are(behind_ms: int) -> None:
    logs = topic(behind_ms)
    children = [OfChild(logs, 2, child) for child in (0, 1)]
    for child in children:
        run(child, ADDED_MS)
    add(logs, behind_ms)
    found = [child.read_all(4).readings for child in children]
    assert sum(found) == written(logs)
    assert min(found) > 0


def test_only_the_child_that_has_another_log_is_built_again() -> None:
    logs = topic()[:3]
    children = [OfChild(logs, 2, child) for child in (0, 1)]
    logs[0].begin(3, ADDED_MS)
    logs[1].begin(3, ADDED_MS)
    logs[2].begin(3, ADDED_MS)
    for child in children:
        run(child, END_MS)
    assert [child.outdated for child in children] == ["s has 3 source logs now", ""]


@pytest.mark.parametrize("child", [0, 1])
@pytest.mark.parametrize("known", [2, 4], ids=["reads START", "starts with all"])
def test_replicas_that_start_before_and_after_it_divide_the_logs_alike(
    known: int, child: int
) -> None:
    logs = topic()
    prompt = OfChild(logs, 2, child)
    run(prompt, ADDED_MS)
    add(logs)
    late = OfChild(logs, known, child, replica=1)
    assert late.read_all(4).buckets() == prompt.read_all(4).buckets()
    assert [each.name for each in late.sources] == [f"s.{child}", f"s.{2 + child}"]


def test_an_added_log_begins_with_the_largest_watermark_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child of the partition that is ahead may have emitted what the others still lack."""
    fed = Growing(World(tmp_path, spec=DECLARED), monkeypatch, partitions=2)
    fed.put(range(900, 910))
    fed.put(range(950, 960), partition=1)
    fed.proxy.begin()
    for partition in (0, 1):
        fed.bring_of(partition)
        fed.world.run(fed.proxy, 2)
    fed.grow(3)
    fed.serve_anew()
    assert [log.core.watermark // S for log in fed.proxy.logs] == [908, 958, 958]
    fed.put([957, 958, 959], partition=2)
    fed.bring_of(2)
    fed.world.run(fed.proxy, 2)
    assert fed.world.counts() == {"late": 1}, "it is counted"
