"""trace-64: a key is forgotten that an open window needs, and its number is another key's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from tests.unit.protocols.dpc.test_heads import END, WIDTH, config, held_by

from slackwater.model.heads import PaneRecord, StoredState
from slackwater.model.records import DeltaRecord, Kind, Position
from slackwater.protocols.common import pane_writing
from slackwater.protocols.common.line import LineName
from slackwater.protocols.dpc.soutput.config import DeltaLog, initial_state
from slackwater.protocols.dpc.soutput.core import RootCore
from slackwater.sessions.effects import Perform, StorePane
from slackwater.sessions.state_mover import StateMover

LOG = DeltaLog(0, 0, LineName.STABLE)
SLIDE, KEPT_MAX = 30, 10**6


def core_that_keeps(keys_min: int) -> RootCore:
    """Return a core of windows of 240 us that slide by 30, which keeps at least as many keys."""
    of = replace(config(SLIDE), kept_keys_min=keys_min, reread_us_max=1, head_period_us=1)
    core = RootCore(of, initial_state(of), suppress_until={})
    core.receive(LOG, 0, DeltaRecord(Kind.START, 0, 0, -1, 0, 0, 0, frontier=Position(0)))
    return core


def reads(core: RootCore, bucket: int, *names: str) -> None:
    """Let a core read a bucket with one reading of each key."""
    start, seq, ones = bucket * WIDTH, bucket + 1, np.ones((1, len(names)))
    values = start + np.arange(float(len(names)))[None]
    record = DeltaRecord(
        Kind.INSERTION, 0, 0, 0, start, start + WIDTH, seq, keys=names,
        fields=("v",), count=ones, sum=values, m2=0 * ones, min=values, max=values,
    )  # fmt: skip
    core.receive(LOG, seq, record)


def answers_to(core: RootCore, stable_from: int) -> None:
    """Let a core adopt that all windows before ``stable_from`` are answered."""
    state = core.state
    core.follow(
        replace(
            state, next_seq=state.next_seq + 1, stable_from=stable_from, answered_to=stable_from
        )
    )


def trips(bucket: int) -> list[str]:
    """Return keys of this bucket alone, and one that returns after some time."""
    return [f"trip-{bucket}-a", f"trip-{bucket}-b", f"tram-{bucket % 7}"]


def test_an_open_window_keeps_its_keys() -> None:
    forgets, keeps = core_that_keeps(0), core_that_keeps(KEPT_MAX)
    for core in (forgets, keeps):
        for bucket in range(60):
            reads(core, bucket, *trips(bucket))
            end = (bucket + 1) * WIDTH
            if end >= END and end % SLIDE == 0:
                answers_to(core, end - END + SLIDE)
    assert forgets.keys.kept_keys < keeps.keys.kept_keys / 1.5
    assert held_by(forgets) == held_by(keeps)


def test_a_copy_that_lags_keeps_the_keys_of_its_open_pane() -> None:
    """S is of the other copy: what this one has read before S it still folds."""
    forgets, keeps = core_that_keeps(0), core_that_keeps(KEPT_MAX)
    for core in (forgets, keeps):
        reads(core, 0, *trips(0))
        for bucket in range(1, 8):
            reads(core, bucket, *trips(bucket))
            answers_to(core, 300 + SLIDE * bucket)
    assert held_by(forgets) == held_by(keeps)


def test_a_pane_that_is_being_written_keeps_its_keys(monkeypatch: Any) -> None:
    """S passes it meanwhile."""
    monkeypatch.setattr(pane_writing, "TURN_CELLS_MAX", 1)
    core = core_that_keeps(0)
    for bucket in range(24):
        reads(core, bucket, *trips(bucket))
    of = replace(config(SLIDE), reread_us_max=1, head_period_us=1)
    mover = StateMover(of, windowed=True)
    written: list[PaneRecord] = []
    for turn in range(400):
        for effect in mover.step(core, 1, 100 + 100 * turn):
            if isinstance(effect, Perform):
                effect.procedure.send(None)
                with_nothing_stored(effect.procedure)
            elif isinstance(effect, StorePane):
                written += [effect.record] if isinstance(effect.record, PaneRecord) else []
                mover.delivered()
        if turn == 2:
            answers_to(core, END)
            for bucket in range(24, 60):
                reads(core, bucket, *trips(bucket))
    assert len(written) >= 8
    for record in written:
        first = record.ref.start // WIDTH
        of_pane = {key for bucket in range(first, first + 3) for key in trips(bucket)}
        if record.ref.start < END:
            assert set(record.columns.keys) == of_pane


def with_nothing_stored(procedure: Any) -> None:
    """Answer a procedure that reads what is stored."""
    try:
        procedure.send(StoredState())
    except StopIteration:
        return
