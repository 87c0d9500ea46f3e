"""trace-15: retention removes records before the first reader starts; the results report it."""

from __future__ import annotations

from tests.simulator.checkers.answers import answers
from tests.simulator.story import Story

from slackwater.protocols.dpc.soutput.answers import GapNote


def test_what_a_first_reader_did_not_find_is_a_gap() -> None:
    story = Story(replicas=1, bound_us=1_000_000)
    world = story.world
    world.kill("orderer/q.0.a", stays_down=True)
    story.time_passes(4)
    log = world.source_log("s1")
    log.cut(log.end - 12)
    story.start_again("orderer/q.0.a")
    story.all_is_well_again(6)
    notes = [
        e for c in world.history.committed for e in c.transaction.effects if isinstance(e, GapNote)
    ]
    assert notes
    assert {gap.stream for note in notes for gap in note.gap} == {"s1"}
    lost = [emitted.window for emitted in answers(world.history) if emitted.stable and emitted.lost]
    assert len(lost) in {2, 3, 4}, "windows after the gap are complete"
