"""The supervisor over real processes: ends, pauses, stops, numbers, logs."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.support.waiting import WAIT_S_MAX, eventually, eventually_async

from slackwater.machine import launchers
from slackwater.machine.broker import EmbeddedBroker, answers
from slackwater.machine.launchers import CommandLauncher, ProcessSpec
from slackwater.machine.process import spawn
from slackwater.machine.supervisor import Supervisor, rotate
from slackwater.model.errors import EnvironmentProblem, UsageError


def sleeper(name: str, stop_order: int = 0) -> ProcessSpec:
    return ProcessSpec(name, ("sh", "-c", 'echo "$0"; exec sleep 600', name), stop_order)


@pytest.fixture
async def supervisor(tmp_path: Path) -> AsyncIterator[Supervisor]:
    running = Supervisor(tmp_path)
    yield running
    await running.stop_all()


def log_lines(supervisor: Supervisor, name: str) -> list[str]:
    return supervisor.log_path(name).read_text().splitlines()


async def test_a_part_of_a_process_is_killed_and_paused_by_a_line_on_its_input(
    supervisor: Supervisor,
) -> None:
    parts = ("proxy/a", "proxy/b")
    await supervisor.start(ProcessSpec("proxy", ("sh", "-c", "exec cat"), parts=parts))
    await supervisor.start(sleeper("root/q.0"))
    pid = supervisor.pids()["proxy"]
    assert supervisor.names() == ["proxy/a", "proxy/b", "root/q.0"]
    assert supervisor.parts("proxy") == ["proxy/a", "proxy/b"]
    assert supervisor.kill("proxy/b") == ["proxy/b"]
    assert supervisor.pause("proxy/a", 0.05) == ["proxy/a"]
    reported = ["kill proxy/b", "pause proxy/a", "resume proxy/a"]
    await eventually_async(lambda: log_lines(supervisor, "proxy/a") == reported)
    happened = [(event.process, event.event) for event in supervisor.events]
    assert {("proxy/b", "killed"), ("proxy/a", "paused"), ("proxy/a", "resumed")} <= {*happened}
    assert supervisor.pids()["proxy"] == pid
    assert supervisor.lives()["proxy/b"].restarts == 0

    assert supervisor.kill("proxy/*") == ["proxy"]
    await eventually_async(lambda: supervisor.pids().get("proxy", pid) != pid)
    assert {supervisor.lives()[part].restarts for part in parts} == {1}
    assert supervisor.last_exit("proxy/a") == -signal.SIGKILL


def hosting(name: str, *parts: str) -> ProcessSpec:
    """Return a process whose log shows its command line, then its commands."""
    return ProcessSpec(name, ("sh", "-c", 'echo "$0"; exec cat', ",".join(parts)), parts=parts)


def kept(parts: Sequence[str]) -> ProcessSpec:
    """Return the first host, with the parts that it keeps."""
    return hosting("host/0", *parts)


async def test_a_part_that_is_moved_is_served_by_another_process_from_then_on(
    supervisor: Supervisor,
) -> None:
    await supervisor.start(hosting("host/0", "root/a.0", "root/b.0", "root/c.0"))
    was = supervisor.pids()["host/0"]
    await supervisor.move("root/b.0", kept, hosting("host/own-0", "root/b.0"))
    assert supervisor.process_of("root/b.0") == "host/own-0"
    assert supervisor.parts("host/0") == ["root/a.0", "root/c.0"]
    assert supervisor.names() == ["root/a.0", "root/b.0", "root/c.0"]
    reported = ["root/a.0,root/b.0,root/c.0", "remove root/b.0"]
    await eventually_async(lambda: log_lines(supervisor, "root/a.0") == reported)
    supervisor.kill("root/b.0")
    await eventually_async(
        lambda: log_lines(supervisor, "root/b.0") == ["root/b.0", "kill root/b.0"]
    )
    assert supervisor.pids()["host/0"] == was, "the others have continued"

    supervisor.kill("host/0")
    await eventually_async(lambda: log_lines(supervisor, "root/a.0")[2:] == ["root/a.0,root/c.0"])


async def test_parts_that_are_moved_elsewhere_while_a_process_starts_are_not_taken_back(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host is drained while one of its fragments gets a host of its own."""
    await supervisor.start(hosting("host/0", "root/a.0", "root/b.0", "root/c.0"))
    empty = ProcessSpec("host/new-1", ("sh", "-c", "exec cat"), takes_commands=True)
    await supervisor.start(empty)
    asked, go_on = threading.Event(), threading.Event()

    def slow(*given: Any, **named: Any) -> Any:
        asked.set()
        assert go_on.wait(WAIT_S_MAX)
        return spawn(*given, **named)

    monkeypatch.setattr("slackwater.machine.launchers.spawn", slow)
    own = hosting("host/own-0", "root/b.0")
    moving = asyncio.create_task(supervisor.move("root/b.0", kept, own))
    await eventually_async(asked.is_set)
    supervisor.serve(kept(["root/c.0"]))
    supervisor.serve(replace(empty, parts=("root/a.0",)))
    go_on.set()
    await moving
    assert supervisor.parts("host/0") == ["root/c.0"]
    assert supervisor.process_of("root/a.0") == "host/new-1"
    assert supervisor.process_of("root/b.0") == "host/own-0"


async def test_a_part_may_be_moved_from_a_process_that_ends_meanwhile(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    await supervisor.start(hosting("host/0", "root/b.0"))
    asked, go_on = threading.Event(), threading.Event()

    def slow(*given: Any, **named: Any) -> Any:
        asked.set()
        assert go_on.wait(WAIT_S_MAX)
        return spawn(*given, **named)

    monkeypatch.setattr("slackwater.machine.launchers.spawn", slow)
    own = hosting("host/own-0", "root/b.0")
    moving = asyncio.create_task(supervisor.move("root/b.0", kept, own))
    await eventually_async(asked.is_set)
    await supervisor.end("host/0")
    go_on.set()
    await moving
    assert supervisor.process_of("root/b.0") == "host/own-0"
    assert list(supervisor.pids()) == ["host/own-0"]


async def test_a_part_may_be_taken_from_a_process_and_given_back(supervisor: Supervisor) -> None:
    both, one = hosting("host/0", "root/a.0", "root/b.0"), hosting("host/0", "root/a.0")
    await supervisor.start(both)
    supervisor.serve(one)
    assert supervisor.names() == ["root/a.0"]
    supervisor.serve(both)
    assert supervisor.names() == ["root/a.0", "root/b.0"]
    reported = ["root/a.0,root/b.0", "remove root/b.0", "add root/b.0"]
    await eventually_async(lambda: log_lines(supervisor, "host/0") == reported)


async def test_a_process_may_begin_empty_and_be_ended_alone(supervisor: Supervisor) -> None:
    empty = ProcessSpec("host/new-1", ("sh", "-c", "exec cat"), takes_commands=True)
    await supervisor.start(hosting("host/0", "root/a.0"))
    await supervisor.start(empty)
    supervisor.serve(replace(hosting("host/0"), parts=()))
    supervisor.serve(replace(empty, parts=("root/a.0",)))
    assert supervisor.process_of("root/a.0") == "host/new-1"
    await eventually_async(lambda: log_lines(supervisor, "host/new-1") == ["add root/a.0"])
    await supervisor.end("host/0")
    assert list(supervisor.pids()) == ["host/new-1"]
    assert supervisor.names() == ["root/a.0"]


async def test_a_part_whose_new_process_cannot_be_started_stays_where_it_is(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    await supervisor.start(hosting("host/0", "root/a.0", "root/b.0"))

    def no_process(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EAGAIN, "no more processes")

    with monkeypatch.context() as full:
        full.setattr("slackwater.machine.launchers.spawn", no_process)
        with pytest.raises(OSError, match="no more processes"):
            await supervisor.move("root/b.0", kept, hosting("host/own-0", "root/b.0"))
    assert supervisor.process_of("root/b.0") == "host/0"
    supervisor.kill("root/b.0")
    reported = ["root/a.0,root/b.0", "kill root/b.0"]
    await eventually_async(lambda: log_lines(supervisor, "root/b.0") == reported)


async def test_a_part_that_is_moved_while_its_process_starts_is_sent_to_the_new_one(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command line is the older one by then."""
    await supervisor.start(hosting("host/0", "root/a.0", "root/b.0"))
    asked, go_on = threading.Event(), threading.Event()

    def slow(*given: Any, **named: Any) -> Any:
        if "root/a.0,root/b.0" in given[0]:
            asked.set()
            assert go_on.wait(WAIT_S_MAX)
        return spawn(*given, **named)

    monkeypatch.setattr("slackwater.machine.launchers.spawn", slow)
    await eventually_async(lambda: log_lines(supervisor, "host/0") == ["root/a.0,root/b.0"])
    supervisor.kill("host/0")
    await eventually_async(asked.is_set)
    own = hosting("host/own-0", "root/b.0")
    await supervisor.move("root/b.0", kept, own)
    go_on.set()
    reported = ["root/a.0,root/b.0"] * 2 + ["remove root/b.0"]
    await eventually_async(lambda: log_lines(supervisor, "host/0") == reported)


async def test_a_killed_process_is_back_at_once(
    supervisor: Supervisor,
) -> None:
    await supervisor.start(sleeper("orderer/q.0.a"))
    await supervisor.start(sleeper("orderer/q.0.b"))
    await supervisor.start(sleeper("root/q.0"))
    before = supervisor.pids()
    assert supervisor.names() == ["orderer/q.0.a", "orderer/q.0.b", "root/q.0"]
    # One that is killed before its first line leaves a line less.
    await eventually_async(lambda: log_lines(supervisor, "orderer/q.0.a") == ["orderer/q.0.a"])
    assert supervisor.kill("orderer/q.0") == ["orderer/q.0.a", "orderer/q.0.b"]
    await eventually_async(
        lambda: supervisor.pids().get("orderer/q.0.a", 0) not in {0, before["orderer/q.0.a"]}
    )
    assert supervisor.pids()["root/q.0"] == before["root/q.0"]
    assert supervisor.last_exit("orderer/q.0.a") == -signal.SIGKILL
    await eventually_async(lambda: len(log_lines(supervisor, "orderer/q.0.a")) == 2)
    assert log_lines(supervisor, "orderer/q.0.a") == [
        "orderer/q.0.a",
        "orderer/q.0.a",
    ]
    emitted = [e.event.split(",")[0] for e in supervisor.events if e.process == "orderer/q.0.a"]
    assert emitted == ["started", "killed", "ended by SIGKILL", "started"], "without a pause"
    assert [e.wall_us for e in supervisor.events] == sorted(e.wall_us for e in supervisor.events)


async def test_without_a_free_file_descriptor_a_killed_process_is_back_too(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_descriptor(_: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "pidfd_open", no_descriptor)
    await supervisor.start(sleeper("root/q.0"))
    before = supervisor.pids()["root/q.0"]
    supervisor.kill("root/q.0")
    await eventually_async(lambda: supervisor.pids().get("root/q.0", before) != before)


async def test_one_that_dies_again_and_again_waits_longer_each_time(
    supervisor: Supervisor,
) -> None:
    await supervisor.start(ProcessSpec("proxy/s", ("sh", "-c", "exit 3")))
    await eventually_async(lambda: sum("restarts" in e.event for e in supervisor.events) >= 2)
    emitted = [event.event.split(",")[0] for event in supervisor.events]
    assert emitted[:7] == [
        "started",
        "ended with code 3",
        "started",  # the first time at once
        "ended with code 3",
        "restarts in 0.5 s",
        "started",
        "ended with code 3",
    ]
    assert supervisor.last_exit("proxy/s") == 3


async def test_a_death_by_a_signal_has_a_line_with_its_last_words(
    supervisor: Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    crash = "import faulthandler, os; faulthandler.enable(); print('read', flush=True); os.abort()"
    command = (sys.executable, "-c", crash)
    await supervisor.start(ProcessSpec("proxy/s", command))
    await eventually_async(lambda: supervisor.lives()["proxy/s"].restarts >= 1)
    life = supervisor.lives()["proxy/s"]
    assert life.last_exit == "SIGABRT"
    assert life.last_error == "Fatal Python error: Aborted"
    assert life.last_exit_at_us is not None
    reported = [r.getMessage() for r in caplog.records if r.levelname == "ERROR"]
    assert reported[0].startswith("proxy/s ended by SIGABRT: Fatal Python error: Aborted | ")
    assert "CRITICAL proxy/s slackwater.machine.kept_process: ended by SIGABRT" in (
        supervisor.log_path("proxy/s").read_text()
    )


async def test_one_that_was_stopped_leaves_no_line(
    supervisor: Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    await supervisor.start(sleeper("proxy/s"))
    supervisor.kill("proxy/s")
    await eventually_async(lambda: supervisor.lives()["proxy/s"].restarts == 1)
    life = supervisor.lives()["proxy/s"]
    assert (life.last_exit, life.last_error) == ("SIGKILL", None)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_paused_process_goes_on_by_itself(supervisor: Supervisor) -> None:
    await supervisor.start(sleeper("proxy/s"))
    process = psutil.Process(supervisor.pids()["proxy/s"])
    assert supervisor.pause("proxy", 0.3) == ["proxy/s"]
    # The loop is blocked meanwhile, and does not end the pause.
    eventually(lambda: process.status() == psutil.STATUS_STOPPED)
    await eventually_async(lambda: process.status() != psutil.STATUS_STOPPED)
    events = [event.event for event in supervisor.events]
    assert events[-2:] == ["paused", "resumed"]
    supervisor.pause("proxy/s")
    await eventually_async(lambda: process.status() == psutil.STATUS_STOPPED)
    assert supervisor.resume("proxy/s") == ["proxy/s"]
    await eventually_async(lambda: process.status() != psutil.STATUS_STOPPED)


async def test_a_pause_and_a_kill_reach_what_the_process_has_started(
    supervisor: Supervisor,
) -> None:
    child = "import subprocess, time; subprocess.Popen(['sleep', '630'], start_new_session=True)"
    command = (sys.executable, "-c", f"{child}; time.sleep(600)")
    await supervisor.start(ProcessSpec("aggregator/0", command))
    parent = psutil.Process(supervisor.pids()["aggregator/0"])
    await eventually_async(lambda: len(parent.children()) == 1)
    jvm = parent.children()[0]
    supervisor.pause("aggregator/0")
    await eventually_async(lambda: jvm.status() == psutil.STATUS_STOPPED)
    supervisor.resume("aggregator/0")
    await eventually_async(lambda: jvm.status() != psutil.STATUS_STOPPED)
    supervisor.kill("aggregator/0")
    await eventually_async(lambda: not jvm.is_running() or jvm.status() == psutil.STATUS_ZOMBIE)


async def test_an_unknown_target_is_refused(supervisor: Supervisor) -> None:
    with pytest.raises(UsageError):
        supervisor.kill("gateway")


async def test_all_are_stopped_in_order_and_what_will_not_stop_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = Supervisor(tmp_path)
    # For as long as it takes: on a slow machine they would be killed.
    monkeypatch.setattr("slackwater.machine.supervisor.STOP_S_MAX", WAIT_S_MAX)
    await supervisor.start(sleeper("root/q.0", 2))
    await supervisor.start(sleeper("proxy/s", 1))
    monkeypatch.setattr("slackwater.machine.supervisor.STOP_S_MAX", 0.5)
    deaf = "trap '' TERM; echo up; sleep 600; sleep 600"
    await supervisor.start(ProcessSpec("aggregator/0", ("sh", "-c", deaf), 2))
    await eventually_async(lambda: log_lines(supervisor, "aggregator/0") == ["up"])
    supervisor.pause("root/q.0")  # also a paused one
    pids = supervisor.pids()
    await supervisor.stop_all()
    assert not any(psutil.pid_exists(pid) for pid in pids.values())
    ends = [(e.process, e.event) for e in supervisor.events if e.event.startswith("ended")]
    assert ends[0] == ("proxy/s", "ended by SIGTERM")
    assert sorted(ends[1:]) == [
        ("aggregator/0", "ended by SIGKILL"),
        ("root/q.0", "ended by SIGTERM"),
    ]


async def test_what_a_process_has_started_dies_with_it(supervisor: Supervisor) -> None:
    spec = ProcessSpec("aggregator/0", ("sh", "-c", "sleep 610 & wait"))
    await supervisor.start(spec)
    parent = psutil.Process(supervisor.pids()["aggregator/0"])
    await eventually_async(lambda: len(parent.children()) == 1)
    child = parent.children()[0]
    os.kill(parent.pid, signal.SIGKILL)
    await eventually_async(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_children_die_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    program = (
        "import asyncio, pathlib, sys\n"
        "from slackwater.machine.launchers import ProcessSpec\n"
        "from slackwater.machine.supervisor import Supervisor\n"
        "async def main():\n"
        "    s = Supervisor(pathlib.Path(sys.argv[1]))\n"
        "    await s.start(ProcessSpec('proxy/s', ('sleep', '620')))\n"
        "    print(s.pids()['proxy/s'], flush=True)\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        # setpriv binds the child to its parent and then becomes the command.
        while psutil.Process(pid).name() != "sleep":
            time.sleep(0.01)
        child = psutil.Process(pid)
        parent.kill()
    eventually(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_a_log_is_turned_over_at_its_bound(tmp_path: Path) -> None:
    log = tmp_path / "proxy-s.log"
    assert not rotate(log, 100)
    log.write_bytes(b"x" * 100)
    assert not rotate(log, 100)
    with log.open("ab") as writer:
        writer.write(b"y")
        writer.flush()
        assert rotate(log, 100)
        writer.write(b"z")
    assert log.read_bytes() == b"z"
    assert log.with_suffix(".log.1").read_bytes() == b"x" * 100 + b"y"


def test_on_a_full_disk_a_log_is_cut_without_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error here would end the watch, and all logs would grow from then on."""

    def full(source: Path, target: Path) -> None:
        target.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("slackwater.machine.supervisor.shutil.copy", full)
    log = tmp_path / "proxy-s.log"
    log.write_bytes(b"x" * 101)
    assert rotate(log, 100)
    assert log.read_bytes() == b""


async def test_an_end_by_a_signal_without_a_name_is_an_end_like_any(
    supervisor: Supervisor,
) -> None:
    await supervisor.start(sleeper("proxy/s"))
    before = supervisor.pids()["proxy/s"]
    os.kill(before, signal.SIGRTMIN + 3)
    await eventually_async(lambda: supervisor.pids().get("proxy/s", before) != before)
    assert supervisor.last_exit("proxy/s") == -(signal.SIGRTMIN + 3)


@pytest.mark.slow
async def test_the_broker_is_kept_too_on_the_same_port(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path)
    broker = EmbeddedBroker(tmp_path / "broker")
    await supervisor.start_broker(broker)
    bootstrap, pid = broker.bootstrap, supervisor.pids()["broker"]
    assert answers(bootstrap, WAIT_S_MAX)
    assert supervisor.kill("broker") == ["broker"]
    await eventually_async(lambda: supervisor.pids().get("broker", pid) != pid)
    assert broker.bootstrap == bootstrap
    assert answers(bootstrap, WAIT_S_MAX)
    second = Supervisor(tmp_path / "second")
    with pytest.raises(EnvironmentProblem, match="another broker"):
        await second.start_broker(EmbeddedBroker(tmp_path / "broker"))
    assert second.names() == []
    await supervisor.stop_all()
    assert not answers(bootstrap, 0.2)


class Held:
    """A launcher that takes its time, like a broker."""

    def __init__(self) -> None:
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()
        self.process: subprocess.Popen[bytes] | None = None

    async def launch(self) -> int:
        self.asked.set()
        await self.go_on.wait()
        command = ["sleep", "64"]
        self.process = await asyncio.to_thread(subprocess.Popen, command, start_new_session=True)
        return self.process.pid

    def reap(self) -> int | None:
        return None if self.process is None else self.process.wait()

    def give_up(self) -> None:
        """It starts nevertheless."""

    def command(self, line: str) -> None:
        """It has no parts."""

    def serve(self, spec: ProcessSpec) -> None:
        """It has no parts."""


async def test_a_stop_during_the_first_start_leaves_nothing_behind(tmp_path: Path) -> None:
    supervisor, held = Supervisor(tmp_path), Held()
    starting = asyncio.create_task(supervisor._keep("broker", 0, 4.0, held))
    await held.asked.wait()
    stopping = asyncio.create_task(supervisor.stop_all())
    await asyncio.sleep(0)  # it has begun
    held.go_on.set()
    await stopping
    assert held.process is not None, "stopped before it was known what had been started"
    assert not psutil.pid_exists(held.process.pid)
    await asyncio.wait([starting])


async def test_nothing_is_started_once_all_is_being_stopped(tmp_path: Path) -> None:
    """Ctrl-C during a start: the rest of the list must not be started after the stop."""
    supervisor = Supervisor(tmp_path)
    await supervisor.stop_all()
    with pytest.raises(EnvironmentProblem, match="stopped"):
        await supervisor.start(sleeper("root/q.0"))
    assert supervisor.names() == []


async def test_a_start_that_is_cancelled_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []
    loop, spawning, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def held(*args: Any, **kwargs: Any) -> subprocess.Popen[bytes]:
        loop.call_soon_threadsafe(spawning.set)
        go_on.wait(WAIT_S_MAX)
        started.append(spawn(*args, **kwargs))
        return started[-1]

    monkeypatch.setattr(launchers, "spawn", held)
    launcher = CommandLauncher(ProcessSpec("host/1", ("sleep", "65")), tmp_path / "log")
    launching = asyncio.create_task(launcher.launch())
    await spawning.wait()
    launching.cancel()
    go_on.set()
    await asyncio.wait([launching])
    assert launching.cancelled()
    assert [process.returncode for process in started] == [-signal.SIGKILL]
