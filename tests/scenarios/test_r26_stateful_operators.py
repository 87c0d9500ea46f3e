"""trace-26: positions at the frontier do not rebuild a join.

1. s1 has a reading at 140, s2 one at 210: with ``within: 100ms`` they are a pair of [200, 300).
2. The orderer has emitted everything below 200 and is killed.
3. If it continued at its frontier, it would read s2's 210 and never s1's 140 again: the pair would
   be lost, and only in this replica.

A state record therefore also has the position at which replay must begin (``rebuild``).
"""

from __future__ import annotations

import pytest
from tests.paper.stage import MS, Orderer, Root, Settings, Source, labels, stable_answers
from tests.paper.test_dpc import check_history, without_runs

from slackwater.model.records import Kind, OrderedRecord
from slackwater.protocols.common.inputs import ProbeEnds
from slackwater.protocols.common.line import LineName
from slackwater.protocols.common.states import LineState
from slackwater.protocols.dpc.sunion.config import Emit

JOIN = Settings(join_within_ms=250)


def pair(settings: Settings = JOIN) -> tuple[Source, Source, Orderer]:
    sources = Source("s1"), Source("s2")
    return *sources, Orderer(sources, settings)


def rows(record: OrderedRecord) -> list[tuple[float, float]]:
    return list(zip(record.values[0].tolist(), record.values[1].tolist(), strict=True))


def stable(orderer: Orderer) -> list[OrderedRecord]:
    return orderer.logs[LineName.STABLE]


def play(*, crash_at_ms: int | None, save_at_ms: int = -1) -> Orderer:
    """Run two seconds of both sources; each reading has a unique value."""
    s1, s2, orderer = pair()
    for now in range(0, 2_000, 50):
        s1.emit([now + 10], now + 50, value=float(now))
        s2.emit([now + 40], now + 50, value=now + 0.5)
        orderer.listen()
        orderer.step(now + 50)
        if now == save_at_ms:
            orderer.save()
        if now == crash_at_ms:
            orderer.crash()
    return orderer


def test_r26_the_pair_across_a_crash() -> None:
    s1, s2, orderer = pair(Settings(join_within_ms=100))
    s1.emit([140], 200, value=1.0)
    s2.emit([], 200)
    orderer.listen()
    orderer.step(200)
    orderer.save()

    orderer.crash()
    s1.emit([], 300)
    s2.emit([210], 300, value=2.0)
    orderer.listen()
    orderer.step(300)

    (joined,) = [r for r in stable(orderer) if r.kind is Kind.INSERTION]
    assert (joined.bucket_start, rows(joined)) == (200 * MS, [(1.0, 2.0)])


@pytest.mark.parametrize("crash_at_ms", range(0, 2_000, 150))
@pytest.mark.parametrize("saved_before_ms", [0, 50, 400])
def test_r26_a_restart_at_any_time_writes_what_would_have_been_written(
    crash_at_ms: int, saved_before_ms: int
) -> None:
    crashed = play(crash_at_ms=crash_at_ms, save_at_ms=crash_at_ms - saved_before_ms)
    never = play(crash_at_ms=None)

    assert without_runs(stable(crashed)) == without_runs(stable(never))
    assert any(len(r.keys) for r in stable(never))


def test_r26_the_state_record_names_three_positions() -> None:
    orderer = play(crash_at_ms=None)
    orderer.save()

    for positions in orderer.saved.streams:
        # 50 ms per record; the line has passed all, and 250 ms of them may still be joined.
        assert positions.next.offset - positions.rebuild.offset == 5
        assert positions.live == positions.rebuild


def test_r26_a_fork_joins_what_is_there_and_the_stable_line_replays_the_window() -> None:
    """s2 falls silent: its last readings still join for a while, tentatively, then nothing does."""
    s1, s2, orderer = pair()
    root = Root([orderer], JOIN)
    times = range(0, 8_000, 50)
    for now in times:
        if now == 1_025 // 50 * 50:
            s2.disconnect()
        if now == 4_000:
            s2.reconnect()
        if now == 5_000:
            orderer.crash()
        s1.emit([now + 10], now + 50, value=float(now))
        s2.emit([now + 40], now + 50, value=now + 0.5)
        orderer.listen()
        orderer.step(now + 50)
        orderer.save()
        root.listen()
        root.step(now + 50)

    tentative = [r for r in orderer.logs[LineName.LIVE] if r.kind is Kind.TENTATIVE]
    assert tentative[0].bucket_start == 1_000 * MS
    assert {r.missing for r in tentative} == {("s2",)}
    assert max(r.bucket_start for r in tentative) < 1_400 * MS, "old readings are dropped"
    assert orderer.core.line.state is LineState.STABLE
    assert without_runs(stable(orderer)) == without_runs(undisturbed(times))
    assert labels(root.emitted) == ["stable", "tentative", "undo", "stable", "rec_done", "stable"]
    wanted = figures_of(times)
    for start, found in stable_answers(root.emitted).items():
        assert found == pytest.approx(wanted.get(start, (0.0, 0.0)))
    check_history(root.emitted, JOIN)


def undisturbed(times: range) -> list[OrderedRecord]:
    s1, s2, orderer = pair()
    for now in times:
        s1.emit([now + 10], now + 50, value=float(now))
        s2.emit([now + 40], now + 50, value=now + 0.5)
    orderer.listen()
    orderer.step(times[-1] + 50)
    return stable(orderer)


def figures_of(times: range) -> dict[int, tuple[float, float]]:
    """Window start -> (count, sum) over both fields, by two loops."""
    found: dict[int, tuple[float, float]] = {}
    for a in times:
        for b in times:
            if abs(a + 10 - (b + 40)) <= 250:
                window = max(a + 10, b + 40) // 100 * 100
                count, total = found.get(window, (0.0, 0.0))
                found[window] = (count + 2, total + a + b + 0.5)
    return found


def test_r26_what_a_seek_skipped_is_missed_for_a_window_longer() -> None:
    """s2 returns with a backlog that the live line skips (rule-13).

    The first bucket with all of s2's readings is not complete: their join partners were skipped.
    """
    s1, s2, orderer = pair()
    for now in range(0, 6_000, 50):
        if now == 1_000:
            s2.disconnect()
        for i in range(20):
            s2.emit([now + 2 * i], now + 2 * i)
        s2.emit([], now + 50)
        s1.emit([now + 10], now + 50)
        if now == 4_000:
            s2.reconnect()
            live_step(orderer, now + 50)
        orderer.listen()
        live_step(orderer, now + 50)

    assert orderer.core.counters.skipped > 1_000
    reported = [r for r in orderer.logs[LineName.LIVE] if r.kind is not Kind.START]
    skipped_to = 4_050
    assert max(r.bucket_end for r in reported if r.missing) == (skipped_to + 250) // 100 * 100 * MS
    assert any(not r.missing for r in reported)


def live_step(orderer: Orderer, now_ms: int) -> None:
    """A step without the catch-up reader, which has hours of a backlog to process."""
    for effect in orderer.core.step(now_ms * MS):
        match effect:
            case Emit(line, record):
                orderer.logs[line].append(record)
            case ProbeEnds(streams):
                ends: dict[int, int | None] = {i: len(orderer.sources[i].log) for i in streams}
                orderer.core.ends(ends, now_ms * MS)
