"""A root's logs of merged panes: which records are checked, held and skipped (rule-36)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tests.paper.stage import MS, Settings

from slackwater.model.heads import PaneColumns, PaneRecord, PaneRef
from slackwater.model.merged import MergedRecord
from slackwater.model.records import LogPosition, Position
from slackwater.primitives.deltas import Aggregates
from slackwater.primitives.digests import recorded
from slackwater.primitives.key_table import KeyTable
from slackwater.protocols.dpc.soutput.config import RootConfig, initial_state
from slackwater.protocols.dpc.soutput.core import RootCore
from slackwater.sessions.merged_input import MergedInput

SETTINGS = Settings(bucket_ms=100, window_ms=1_000, bound_ms=1_000)
LOG = ("sw.merged.q.0", 0)
CONFIG = RootConfig(
    "root/q.0", "q", 0, 1, (("s1",),), 1, ("f",), SETTINGS.grid, SETTINGS.schedule(2),
    start_time=0, bound_us=SETTINGS.bound_ms * MS, merged_wait_us=100 * MS,
)  # fmt: skip


def record(start_ms: int, end_ms: int) -> MergedRecord:
    """Return a merged pane of two keys, with its digest."""
    contents = Aggregates(KeyTable(), ("f",))
    columns = PaneColumns(("a", "b"), np.ones((6, 1, 2)), {})
    digest = recorded(contents.digest(contents.install([columns])))
    ref = PaneRef(0, start_ms * MS, 2, 1, digest)
    at = LogPosition(10, 10, 0, Position(end_ms * MS))
    return MergedRecord(PaneRecord(ref, 0, columns), end_ms * MS, (at,))


class Rooted:
    """A root's core and its merged panes."""

    def __init__(self) -> None:
        state = initial_state(CONFIG)
        self.core = RootCore(CONFIG, state, suppress_until={})
        self.merged = MergedInput(CONFIG)
        self.merged.continue_at(state, {LOG: 0}, {LOG: 0})
        self.merged.step(self.core, 0)
        self.next = 0

    def receive(self, record: MergedRecord | None, now_ms: int) -> None:
        self.merged.receive(self.core, LOG, self.next, record, now_ms * MS)
        self.next += 1

    @property
    def frontier_ms(self) -> int:
        return self.core.resting.frontier(0).bucket_start // MS

    @property
    def wanted(self) -> list[int]:
        return [*self.merged.wanted(self.core).values()]


def test_a_merged_pane_moves_the_frontier_and_the_child_rests() -> None:
    reading = Rooted()
    reading.receive(record(0, 1_000), 1_010)
    assert reading.frontier_ms == 1_000
    assert reading.merged.step(reading.core, 1_011 * MS) is not None
    assert reading.merged.detail(reading.core) == {"merged": 1, "resting": 1}


def test_a_pane_with_another_digest_is_not_used() -> None:
    reading = Rooted()
    pane = record(0, 1_000).pane
    changed = replace(pane, columns=replace(pane.columns, figures=np.full((6, 1, 2), 2.0)))
    reading.receive(MergedRecord(changed, 1_000 * MS, record(0, 1_000).positions), 1_010)
    assert reading.frontier_ms == 0
    assert len(reading.merged.skipped()) == 1
    reading.receive(record(0, 1_000), 1_020)
    assert reading.frontier_ms == 1_000, "the other copy's record is right"


def test_a_damaged_record_is_passed() -> None:
    reading = Rooted()
    reading.receive(None, 1_000)
    reading.receive(record(0, 1_000), 1_010)
    assert reading.frontier_ms == 1_000


def test_a_later_pane_is_held_and_the_missing_one_is_read_from_the_deltas() -> None:
    reading = Rooted()
    reading.receive(record(0, 1_000), 1_010)
    reading.receive(record(2_000, 3_000), 3_010)
    reading.merged.step(reading.core, 3_011 * MS)
    assert reading.merged.detail(reading.core)["resting"] == 0
    assert reading.wanted == []
    child = reading.core._children[0]
    child.panes.advance(2_000 * MS)
    child.stable.frontier = Position(2_000 * MS)
    assert reading.wanted == [1]
    reading.merged.replayed(reading.core, LOG, 1, record(2_000, 3_000), 3_020 * MS)
    assert reading.frontier_ms == 3_000


def test_a_live_consumer_that_is_ahead_leaves_the_log_parked() -> None:
    reading = Rooted()
    reading.merged.live_at(LOG, 2)
    assert reading.wanted == [0]
    reading.merged.replayed(reading.core, LOG, 0, record(0, 1_000), 1_010 * MS)
    reading.merged.position_gone(LOG, 2)
    assert reading.wanted == []
