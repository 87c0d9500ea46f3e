"""The notifier as a process of a deployment on this machine (`up --notify`).

It is the command ``slackwater notify`` with the deployment's data directory, where it keeps how far
it has come. The receivers are in its environment, which it has from the command that starts it.
"""

from __future__ import annotations

from slackwater.machine.launchers import ProcessSpec
from slackwater.machine.layout import STOP_FIRST, Launch
from slackwater.model.kinds import NOTIFIER


def notifier_spec(launch: Launch, prefix: str) -> ProcessSpec:
    """Return the process of the notifier."""
    where = ("--bootstrap", launch.bootstrap, "--data-dir", str(launch.data_dir))
    command = (launch.python, "-m", "slackwater.cli", "notify", *where)
    of = ("--prefix", prefix) if prefix else ()
    return ProcessSpec(NOTIFIER, (*command, *of), STOP_FIRST, env=launch.environment)
