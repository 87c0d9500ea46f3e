"""A line when first answers begin to be late, another when they are in time again, and counts.

Windows of 1 s; a window ending at e is due at e + 10 s of wall time; X = 2 s.
"""

from __future__ import annotations

from typing import Any

from slackwater.model.deployment import WindowSpec
from slackwater.primitives.windows import Grid
from slackwater.protocols.dpc.soutput.answers import EmptyRun, StableWindow, TentativeWindow
from slackwater.sessions.boundwatch import QUIET_US, BoundWatch

S = 1_000_000
GRID = Grid(100_000, WindowSpec(S, S))


def normal_time(event: int) -> int | None:
    """Nothing beyond 1,000 s is ever due, as beyond the end of a replay."""
    return event + 10 * S if event <= 1_000 * S else None


def due(second: int) -> int:
    """Return the normal time of the window that starts at this second."""
    return (second + 11) * S


def stable(second: int, epoch: int = 0) -> StableWindow[Any]:
    start = second * S
    return StableWindow(0, 0, epoch, start, start + S, None, 0, None, ())


def tentative(second: int) -> TentativeWindow[Any]:
    start = second * S
    return TentativeWindow(0, 0, 1, start, start + S, None, 0, None, ("s",), ())


def run(second: int, windows: int, *, is_stable: bool, epoch: int = 0) -> EmptyRun:
    start = second * S
    return EmptyRun(0, epoch, is_stable, start, start + windows * S, windows, None, ())


def watch() -> BoundWatch:
    return BoundWatch(2 * S, GRID, normal_time)


def late_windows(of: BoundWatch, now: int) -> int:
    return of.detail(now)["beyond_bound"]


def test_a_window_whose_bound_had_passed_when_the_part_began_is_not_late() -> None:
    """A query that was applied with a start in the past answers all windows since then."""
    mine = watch()
    now = due(10) + 2 * S
    mine.began(now)
    assert mine.look(3 * S, now) is None
    mine.committed([stable(3), run(4, 6, is_stable=True)], now + 3 * S)
    assert late_windows(mine, 0) == 0
    assert mine.detail(now)["overdue_ms"] == 0
    mine.committed([run(9, 4, is_stable=True)], now + 3 * S)
    assert late_windows(mine, 0) == 3, "10 to 12 were due when it had begun"
    assert mine.look(13 * S, now + 3 * S) is not None


def test_a_first_answer_at_its_bound_is_in_time_and_one_after_it_is_not() -> None:
    mine = watch()
    mine.committed([stable(0)], due(0) + 2 * S)
    mine.committed([tentative(1)], due(1) + 2 * S)
    assert late_windows(mine, 0) == 0
    assert mine.look(2 * S, due(1)) is None
    mine.committed([stable(2)], due(2) + 2 * S + 1)
    mine.committed([tentative(3)], due(3) + 3 * S)
    assert late_windows(mine, 0) == 2


def test_what_replaces_a_tentative_answer_is_never_late() -> None:
    mine = watch()
    mine.committed([stable(0, epoch=3), run(1, 5, is_stable=True, epoch=3)], due(500))
    assert late_windows(mine, 0) == 0


def test_each_window_of_a_run_has_its_own_due_time() -> None:
    """Of seconds 0 to 9 answered at once, those due more than 2 s before are late."""
    for is_stable in (True, False):
        mine = watch()
        answer = run(0, 10, is_stable=is_stable, epoch=0 if is_stable else 1)
        mine.committed([answer], due(9) + 1)
        assert late_windows(mine, 0) == 8, "seconds 0 to 7; 7 is late by a microsecond"
        exact = watch()
        exact.committed([answer], due(9))
        assert late_windows(exact, 0) == 7
        early = watch()
        early.committed([answer], due(2))
        assert late_windows(early, 0) == 0
        late = watch()
        late.committed([answer], due(900))
        assert late_windows(late, 0) == 10


def test_one_line_when_it_begins_and_one_when_it_ends() -> None:
    mine = watch()
    mine.committed([stable(0)], due(0) + 3 * S)
    now = due(0) + 3 * S
    first = mine.look(4 * S, now)
    assert first == "first answers exceed their bound of 2 s"
    mine.committed([stable(1)], due(1) + 4 * S + 500_000)
    now = due(1) + 4 * S + 500_000
    assert mine.look(9 * S, now) is None, "it continues"
    mine.committed([stable(2)], due(2) + 1)
    assert mine.look(9 * S, now + QUIET_US - 1) is None, "it may begin again at once"
    assert mine.look(99 * S, now + QUIET_US) == (
        "first answers meet their bound of 2 s again. They exceeded it for 2.5 s: 2 windows,"
        " the worst 4.5 s after its normal time"
    )
    assert mine.look(99 * S, now + 2 * QUIET_US) is None, "once"


def test_a_window_without_an_answer_is_reported_while_it_is_overdue() -> None:
    """A root that hangs, or a broker that accepts no transaction."""
    mine = watch()
    assert mine.look(0, due(0) + 2 * S) is None
    mine.committing(due(0))
    assert mine.look(0, due(0) + 2 * S + 7_000) is not None
    assert mine.detail(due(0) + 2 * S + 7_000) == {
        "beyond_bound": 0,
        "beyond_bound_at": 0,
        "overdue_ms": 7,
        "commit_ms": 2_007,
    }
    assert mine.look(0, due(0) + 60 * S) is None, "one line, for any duration"
    mine.committed([stable(0)], due(0) + 61 * S)
    assert mine.detail(due(0) + 61 * S)["commit_ms"] == 61_000
    last = mine.look(99 * S, due(0) + 61 * S + QUIET_US)
    assert last is not None
    assert last.endswith("1 windows, the worst 61 s after its normal time")
    assert mine.detail(due(0) + 63 * S)["commit_ms"] == 0, "the last second counts"


def test_beyond_the_end_of_a_replay_nothing_is_overdue() -> None:
    mine = watch()
    assert mine.look(1_000 * S, 10**15) is None
    mine.committed([stable(1_000)], 10**15)
    assert late_windows(mine, 0) == 0


def test_the_percentile_is_that_of_the_last_first_answers() -> None:
    """Of a hundred answers it is the second largest; a correction is not a first answer."""
    mine = watch()
    mine.committed([tentative(0)], due(0) + 500 * S)
    mine.look(0, due(0))
    assert "p99_ms" not in mine.detail(due(0)), "it was due before the first look"
    for second in range(98):
        mine.committed([tentative(second)], due(second) + 40_001)
    mine.committed([stable(0, epoch=1)], due(97) + S)
    mine.committed([tentative(98)], due(98) + 70_000)
    mine.committed([tentative(99)], due(99) + 900_000)
    assert mine.detail(due(100))["p99_ms"] == 70
    mine.committed([run(100, 9, is_stable=True)], due(100) + S)
    assert mine.detail(due(100) + 500_000)["p99_ms"] == 70, "it is computed once a second"
    assert mine.detail(due(102))["p99_ms"] == 900
    for second in range(200, 990):
        mine.committed([stable(second)], due(second) + 5_000)
    assert mine.detail(due(990))["p99_ms"] == 41, "the 900 answers have 3 larger ones"
