"""A history in several files: one job, in the order of their times, each reading once."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.proxy_world import SPEC, S, World

from slackwater.primitives.eventclock import DataClock
from slackwater.proxy.sensors import hand_over, inbox_of
from slackwater.proxy.spool import Spool


class Files:
    """A stream with ``clock: data``, and one job of several files of it."""

    def __init__(self, folder: Path) -> None:
        spec = replace(SPEC, disorder_us=10 * S)
        self.world = World(folder, DataClock(), spec=spec, clock="data")
        self.inbox = inbox_of(folder / "a", SPEC.name)

    def hand_over(self, *rows: list[str]) -> None:
        file, *then = [self.world.file(of, f"{i}.csv") for i, of in enumerate(rows)]
        data = self.world.folder / "a"
        hand_over(data, SPEC.name, "job", file, speed=None, as_now=False, then=then)

    def run(self) -> list[float]:
        """Run a new proxy; return the values of all readings so far."""
        self.world.run(self.world.sensors(), 3)
        return [value for _, _, value in self.world.readings()]


def test_files_of_one_job_are_read_one_after_another(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.hand_over(["n,100,1", "n,bad,2"], [], ["n,91,3", "n,120,4", "n,105,5"], ["n,130,6"])
    assert files.run() == [1, 3, 4, 6]
    assert files.world.counts() == {"malformed": 1, "late": 1}, "late within its own file"
    places = {entry["position"] for entry in files.world.quarantined()}
    assert places == {"job:3", "job+2:4"}
    assert [path.name for path in files.inbox.iterdir()] == ["job.done"]
    assert files.run() == [1, 3, 4, 6]


@pytest.mark.parametrize("spooled", [0, 1, 2, 3])
def test_a_killed_proxy_goes_on_in_the_file_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spooled: int
) -> None:
    """It is killed when it would write to the spool once more."""
    files = Files(tmp_path)
    files.hand_over(["n,1,1", "n,2,2"], ["n,3,3"], ["n,4,4", "n,5,5"])
    append, done = Spool.append, 0

    def killed(spool: Spool, records: Any, *given: Any) -> None:
        nonlocal done
        if records and done == spooled:
            raise KeyboardInterrupt
        done += bool(records)
        append(spool, records, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Spool, "append", killed)
        with contextlib.suppress(KeyboardInterrupt):
            files.run()
    assert done == spooled
    assert files.run() == [1, 2, 3, 4, 5]
    assert files.world.counts() == {}


def test_files_that_overlap_are_refused_with_file_and_line(tmp_path: Path) -> None:
    """Its readings before the other file's end would all be late."""
    files = Files(tmp_path)
    files.hand_over(["n,100,1", "n,200,2"], ["n,195,3", "n,189,4", "n,201,5"])
    assert files.run() == [1, 2, 3, 5]
    (tmp_path / "other").mkdir()
    files = Files(tmp_path / "other")
    files.hand_over(["n,100,1", "n,200,2"], ["n,150,3", "n,201,4"], ["n,300,5"])
    assert files.run() == [1, 2]
    (refused,) = files.inbox.iterdir()
    reason = json.loads(refused.read_text())["refused"]
    assert f"{tmp_path}/other/1.csv:2: the reading of 1970-01-01T00:02:30" in reason
    assert "older than 1970-01-01T00:03:20" in reason
