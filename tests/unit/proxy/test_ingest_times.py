"""Files ingested into a live stream: a wrong year delays no other reading; lines are numbered.

Readings far ahead of the clock go to quarantine; readings after them are sent at their own time.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.proxy_world import S, World

from slackwater.model.limits import NEVER
from slackwater.proxy.replay import without_leaps
from slackwater.proxy.sensors import hand_over, inbox_of

DAY_S = 86_400
YEAR_9999_S = 253_402_300_799
TIMES = [5_000 + i for i in range(20)]
PAUSE_US = 366 * DAY_S * S


def taken_in(world: World, times: Sequence[float], run_s: float = 60) -> list[float]:
    """Return the values of the readings in the log; a reading's value is its place in the file."""
    path = world.file([f"n,{t},{i}" for i, t in enumerate(times)])
    hand_over(world.folder / "a", "room", "job", path)
    world.run(world.sensors(), run_s)
    return [value for _, _, value in world.readings()]


@pytest.mark.parametrize("at", [0, 1, 10, 19, 20])
@pytest.mark.parametrize("leaps", [1, 5])
def test_a_wrong_year_is_quarantined_and_holds_nothing_back(
    tmp_path: Path, at: int, leaps: int
) -> None:
    world = World(tmp_path)
    times = [*TIMES[:at], *[YEAR_9999_S] * leaps, *TIMES[at:]]
    values = taken_in(world, times)
    assert values == [float(i) for i in range(len(times)) if not at <= i < at + leaps]
    assert world.counts() == {"ahead": leaps}
    first = world.readings()[0][1]
    assert [stime - first for _, stime, _ in world.readings()] == [t - TIMES[0] for t in TIMES]
    assert [p.name for p in inbox_of(tmp_path / "a", "room").iterdir()] == ["job.done"]
    world.check()


def test_a_wrong_year_is_not_waited_for_by_the_next_file(tmp_path: Path) -> None:
    world = World(tmp_path)
    first = world.file(["n,5000,1", f"n,{YEAR_9999_S},2"], "first.csv")
    hand_over(world.folder / "a", "room", "first", first)
    hand_over(world.folder / "a", "room", "then", world.file(["n,70,3"], "then.csv"))
    world.run(world.sensors(), 5)
    assert [value for _, _, value in world.readings()] == [1.0, 3.0]


@pytest.mark.parametrize(
    "times",
    [
        [0, 1, 2, 2 * DAY_S, 2 * DAY_S + 1, 2 * DAY_S + 2],
        [0, 1, 2, 2 * DAY_S],
        [0, 1, 2, 2 * DAY_S, 3, 2 * DAY_S + 1, 2 * DAY_S + 2],
        [10 * DAY_S, 10 * DAY_S + 1, 0, 10 * DAY_S + 2, 10 * DAY_S + 3],
    ],
    ids=[
        "a pause",
        "a pause before the last",
        "a late one behind a pause",
        "a clock that was reset",
    ],
)
def test_a_pause_is_no_leap(times: list[int]) -> None:
    stimes = np.array(times, np.int64) * S
    none = stimes[:0]
    assert without_leaps(stimes, none, NEVER, PAUSE_US).tolist() == stimes.tolist()


def test_a_leap_at_the_end_of_a_piece_is_seen_by_what_follows() -> None:
    stimes = np.array([1, 2, YEAR_9999_S], np.int64)
    following = np.array([3, 4], np.int64)
    assert without_leaps(stimes * S, following * S, NEVER, PAUSE_US).tolist() == [S, 2 * S, 2 * S]
    assert without_leaps(stimes[2:] * S, following * S, 2 * S, PAUSE_US).tolist() == [2 * S]


@given(
    st.lists(st.integers(0, DAY_S // 100), min_size=1, max_size=80),
    st.lists(st.tuples(st.integers(0, 80), st.integers(2 * DAY_S, YEAR_9999_S)), max_size=5),
)
def test_few_leaps_change_nothing_for_the_others(
    steps: list[int], leaps: list[tuple[int, int]]
) -> None:
    """If more readings follow a leap than there are leaps, all others keep their times."""
    good = np.cumsum(steps, dtype=np.int64)
    leaps = [(at, year) for at, year in leaps if at < len(good) - 2 * len(leaps)]
    mixed, is_good = [], []
    for i, time in enumerate(good.tolist()):
        here = [year for at, year in leaps if at == i]
        mixed += [*here, time]
        is_good += [*[False] * len(here), True]
    found = without_leaps(np.array(mixed, np.int64) * S, good[:0], NEVER, PAUSE_US)
    assert found[is_good].tolist() == (good * S).tolist()
    assert found.max() <= int(good.max()) * S


def test_files_of_one_name_in_two_folders_have_places_of_their_own(tmp_path: Path) -> None:
    world = World(tmp_path)
    for folder in ("monday", "tuesday"):
        (tmp_path / folder).mkdir()
        path = world.file(["n,5000,1", "n,nonsense,2"], f"{folder}/room.csv")
        hand_over(world.folder / "a", "room", f"{folder}-{path.name}", path)
    world.run(world.sensors(), 5)
    positions = [entry["position"] for entry in world.quarantined()]
    assert positions == ["monday-room.csv:3", "tuesday-room.csv:3"]
    assert world.counts() == {"malformed": 2}
