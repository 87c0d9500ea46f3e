"""trace-70: at a site each pane is merged, whatever its roots have answered, also with a loss."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.sessions.test_merger_keys import LOG, SETTINGS, Merging

from slackwater.model.merged import MergedRecord
from slackwater.model.records import (
    DeltaRecord,
    Gap,
    Heartbeat,
    Kind,
    LogPosition,
    LogState,
    Position,
    RootState,
)
from slackwater.sessions.effects import Append, Rebuild
from slackwater.sessions.events import HeartbeatReceived, RecordDelivered
from slackwater.sessions.merger import STALLED_US, MergerConfig, MergerSession
from slackwater.sessions.requests import Beginnings, ReadMerged, ReadPart

PANE_US = 1_000_000
CONFIG = MergerConfig("q", 0, 0, 1, 1, ("f",), SETTINGS.grid, 0)


def merged(panes: int) -> list[MergedRecord]:
    """Return what a merger writes of so many panes of ten buckets."""
    merging = Merging(0)
    for number in range(10 * panes):
        merging.bucket(number)
        merging.write()
    return merging.written


def answered_to(end_us: int, offset: int) -> RootState:
    """Return the state record of the site's root."""
    at = LogPosition(offset, offset, 0, Position(end_us))
    logs = (LogState(0, 0, 0, at, at, offset),)
    return RootState("root/q.0", 1, 0, 0, end_us, end_us, (Position(end_us),), logs)


def started(config: MergerConfig, state: RootState, log: list[MergedRecord]) -> MergerSession:
    """Start a merger whose log has these records, at a site whose root has answered."""
    session = MergerSession(config)
    procedure: Any = session.start()
    request = next(procedure)
    try:
        while True:
            match request:
                case Beginnings(logs):
                    request = procedure.send(dict.fromkeys(logs, 0))
                case ReadPart():
                    request = procedure.send((state, {}))
                case ReadMerged():
                    request = procedure.send(log)
    except StopIteration:
        return session


@pytest.mark.parametrize(("keeps_all", "start"), [(True, 2), (False, 5)])
def test_it_continues_behind_its_log_and_not_at_s(keeps_all: bool, start: int) -> None:
    config = replace(CONFIG, keeps_all=keeps_all)
    session = started(config, answered_to(5 * PANE_US, 51), merged(2))
    (part,) = session.parts
    assert part.merger.merged_to == start * PANE_US
    assert session.live_offsets[LOG] == (21 if keeps_all else 51)


@pytest.mark.parametrize("keeps_all", [True, False])
def test_it_goes_on_though_the_roots_are_ahead(keeps_all: bool) -> None:
    config = replace(CONFIG, keeps_all=keeps_all)
    session = started(config, answered_to(0, 0), [])
    beat = Heartbeat(
        "root/q.0", 1, 0, 0, -1, ready=True, states={}, detail={"stable_from": 9 * PANE_US}
    )
    session.take(HeartbeatReceived(beat, 0))
    effects = [*session.step(1), *session.step(2 + STALLED_US)]
    assert any(isinstance(each, Rebuild) for each in effects) is not keeps_all


@pytest.mark.parametrize("keeps_all", [True, False])
def test_a_pane_with_a_loss_is_written_at_a_site_only(
    keeps_all: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    merging = Merging(0)
    session = merging.session = MergerSession(replace(CONFIG, keeps_all=keeps_all))
    merging.session = started(session.config, answered_to(0, 0), [])
    merging._read(replace(_start(), frontier=Position(0)))
    written: list[MergedRecord] = []
    for number in range(20):
        if number == 3:
            _with_loss(merging, number, monkeypatch)
        else:
            merging.bucket(number)
        for effect in merging.session.step(0):
            assert isinstance(effect, Append)
            assert isinstance(effect.record, MergedRecord)
            written.append(effect.record)
            merging.session.take(RecordDelivered(merging.session.parts[0].log, 0))
    lost = [(of.start // PANE_US, of.gap) for of in written]
    assert lost == ([(0, (Gap("s", 4),)), (1, ())] if keeps_all else [(1, ())])


def _start() -> DeltaRecord:
    return DeltaRecord(Kind.START, 0, 0, -1, 0, 0, 0)


def _with_loss(merging: Merging, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the next bucket, in which readings are lost."""
    taken: list[DeltaRecord] = []
    with monkeypatch.context() as patch:
        patch.setattr(merging, "_read", taken.append)
        merging.bucket(number)
    merging._read(replace(taken[0], gap=(Gap("s", 4),)))
