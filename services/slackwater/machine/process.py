"""Child processes that end with their parent.

A broker or another child that outlives a killed supervisor holds ports and locks, which the next
run needs. Linux can send a signal to a child when its parent ends (prctl, PR_SET_PDEATHSIG), but
"parent" there means the *thread* that forked: a child started from a short-lived thread would be
killed when that thread ends. All children are therefore started by one thread that lives as long
as the interpreter. ``setpriv`` (util-linux) sets the signal: a preexec_fn would run Python between
fork and exec, which may deadlock in a program with threads. Without setpriv, children are stopped
only by the program that started them. A child's files are readable by their owner only (``umask``).
"""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import IO

from slackwater.runtime.security.private import UMASK


@cache
def _spawner() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="spawner")


@cache
def _die_with_parent() -> tuple[str, ...]:
    setpriv = shutil.which("setpriv")
    return (setpriv, "--pdeathsig", "KILL", "--") if setpriv else ()


def spawn(
    command: Sequence[str],
    *,
    stdin: int = subprocess.DEVNULL,
    stdout: int | IO[bytes],
    stderr: int | IO[bytes] = subprocess.STDOUT,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a child in a session of its own, so that Ctrl-C reaches the parent alone.

    The parent can then stop its children in order. ``pid`` is that of the command, since setpriv
    replaces itself by the command.
    """
    return (
        _spawner()
        .submit(
            subprocess.Popen,
            [*_die_with_parent(), *command],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=env,
            cwd=cwd,
            pass_fds=tuple(pass_fds),
            start_new_session=True,
            umask=UMASK,
        )
        .result()
    )
