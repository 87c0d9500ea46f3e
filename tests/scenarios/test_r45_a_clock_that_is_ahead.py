"""trace-45: a device's clock is two hours ahead: nobody else is late, nothing stable lies ahead.

The proxy compares each reading with its own clock. One that is ahead by more than ``ahead`` goes to
quarantine with its device's key; one that is ahead by less is kept for its window. For the
watermark it counts as if it had been on its way as long as the readings of the others.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.simulator.readings import Habits
from tests.simulator.story import Story
from tests.support.proxy_world import SPEC, STREAM, S, World, replace

from slackwater.proxy.sensors import SensorInput, inbox_of

HOUR = 3_600
DEVICES = ("a", "b")


class Fed:
    """A stream whose boundary comes from its readings; a reading of each device every second.

    ``way_s``: how long readings of devices with right clocks are on their way.
    """

    def __init__(
        self, folder: Path, *, ahead_s: float = 60, disorder_us: int = S, way_s: float = 0.5
    ) -> None:
        spec = replace(
            SPEC, expect_every_us=10 * S, disorder_us=disorder_us, ahead_us=round(ahead_s * S)
        )
        self.way_s = way_s
        self.world = World(folder, spec=spec)
        self.proxy: SensorInput = self.world.sensors()
        self.sent: list[float] = []

    def passes(self, seconds: int, fast: dict[str, float] | None = None) -> None:
        """Let time pass; ``fast``: devices whose clocks are ahead (s), which send as well."""
        for _ in range(seconds):
            now_s = self.world.now_us / S
            stamps = [(key, now_s - self.way_s) for key in DEVICES]
            stamps += [(key, now_s + by) for key, by in (fast or {}).items()]
            self._send(stamps)
            self.world.run(self.proxy, 1)
            assert self.world.boundary_s() <= self.world.now_us / S, "a stable window lies ahead"

    def _send(self, stamps: list[tuple[str, float]]) -> None:
        name = f"{len(self.sent):06}"
        rows = [f"{key},{at},{len(self.sent) + i}" for i, (key, at) in enumerate(stamps)]
        path = self.world.file(rows, f"{name}.csv")
        job = inbox_of(self.world.folder / "a", STREAM) / f"{name}.json"
        job.write_text(f'{{"file": "{path}"}}')
        self.sent += [at for _, at in stamps]

    def restarts(self) -> None:
        self.proxy = self.world.sensors()

    @property
    def logged(self) -> list[float]:
        """The times of all readings in the log, in the order in which they were sent."""
        found = self.world.readings()
        assert [value for _, _, value in found] == sorted(value for _, _, value in found)
        return [stime for _, stime, _ in found]


def test_one_reading_two_hours_ahead_makes_nobody_late(tmp_path: Path) -> None:
    fed = Fed(tmp_path)
    fed.passes(5)
    fed.passes(1, {"fast-clock": 2 * HOUR})
    fed.passes(5)
    assert fed.world.counts() == {"ahead": 1}
    assert len(fed.logged) == 2 * 11
    (entry,) = fed.world.quarantined()
    assert entry["key"] == "fast-clock"
    assert entry["detail"].startswith("7200.") or entry["detail"].startswith("7199.")
    assert fed.world.boundary_s() > fed.world.now_us / S - 3
    fed.world.check()


@pytest.mark.parametrize("restart", [False, True])
def test_readings_that_are_ahead_by_less_are_kept_and_move_nothing(
    tmp_path: Path, restart: bool
) -> None:
    fed = Fed(tmp_path)
    fed.passes(5, {"c": 50})
    if restart:
        fed.restarts()
    fed.passes(5, {"c": 50})
    assert fed.world.counts() == {}
    assert fed.logged == fed.sent
    assert sum(at > fed.world.now_us / S for at in fed.logged) == 10
    fed.world.check()


@pytest.mark.parametrize("by_s", [1, 5, 50])
def test_a_device_that_is_ahead_makes_nothing_late_that_is_on_its_way(
    tmp_path: Path, by_s: int
) -> None:
    """Readings of all others take 1.5 s, and none is older than another before it."""
    fed = Fed(tmp_path, disorder_us=0, way_s=1.5)
    fed.passes(40, {"fast-clock": by_s})
    assert fed.world.counts() == {}
    assert fed.logged == fed.sent
    # The stream is no older than the ways of its readings, and no turn that is not at its end.
    assert fed.world.boundary_s() >= fed.world.now_us / S - 1.5 - 1
    fed.world.check()


def test_a_stream_of_devices_that_are_all_ahead_does_not_stand_still(tmp_path: Path) -> None:
    fed = Fed(tmp_path, disorder_us=0, way_s=-20)
    fed.passes(10)
    assert fed.logged == fed.sent
    assert fed.world.boundary_s() >= fed.world.now_us / S - 1


def test_with_ahead_of_0_no_reading_may_be_ahead(tmp_path: Path) -> None:
    fed = Fed(tmp_path, ahead_s=0)
    fed.passes(5, {"c": 1})
    assert fed.world.counts() == {"ahead": 5}
    assert len(fed.logged) == 10


@pytest.mark.parametrize("by_s", [2 * HOUR, 30, -30])
def test_whatever_a_device_stamps_nothing_is_stable_before_its_end(by_s: int) -> None:
    story = Story(expect_every_us={"s1": 500_000, "s2": 500_000}, habits=Habits(every_us=20_000))
    story.time_passes(2)
    story.set_device("s1", for_s=1, by_s=by_s)
    story.time_passes(4)
    story.all_is_well_again(4)
    refused = story.world.history.refused["s1"]
    reasons = {reason for reason, _ in refused}
    assert reasons == {2 * HOUR: {"ahead"}, 30: set(), -30: {"late"}}[by_s]
    assert len(refused) < len(story.world.history.sent["s1"]) / 4
    story.every_guarantee_holds()
