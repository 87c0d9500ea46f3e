"""Waits until processes are ready, or until one has ended with an error that no restart repairs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from slackwater.machine.logtail import last_message
from slackwater.machine.supervisor import Supervisor
from slackwater.model.errors import DeploymentError, EnvironmentProblem, UsageError
from slackwater.runtime.service.heartbeats import HeartbeatListener
from slackwater.runtime.service.parts import FAILED_CODE

_LOOK_S = 0.05


async def wait_ready(
    supervisor: Supervisor,
    listener: HeartbeatListener,
    logs: Path,
    names: Iterable[str],
    within_s: float,
) -> None:
    """Wait until these processes report ready.

    A process that ends with exit code 2 or 3 before it is ready has a problem that no restart
    repairs. Its last message is raised here as the corresponding error.

    Args:
        supervisor: of the processes.
        listener: for their heartbeats.
        logs: the folder of their logs, for the error message.
        names: the processes, or parts of them.
        within_s: the longest wait; ``EnvironmentProblem`` after it.
    """
    waiting = list(names)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while True:
        waiting = [name for name in waiting if not listener.ready(name)]
        if not waiting:
            return
        for name in waiting:
            raise_what_ended(supervisor, listener, name)
        if loop.time() > deadline:
            raise EnvironmentProblem(
                f"not ready after {within_s:g} s: {', '.join(waiting)} (see {logs})"
            )
        await asyncio.sleep(_LOOK_S)


def raise_what_ended(supervisor: Supervisor, listener: HeartbeatListener, name: str) -> None:
    """Raise the error with which a process ended, if no restart repairs it."""
    code, beat = supervisor.last_exit(name), listener.latest(name)
    if beat is not None and not beat.ready:
        code = beat.detail.get(FAILED_CODE, code)
    if code in {UsageError.exit_code, EnvironmentProblem.exit_code}:
        error = EnvironmentProblem if code == EnvironmentProblem.exit_code else DeploymentError
        raise error(f"{name}: {last_message(supervisor.log_path(name), name)}")
