"""A host whose fragments can be made to fail, to measure the effect on the others.

Started in place of ``slackwater.host`` by a bench or a test, never by the product: faults are
injected here, around the creation of a fragment. Each line of the file that ``SPOILT_BY`` names is
a fragment and the behaviour of its steps: ``orderer/q.0.a raise``, ``root/q.0 sleep 0.2``. The file
is read at each step. An orderer that starts while its line is ``orderer/q.0.a leak 1000`` releases
none of its records, and its H is 1,000 bytes. ``orderer/q.0.a swell 8`` keeps 8 MiB more at each
step, which only the memory of the process shows.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from slackwater.host.app import MAKE, add_arguments, main
from slackwater.host.fragment import Fragment
from slackwater.host.known import RegistryView
from slackwater.runtime.service.entry import ProcessContext, run
from slackwater.sessions.effects import Effect

BY: Final = "SPOILT_BY"
REPOSITORY: Final = Path(__file__).parents[1]
PYTHON: Final = """\
#!/bin/sh
export {by}={file} PYTHONPATH={repository}
if [ "$2" = slackwater.host ]; then shift 2; set -- -m bench.spoilt_host "$@"; fi
exec {python} "$@"
"""

_swollen: list[bytes] = []
"""Memory kept by fragments that swell; it remains when they have left the host."""

MakeOne = Callable[[str, RegistryView, Any], Fragment]


class SpoiltError(Exception):
    """Raised by a step that is to fail."""


def python_for(file: Path) -> str:
    """Return an interpreter, written beside the file, that starts this host in place of a host."""
    made = file.with_name("python")
    made.write_text(PYTHON.format(by=BY, file=file, repository=REPOSITORY, python=sys.executable))
    made.chmod(0o755)
    return str(made)


def spoilt(make: MakeOne, kind: str) -> MakeOne:
    """Create fragments of this kind, with steps that can fail."""

    def made(name: str, known: RegistryView, transport: Any) -> Fragment:
        fragment = make(name, known, transport)
        _spoil(fragment, f"{kind}/{name}", Path(os.environ[BY]))
        return fragment

    return made


def _spoil(fragment: Fragment, name: str, file: Path) -> None:
    session: Any = fragment.session
    complete: Callable[[int], Sequence[Effect]] = session.step
    leaks = False
    match _fault(file, name):
        case ["leak", bytes_max]:
            session._config = replace(session._config, ahead_bytes_max=int(bytes_max))
            leaks = True

    def step(now: int) -> Sequence[Effect]:
        if leaks:
            for cursor in (*session.core.logs.stable, *session.core.logs.live):
                cursor.pass_to = _nothing
        match _fault(file, name):
            case ["raise"]:
                raise SpoiltError(f"{file} says so")
            case ["sleep", seconds]:
                time.sleep(float(seconds))
            case ["swell", mib]:
                _swollen.append(b"\1" * (int(mib) << 20))  # zeros would take no memory
        return complete(now)

    session.step = step


def _nothing(_start: int) -> None:
    """Release nothing."""


def _fault(file: Path, name: str) -> list[str]:
    lines = file.read_text().splitlines() if file.exists() else []
    return next((line.split()[1:] for line in lines if line.split()[0] == name), [])


def _main(context: ProcessContext) -> None:
    main(context, {kind: spoilt(make, kind) for kind, make in MAKE.items()})


if __name__ == "__main__":
    run("host", _main, add_arguments=add_arguments)
