"""Commands where the machine lacks something: a reader, standard output, a disk, Java."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from slackwater.cli.backfill import BackfillOptions, run_backfill
from slackwater.cli.backfill_inputs import BackfillInputs
from slackwater.cli.rehearse import Options, rehearse
from slackwater.cli.up import run_up
from slackwater.controller.store import open_store
from slackwater.deployment.parse import load_deployment
from slackwater.model.errors import EnvironmentProblem
from slackwater.node.machine import NodeMachine
from slackwater.node.place import NodePlace
from slackwater.rehearsal.run import Quiet
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.security.credentials import PLAINTEXT
from slackwater.runtime.service.datadir import DataDirectory
from slackwater.stack.local_control import ADDRESS_FILE, FOLDER
from slackwater.stack.stack import Stack, StackOptions

SLACKWATER = Path(sys.executable).with_name("slackwater")
DEPLOYMENT = """\
apiVersion: slackwater/v1
clock: wall
streams:
  a: {key: {value: one}, time: {column: ts, unit: ms}, fields: [x]}
queries:
  q: {from: [a], window: {size: 1s}, aggregate: [count], bound: 1s}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "d.yaml"
    path.write_text(DEPLOYMENT)
    return path


@pytest.mark.parametrize(
    ("redirected", "given", "code", "reported"),
    [
        (">&-", "d.yaml", 0, ""),
        (">&-", "none.yaml", 2, "slackwater: none.yaml: cannot be read"),
        (">&- 2>&- <&-", "d.yaml", 0, ""),
        ("2>&-", "none.yaml", 2, ""),
        (">/dev/full", "d.yaml", 3, "slackwater: No space left on device: make room"),
        (">/dev/full 2>/dev/full", "d.yaml", 3, ""),
        ("2>/dev/full", "none.yaml", 2, ""),
    ],
)
def test_without_standard_streams_the_exit_code_is_right(
    redirected: str, given: str, code: int, reported: str, file: Path
) -> None:
    command = f"{shlex.quote(str(SLACKWATER))} acl --role proxy --principal User:p"
    done = subprocess.run(
        ["bash", "-c", f"{command} --deployment {given} {redirected}"],
        cwd=file.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.startswith(reported)
    assert done.stderr.count("\n") == bool(reported), done.stderr
    assert done.returncode == code


def test_a_pipe_whose_reader_has_gone_is_no_failed_check(file: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [SLACKWATER, "acl", "--role=proxy", "--principal=User:p", f"--deployment={file}"]
    done = subprocess.run([*map(str, command)], stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


def as_inputs(files: Mapping[str, Path]) -> BackfillInputs:
    return BackfillInputs({stream: (file,) for stream, file in files.items()})


async def test_without_java_nothing_is_started_and_no_file_is_read(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    reported = f"JAVA_HOME is {tmp_path}, which has no bin/java"
    files, made = {"a": tmp_path / "none.csv"}, tmp_path / "made"
    stack = Stack(StackOptions(file, load_deployment(file), made))
    with pytest.raises(EnvironmentProblem, match=reported):
        await stack.open()
    with pytest.raises(EnvironmentProblem, match=reported):
        NodeMachine(NodePlace("n1", Cluster("127.0.0.1:1", PLAINTEXT), made)).open()
    with pytest.raises(EnvironmentProblem, match=reported):
        run_backfill(BackfillOptions(file, "q", as_inputs(files), tmp_path / "out", made))
    with pytest.raises(EnvironmentProblem, match=reported):
        rehearse(Options(file, files, tmp_path / "out", 1.0, 1, data_dir=made), Quiet())
    assert not made.exists()


@pytest.mark.parametrize("kind", ["a file", "below a file", "without a parent"])
def test_a_data_directory_that_cannot_be_made_is_named(
    kind: str, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # `up` has handlers of its own
    lacking = Path("/proc/none")  # in this file system nothing can be made
    chosen = {"a file": file, "below a file": file / "x", "without a parent": lacking}[kind]
    (tmp_path / "a.csv").write_text("ts,x\n1700000000000,1\n")
    files = {"a": tmp_path / "a.csv"}
    reported = f"the data directory {chosen} cannot be used: .*; choose another one"
    with pytest.raises(EnvironmentProblem, match=reported):
        DataDirectory(chosen).acquire()
    with pytest.raises(EnvironmentProblem, match=reported):
        open_store(chosen, "a")
    with pytest.raises(EnvironmentProblem, match=reported):
        run_backfill(BackfillOptions(file, "q", as_inputs(files), tmp_path / "out", chosen))
    with pytest.raises(EnvironmentProblem, match=reported):
        rehearse(Options(file, files, tmp_path / "out", 1.0, 1, data_dir=chosen), Quiet())
    with pytest.raises(EnvironmentProblem, match=reported):
        run_up(file, chosen, None, None)


async def test_a_refused_start_leaves_the_address_of_the_controller_that_runs(
    file: Path, tmp_path: Path
) -> None:
    address = tmp_path / FOLDER / ADDRESS_FILE
    address.parent.mkdir()
    address.write_text("127.0.0.1:7101")
    await Stack(StackOptions(file, load_deployment(file), tmp_path)).stop()
    assert address.read_text() == "127.0.0.1:7101"
