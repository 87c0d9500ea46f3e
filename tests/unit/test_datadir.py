"""The data directory: one stack at a time, and what it tells the others."""

import os
from pathlib import Path

import pytest

from slackwater.model.errors import EnvironmentProblem
from slackwater.runtime.datadir import DataDirectory, read_run


def test_one_at_a_time(tmp_path: Path) -> None:
    first, second = DataDirectory(tmp_path / "new" / "dir"), DataDirectory(tmp_path / "new/dir")
    first.acquire()
    with pytest.raises(EnvironmentProblem, match=f"process {os.getpid()}") as caught:
        second.acquire()
    assert caught.value.exit_code == 3
    first.release()
    second.acquire()
    second.release()


def test_a_place_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentProblem, match="file/dir cannot be used"):
        DataDirectory(tmp_path / "file" / "dir").acquire()


def test_run_json_keeps_the_address_when_nothing_runs(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    assert read_run(tmp_path) is None
    directory.write_run("127.0.0.1:9092", tmp_path / "d.yaml", {"broker": 7})
    assert read_run(tmp_path) == {
        "bootstrap": "127.0.0.1:9092",
        "deployment": str(tmp_path / "d.yaml"),
        "pid": os.getpid(),
        "processes": {"broker": 7},
    }
    directory.write_run("127.0.0.1:9092", tmp_path / "d.yaml", {})
    said = read_run(tmp_path)
    assert said is not None
    assert (said["bootstrap"], said["pid"], said["processes"]) == ("127.0.0.1:9092", None, {})
    (tmp_path / "run.json").write_text("{half")
    assert read_run(tmp_path) is None
