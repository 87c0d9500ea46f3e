"""Processes that are forked from a template instead of started: the side that asks for them.

A ``Template`` belongs to one supervisor. What cannot be forked is started as a command: another
program, other settings of Python in its environment, no Linux, no template (``fork`` returns None).
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from slackwater.machine.process import spawn
from slackwater.machine.template import (
    MESSAGE_BYTES_MAX,
    PR_SET_CHILD_SUBREAPER,
    TITLE_BYTES,
    Request,
    prctl,
)
from slackwater.runtime.service.cpu import children_of

_log = logging.getLogger(__name__)

MODULES: Final = {
    "slackwater_spark.app": "slackwater_spark.app",
    "slackwater.proxy": "slackwater.proxy.app",
    "slackwater.host": "slackwater.host.app",
}
"""The programs of a machine's processes, each with what the template imports for it, in order."""
READY_S_MAX: Final = 60.0
"""A template that has not answered for so long is given up."""
_running: set[int] = set()
"""Templates of this process, by identity; while there is one, it is a subreaper."""


class Forked:
    """A process that was forked; used as a ``Popen``."""

    def __init__(self, pid: int, stdin: IO[bytes] | None) -> None:
        self.pid, self.stdin = pid, stdin
        self._code: int | None = None

    def wait(self) -> int:
        """Wait for its end; returns its code, or the negative number of its signal."""
        if self._code is None:
            _, status = os.waitpid(self.pid, 0)
            self._code = os.waitstatus_to_exitcode(status)
        return self._code


class Template:
    """The template of a machine's processes. Thread-safe.

    Args:
        modules: programs, as after ``python -m``, each with the module to import for it.
    """

    def __init__(self, modules: Mapping[str, str] = MODULES) -> None:
        self._modules = modules
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._python: Mapping[str, str] = {}
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Start it, in the background, if this system can do what it takes."""
        with self._lock:
            if self._process is not None or not _becomes_subreaper():
                return
            _running.add(id(self))
            self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._channel.settimeout(READY_S_MAX)
            self._python = _settings_of_python(os.environ)
            command = (sys.executable, "-m", "slackwater.machine.template", str(theirs.fileno()))
            with theirs:
                self._process = spawn(
                    (*command, ",".join(self._modules.values()), "-" * TITLE_BYTES),
                    stdout=subprocess.DEVNULL,
                    # With more, numpy starts threads, which a forked process does not have.
                    env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
                    pass_fds=[theirs.fileno()],
                )

    def fork(
        self, command: Sequence[str], *, stdin: int, stdout: IO[bytes], env: Mapping[str, str]
    ) -> Forked | None:
        """Fork a process for a command, or return None if it has to be started.

        ``stdin``: ``subprocess.PIPE`` or ``subprocess.DEVNULL``.
        """
        if not self._has(command) or _settings_of_python(env) != self._python:
            return None
        message = Request(command, dict(env), os.getpid()).encoded()
        with self._lock:
            if self._channel is None or len(message) > MESSAGE_BYTES_MAX:
                return None
            read, write = os.pipe() if stdin == subprocess.PIPE else (os.open(os.devnull, 0), None)
            try:
                socket.send_fds(self._channel, [message], [read, stdout.fileno()])
                pid = int(self._channel.recv(32) or b"0")
            except OSError as error:
                pid = 0
                _log.warning("no process can be forked any more; they are started: %s", error)
                self._leave()
            finally:
                os.close(read)
        pipe = None if write is None else os.fdopen(write, "wb", 0)
        if pid:
            return Forked(pid, pipe)
        if pipe is not None:
            pipe.close()
        return None

    def end(self) -> None:
        """End the template. The processes that were forked run on."""
        with self._lock:
            self._leave()

    def __del__(self) -> None:
        """End it with its supervisor: after a start that failed nobody may stop that."""
        self._leave()

    def _has(self, command: Sequence[str]) -> bool:
        python, option, module, *_ = (*command, "", "", "")
        return (python, option) == (sys.executable, "-m") and module in self._modules

    def _leave(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            _running.discard(id(self))
            if not _running:
                prctl(PR_SET_CHILD_SUBREAPER, 0)


def reap_orphans() -> None:
    """Reap ended descendants whose parent ended before them, such as a killed aggregator's JVM.

    A subreaper becomes their parent. What was started by this process is either in its own session
    or leads one, and is left to whoever waits for it.
    """
    own = os.getsid(0)
    for pid in children_of(os.getpid()):
        with contextlib.suppress(OSError):  # it is reaped already
            stat = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
            state, session = stat[0], int(stat[3])
            if state == "Z" and session not in {own, pid}:
                os.waitpid(pid, os.WNOHANG)


def _becomes_subreaper() -> bool:
    """Make this process a subreaper; False if the system has no such thing, or forbids it."""
    if sys.platform != "linux" or not Path("/proc/self/stat").exists():
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))  # Linux 5.3
        prctl(PR_SET_CHILD_SUBREAPER, 1)
    except OSError as error:
        _log.info("processes are started, not forked: %s", error)
        return False
    return True


def _settings_of_python(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith("PYTHON")}
