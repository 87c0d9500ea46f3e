"""The group core alone, where the simulated network cannot go: it keeps the order of a link."""

from __future__ import annotations

from slackwater.protocols.iads.group import Group
from slackwater.protocols.iads.messages import GroupHeartbeat, SavedMembership, View
from slackwater.protocols.iads.topology import Process, ReachReport


def heartbeat(of: Process) -> GroupHeartbeat:
    """Its first, when it is alone."""
    alone = frozenset({of})
    return GroupHeartbeat({of: ReachReport(1, alone)}, View(1, alone), {of: 0})


def test_a_message_of_an_older_incarnation_is_dropped() -> None:
    """It was under way on an older connection when the peer crashed and came back."""
    group = Group("a", frozenset("ab"), SavedMembership())
    group.start(0)
    older, newer = Process("b", 1), Process("b", 2)
    assert group.receive(newer, heartbeat(newer), 10), "the new peer is reported"
    assert group.receive(older, heartbeat(older), 20) == []
