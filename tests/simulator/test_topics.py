"""Topics that change, in the simulator: what `counted` requires, and that it can fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
from tests.simulator.checkers import Violation, check
from tests.simulator.faults import OF_TOPICS
from tests.simulator.history import History
from tests.simulator.plans import Plan, draw
from tests.simulator.run import run
from tests.simulator.shrink import smaller
from tests.simulator.topic_mutants import (
    ADDED_UNREAD,
    BEGUN,
    FIRST_AWAY,
    SECOND_AWAY,
    UNREAD,
    UNSEEN,
    plan_with_topic,
)

from slackwater.model.records import Kind


@cache
def lived(*faults: str) -> History:
    """A run with these faults, in which all is well."""
    outcome = run(plan_with_topic(*faults))
    assert outcome.violation is None, str(outcome)
    return outcome.history


def test_a_topic_that_was_made_again_is_read_and_its_loss_is_reported() -> None:
    history = lived(*UNREAD)
    of = history.topics["s1"]
    assert {m.topic_id for m in of.messages} == {"s1-1", "s1-2"}
    assert history.logs("s1") == ["s1.0", "s1.1"]
    assert sum(gap.lost for _, record in history.source_logs["s1.0"] for gap in record.gap) >= 1


def test_a_partition_that_is_added_is_taken_in_by_all_orderers() -> None:
    history = lived("at=2s grow s1 by 2")
    assert history.logs("s1") == ["s1.0", "s1.1", "s1.2"]
    built = {n.process for n in history.notes if n.what == "started" and "orderer" in n.process}
    assert all(
        sum(n.process == name and n.what == "started" for n in history.notes) == 2 for name in built
    )


def test_both_proxies_of_a_topic_take_in_partitions_whoever_sees_them_first() -> None:
    outcome = run(plan_with_topic(*FIRST_AWAY, partitions=2, proxies=2))
    assert outcome.violation is None, str(outcome)
    logs = outcome.history.source_logs
    assert outcome.history.logs("s1") == ["s1.0", "s1.1", "s1.2", "s1.3"]
    assert all(any(r.readings for _, r in logs[f"s1.{n}"]) for n in range(4))


def test_what_is_added_before_the_second_proxy_begins_is_the_streams() -> None:
    """What the other partition of this proxy has lost by then is nobody's."""
    outcome = run(plan_with_topic(*SECOND_AWAY, partitions=2, proxies=2))
    assert outcome.violation is None, str(outcome)
    history = outcome.history
    assert history.topics["s1"].began.keys() == {0, 1}
    lost = [sum(g.lost for _, r in history.source_logs[f"s1.{n}"] for g in r.gap) for n in (1, 3)]
    assert lost[0] == 0 < lost[1]


def test_messages_that_retention_deletes_unread_are_counted_one_by_one() -> None:
    history = lived("at=2s pause proxy/s1 for 0.4s", "at=2.3s expire s1 by 3")
    reported = sum(gap.lost for _, record in history.source_logs["s1.0"] for gap in record.gap)
    assert reported > 5


def test_messages_that_are_deleted_after_the_stream_has_begun_are_counted() -> None:
    history = lived(*BEGUN)
    of = history.topics["s1"]
    assert of.began == {0: ("s1-1", 0)}
    reported = sum(gap.lost for _, record in history.source_logs["s1.0"] for gap in record.gap)
    assert reported == len(of.expired) > 0


@pytest.mark.parametrize("killed", [(), ("at=0.2008s kill proxy/s1",)], ids=["", "killed"])
def test_messages_of_a_partition_that_is_added_before_the_first_reading_are_counted(
    killed: tuple[str, ...],
) -> None:
    """Also if the proxy dies when the new log has START alone."""
    history = lived(*ADDED_UNREAD, *killed)
    of = history.topics["s1"]
    assert of.began == {0: ("s1-1", 0)}
    added = history.source_logs["s1.1"]
    assert sum(record.kind is Kind.START for _, record in added[:2]) == 1 + len(killed)
    deleted = sum(partition == 1 for _, partition, _ in of.expired)
    assert sum(gap.lost for _, record in added for gap in record.gap) == deleted > 0


def test_messages_that_were_deleted_before_the_stream_began_are_nobodys() -> None:
    history = lived("at=0.0001s kill proxy/s1", "at=0.04s expire s1")
    of = history.topics["s1"]
    assert len(of.expired) == of.began[0][1] > 0
    assert not any(record.gap for _, record in history.source_logs["s1.0"])


def test_what_an_unclean_election_has_truncated_is_not_read_twice() -> None:
    history = lived("at=2s unclean s1 for 0.3s by 4")
    assert len(history.topics["s1"].truncated) == 4


def test_what_has_the_offsets_of_truncated_messages_is_read_by_the_next_process() -> None:
    """The log is longer than its position again when it begins."""
    history = lived(*UNSEEN)
    of = history.topics["s1"]
    starts = [r for _, r in history.source_logs["s1.0"] if r.kind is Kind.START]
    assert [record.input_epoch for record in starts] == [-1, 0, 0], "it begins again to read them"
    assert min(m.offset for m in of.truncated) < starts[1].input_position
    assert not any(record.gap for _, record in history.source_logs["s1.0"])


def _not_lost(history: History) -> None:
    history.topics["s1"] = replace(history.topics["s1"], deleted=set())


def _sent_twice(history: History) -> None:
    of = history.topics["s1"]
    history.topics["s1"] = replace(of, messages=of.messages[1:])


def _gap_not_reported(history: History) -> None:
    for log in history.logs("s1"):
        records = history.source_logs[log]
        history.source_logs[log] = [
            (at, r if r.kind is Kind.START else replace(r, gap=())) for at, r in records
        ]


def _not_in_quarantine(history: History) -> None:
    assert history.quarantined.pop("s1")


@pytest.mark.parametrize(
    ("doctor", "text"),
    [
        (_not_lost, "are nowhere"),
        (_sent_twice, "too many"),
        (_gap_not_reported, "lost"),
        (_not_in_quarantine, "are nowhere"),
    ],
)
def test_counted_can_fail(doctor: Callable[[History], None], text: str) -> None:
    history = lived(*UNREAD)
    history = replace(
        history,
        topics=dict(history.topics),
        source_logs=dict(history.source_logs),
        quarantined=dict(history.quarantined),
    )
    doctor(history)
    with pytest.raises(Violation, match=text):
        check(history)


def test_a_plan_with_topics_can_be_written_read_and_shrunk() -> None:
    plan = next(plan for plan in map(draw, range(100)) if plan.config.topics)
    assert Plan.from_json(plan.to_json()) == plan
    outcome = replace(run(replace(plan, faults=())), plan=plan, violation=Violation("x", 0, ""))
    without = [other for other in smaller(outcome) if not other.config.topics]
    assert without
    assert all(fault.what not in OF_TOPICS for other in without for fault in other.faults)
