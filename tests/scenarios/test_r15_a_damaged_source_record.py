"""trace-15, rule-28: a record of a source log does not decode.

1. s1's readings between 500 and 600 ms are damaged. Only the log has them: no writer can send them
   again.
2. An orderer that ended at them would read them again at each restart, for ever. Skipping them as
   if they were empty would give wrong answers without a mark.

The readings lost according to the ids are therefore a gap: the windows that it may affect report
it, all others are exact, for every replica that reads the log and after every restart.
"""

from __future__ import annotations

import pytest
from tests.paper.stage import Stage, stable_answers

from slackwater.model.records import Gap, SourceRecord
from slackwater.protocols.dpc.soutput.answers import GapNote, StableWindow

DAMAGED_MS = 500
COMPLETE = 3 * 2.0
"""Readings in a window of 100 ms: three sources, one per 50 ms each."""


@pytest.mark.parametrize("crash_at_ms", [None, 550, 600, 650, 700])
def test_what_it_held_is_a_gap_that_the_results_name(crash_at_ms: int | None) -> None:
    stage = Stage()
    source = stage.sources["s1"]
    while stage.now_ms < 1_500:
        stage.now_ms += 50
        for i, other in enumerate(stage.sources.values()):
            other.emit([stage.now_ms - 49], stage.now_ms, value=float(i))
        if DAMAGED_MS < stage.now_ms <= DAMAGED_MS + 100:
            source.log[-1] = SourceRecord.void("s1")
        stage.work()
        stage.orderer.save()
        if stage.now_ms == crash_at_ms:
            stage.orderer.crash()

    windows = [s.effect for s in stage.emitted if isinstance(s.effect, StableWindow)]
    notes = [s.effect for s in stage.emitted if isinstance(s.effect, GapNote)]
    touched = [w.window_start // 1_000 for w in windows if w.gap]
    assert touched == [n.window_start // 1_000 for n in notes]
    assert DAMAGED_MS in touched
    assert set(touched) <= {DAMAGED_MS, DAMAGED_MS + 100}
    assert {gap for w in windows for gap in w.gap} == {Gap("s1", 2)}
    counts = {at: count for at, (count, _) in stable_answers(stage.emitted).items()}
    assert counts.pop(DAMAGED_MS) == COMPLETE - 2
    assert set(counts.values()) == {COMPLETE}
    assert max(counts) >= 1_300
    assert stage.orderer.core.holes == ()
