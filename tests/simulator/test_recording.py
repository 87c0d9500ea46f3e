"""A session's run is its input: replayed into a fresh session, it returns the same bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest
from tests.simulator.config import AGGREGATE, Chain
from tests.simulator.orderers import SimOrderer
from tests.simulator.recording import Outputs, Recorder, replayed
from tests.simulator.roots import SimRoot
from tests.simulator.story import Story

from slackwater.protocols.flux.pair import SUSPECT_US
from slackwater.sessions.events import CommitFailed, IncarnationClaimed, SessionEvent
from slackwater.sessions.root import RootSession

NEVER_HERE = {CommitFailed, IncarnationClaimed}
"""The first test has a commit that fails; the simulator's hosts pass no claims."""


class RecordedOrderer(SimOrderer):
    """An orderer whose session is recorded."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.recorder = Recorder(self.session, self.query.config.fields, AGGREGATE)
        RECORDED.append(self)


class RecordedRoot(SimRoot):
    """A root whose session is recorded."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.recorder = Recorder(self.session, self.query.config.fields, AGGREGATE)
        RECORDED.append(self)


RECORDED: list[RecordedOrderer | RecordedRoot] = []


@pytest.fixture(autouse=True)
def _recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    RECORDED.clear()
    monkeypatch.setattr("tests.simulator.world.SimOrderer", RecordedOrderer)
    monkeypatch.setattr("tests.simulator.world.SimRoot", RecordedRoot)


def again(of: RecordedOrderer | RecordedRoot) -> SimOrderer | SimRoot:
    """Build the same fragment once more; it is not started."""
    if isinstance(of, SimOrderer):
        return SimOrderer(of.query, of.child, of.replica, of.placement)
    root = SimRoot(of.query, of.part, of.placement, copy=of.copy)
    # The earlier generation has ended since.
    config = replace(root.session.config, has_earlier=of.session.config.has_earlier)
    root.session = RootSession(
        config,
        windowed=not of.query.config.rows,
        suspect_us=of.query.config.paced(SUSPECT_US),
    )
    return root


def replay_all() -> set[type]:
    """Replay each session that has been recorded; return the kinds of their events."""
    kinds: set[type] = set()
    for of in RECORDED:
        recorded = of.recorder
        outputs = Outputs(of.query.config.fields, AGGREGATE)
        found = replayed(recorded, again(of).session, outputs)
        assert found == recorded.outputs.found, of.name
        kinds |= {type(event) for event in recorded.events}
    return kinds


def test_one_run_of_an_orderer_and_of_a_root_can_be_replayed() -> None:
    """A stream falls silent; the orderer restarts, and the root is replaced and wakes up."""
    story = Story(replicas=1)
    story.time_passes(2)
    story.silence("s1", for_s=5)
    story.time_passes(3)
    story.kill("orderer/q.0.a")
    story.time_passes(4)
    story.replace("root/q.0", wakes_after_s=1)
    story.time_passes(6)
    assert story.tentative
    assert story.rec_done
    assert len(RECORDED) == 4, "each of the two has a second life"
    assert CommitFailed in replay_all(), "the zombie's"


def test_every_kind_of_event_can_be_replayed() -> None:
    kinds: set[type] = set()
    for run in RUNS:
        RECORDED.clear()
        run()
        kinds |= replay_all()
    assert {*get_args(SessionEvent)} - kinds == NEVER_HERE


def an_orderer_is_added_and_a_copy_resigns() -> None:
    """The host reads on while the orderer slowly catches up."""
    story = Story(copies=2, hosted=True, bound_us=1_000_000)
    story.time_passes(2)
    story.kill_for_good("orderer/q.0.a")
    story.time_passes(8)
    story.overload("orderer/q.0.a", for_s=1, unit_s=0.1)
    story.start_again("orderer/q.0.a")
    story.stop("root/q.0.a")
    story.time_passes(2)
    story.silence("s1", for_s=6)
    story.time_passes(4)
    story.world.cut("sw.source.s2", 5)
    story.time_passes(4)


def records_are_lost() -> None:
    story = Story(replicas=1, bound_us=1_000_000)
    story.time_passes(3)
    story.world.lose("orderer/q.0.a", 30_000_000)
    story.time_passes(4)


def a_chain_has_an_outage() -> None:
    story = Story(chain=Chain(), bound_us=1_000_000)
    story.time_passes(2)
    story.silence("s1", for_s=3)
    story.time_passes(6)


def a_query_changes() -> None:
    """The roots of its next generation follow, and take over when the earlier one has ended."""
    story = Story(replicas=1, bound_us=1_000_000)
    story.time_passes(2)
    story.world.change()
    story.time_passes(6)
    # The earlier root ends with an error, which is no output.
    RECORDED[:] = [of for of in RECORDED if of.query.name != "q"]
    assert RECORDED


RUNS = (
    an_orderer_is_added_and_a_copy_resigns,
    records_are_lost,
    a_chain_has_an_outage,
    a_query_changes,
)
