"""The data directory: one stack at a time, and its run file."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from slackwater.machine.supervisor import Supervisor
from slackwater.model.errors import EnvironmentProblem
from slackwater.proxy.sensors import hand_over
from slackwater.proxy.spool import Spool
from slackwater.runtime.security.private import append_to
from slackwater.runtime.service.datadir import DataDirectory, RunFile, is_running, read_run


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
    assert read_run(tmp_path) == RunFile(
        bootstrap="127.0.0.1:9092",
        deployment=str(tmp_path / "d.yaml"),
        pid=os.getpid(),
        processes={"broker": 7},
    )
    directory.write_run("127.0.0.1:9092", tmp_path / "d.yaml", {})
    emitted = read_run(tmp_path)
    assert emitted is not None
    assert (emitted.bootstrap, emitted.pid, emitted.processes) == ("127.0.0.1:9092", None, {})


OLD: dict[str, object] = {
    "bootstrap": "127.0.0.1:9092",
    "deployment": "/d.yaml",
    "pid": None,
    "processes": {},
}
"""As written by versions before the field ``version``."""


def test_run_json_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(OLD))
    assert read_run(tmp_path) == RunFile(bootstrap="127.0.0.1:9092", deployment="/d.yaml")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("{half", "key must be a string"),
        ("[" * 100_000, "recursion limit"),
        (json.dumps(OLD)[:40], "EOF while parsing"),
        ("[]", "Input should be an object"),
        (json.dumps(OLD | {"version": 2}), "version: Input should be 1"),
        (json.dumps(OLD | {"bootstrap": 9092}), "bootstrap: Input should be a valid string"),
        (json.dumps(OLD | {"pid": True}), "pid: Input should be a valid integer"),
        (json.dumps({"pid": 1}), "bootstrap: Field required"),
    ],
)
def test_errors_of_run_json_are_reported(tmp_path: Path, content: str, text: str) -> None:
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(EnvironmentProblem, match=re.escape(str(tmp_path / "run.json"))) as caught:
        read_run(tmp_path)
    assert text in caught.value.message
    assert "remove it; `slackwater up` writes a new one" in caught.value.message


def test_run_json_that_is_no_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "run.json").mkdir()
    with pytest.raises(EnvironmentProblem, match="is not a file"):
        read_run(tmp_path)
    (tmp_path / "run.json").rmdir()
    os.mkfifo(tmp_path / "run.json")  # opening it would wait for a writer
    with pytest.raises(EnvironmentProblem, match="is not a file"):
        read_run(tmp_path)


def test_a_stack_that_was_killed_does_not_run(tmp_path: Path) -> None:
    assert not is_running(tmp_path)
    directory = DataDirectory(tmp_path)
    directory.acquire()
    directory.write_run("127.0.0.1:9092", tmp_path / "d.yaml", {"broker": 7})
    assert is_running(tmp_path)
    directory.release()
    assert not is_running(tmp_path)


def modes(top: Path) -> dict[str, int]:
    return {
        str(path.relative_to(top)): path.lstat().st_mode & 0o777
        for path in (top, *top.rglob("*"))
        if not path.is_symlink()
    }


@pytest.fixture
def no_umask() -> Iterator[None]:
    kept = os.umask(0)
    yield
    os.umask(kept)


@pytest.mark.usefixtures("no_umask")
def test_what_is_made_is_private(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "parent" / "data")
    directory.acquire()
    directory.write_run("127.0.0.1:9092", tmp_path / "d.yaml", {})
    supervisor = Supervisor(directory.path)
    append_to(supervisor.log_path("root/q.0")).close()
    spool = Spool.open(directory.path / "proxy" / "s.sqlite")
    spool.append((), 0, {"job": 1})
    hand_over(directory.path, "s", "1-a.csv", tmp_path / "a.csv")
    directory.release()

    found = modes(directory.path)
    spool.close()  # closing also removes its -wal

    assert {"run.json", "stack.lock", "logs/root-q.0.log", "proxy/s.sqlite-wal"} <= found.keys()
    assert {name: mode for name, mode in found.items() if mode & 0o077} == {}
    assert modes(tmp_path)["parent"] == 0o777, "a directory above it is the user's"


@pytest.mark.usefixtures("no_umask")
def test_an_older_directory_is_made_private_and_this_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "root-q.0.log").touch()
    (tmp_path / "placements.json").write_text("{}")
    tmp_path.chmod(0o755)

    directory = DataDirectory(tmp_path)
    directory.acquire()
    directory.release()

    assert {name: mode for name, mode in modes(tmp_path).items() if mode & 0o077} == {}
    assert f"{tmp_path} was open to other users: 4 of its files and directories" in caplog.text
    caplog.clear()
    directory.acquire()
    directory.release()
    assert not caplog.text


@pytest.mark.usefixtures("no_umask")
def test_a_directory_that_holds_other_things_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "readings.csv").touch()
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "shared").symlink_to(tmp_path / "readings.csv")
    tmp_path.chmod(0o755)

    directory = DataDirectory(tmp_path)
    directory.acquire()
    directory.release()

    assert modes(tmp_path) == {
        ".": 0o755,
        "readings.csv": 0o666,
        "logs": 0o700,
        "stack.lock": 0o600,
    }
