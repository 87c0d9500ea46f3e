"""A process that has imported what a machine's processes run, and is forked for each of them.

    python -m slackwater.machine.template CHANNEL MODULE,MODULE... ROOM

Imports take most of the CPU of a start: 1.3 to 1.9 s for each process, and as long until a killed
one is back. The template imports everything once, and its memory is shared. It has no threads of
Python, and does nothing until it is asked by a message on its channel (``forking``). It ends with
its channel.

A process that is asked for belongs to the asking process as if that had started it: it is forked
twice, and since the asking process is a *subreaper* (prctl), the kernel makes it the parent when
the first fork ends. The asking process waits for the end of its child by pid; its own death ends
the child. Linux only.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import runpy
import select
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

from slackwater.runtime.security.private import UMASK

MESSAGE_BYTES_MAX: Final = 150_000
"""Of a request: less than the kernel's limit of a message; its environment is most of it."""
TITLE_BYTES: Final = 2_000
"""Room for the command line of a forked process, which ``ps`` and ``pkill -f`` read."""
PR_SET_PDEATHSIG: Final = 1
PR_SET_CHILD_SUBREAPER: Final = 36
_ARG_START, _ARG_END = 45, 46
"""Places in ``/proc/self/stat``, counted from the state, which follows the name."""


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process; the system call of that name."""
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


@dataclass(frozen=True, slots=True)
class Request:
    """A process to fork: ``command`` as for exec, ``-m MODULE`` from its second word on."""

    command: Sequence[str]
    env: dict[str, str]
    parent: int

    def encoded(self) -> bytes:
        """Return the message."""
        return orjson.dumps([self.command, self.env, self.parent])

    @staticmethod
    def decoded(message: bytes) -> Request:
        """Return what ``encoded`` was made from."""
        return Request(*orjson.loads(message))


def main() -> None:
    """Import the modules; then fork a process for each request, until the channel is closed.

    A request that comes meanwhile is answered after the module at which the imports are: an
    aggregator, whose module is the first, starts long before the broker answers (decision 70).
    """
    _set_title(f"{sys.executable} -m slackwater.machine.template")
    channel = socket.socket(fileno=int(sys.argv[1]))
    for module in sys.argv[2].split(","):
        importlib.import_module(module)
        request = _serve(channel, waits=False)
        if request is not None:
            break
    else:
        gc.collect()
        gc.freeze()  # a collection would write to all objects, and so copy all memory
        request = _serve(channel, waits=True)
    if request is not None:
        _become(request)


def _serve(channel: socket.socket, *, waits: bool) -> Request | None:
    """Answer requests. Returns None at the end, and in each forked process its request.

    ``waits``: for further ones, until the channel is closed.
    """
    while waits or select.select([channel], [], [], 0)[0]:
        message, descriptors, _, _ = socket.recv_fds(channel, MESSAGE_BYTES_MAX, 2)
        if not message:
            return None
        read, write = os.pipe()
        first = os.fork()
        if first == 0:
            first = os.getpid()
            second = os.fork()
            if second:
                os.write(write, str(second).encode())
                os._exit(0)
            for descriptor in (read, write):
                os.close(descriptor)
            channel.close()
            request = Request.decoded(message)
            _belong_to(request.parent, first)
            _take(descriptors)
            return request
        for descriptor in (write, *descriptors):
            os.close(descriptor)
        answer = os.read(read, 32)
        os.close(read)
        os.waitpid(first, 0)  # from now on the asking process is the parent
        with contextlib.suppress(OSError):  # it has ended
            channel.send(answer or b"0")
    return None


def _belong_to(parent: int, first: int) -> None:
    """Wait until process ``first`` has ended and ``parent`` is the parent; end with it."""
    with contextlib.suppress(ProcessLookupError):  # it has ended already
        ended = os.pidfd_open(first)
        select.select([ended], [], [])
        os.close(ended)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # the parent has ended meanwhile


def _take(descriptors: list[int]) -> None:
    """Use the descriptors as standard input, and as standard output and error."""
    given, shown = descriptors
    for target, descriptor in ((0, given), (1, shown), (2, shown)):
        os.dup2(descriptor, target)
    for descriptor in {given, shown} - {0, 1, 2}:
        os.close(descriptor)


def _become(request: Request) -> None:
    """Run the module as ``python -m MODULE`` does."""
    os.setsid()
    os.umask(UMASK)
    os.environ.clear()
    os.environ.update(request.env)
    _set_title(" ".join(request.command))
    _, _, module, *arguments = request.command
    sys.argv = [module, *arguments]
    if not hasattr(sys.modules.get(module), "__path__"):
        sys.modules.pop(module, None)  # it runs as __main__
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _set_title(title: str) -> None:
    """Write the command line where the kernel reads it, in place of the template's own.

    Its last byte is not NUL: then the kernel shows what is before the first NUL, and nothing else.
    """
    fields = Path("/proc/self/stat").read_text("utf-8").rpartition(")")[2].split()
    begin, end = int(fields[_ARG_START]), int(fields[_ARG_END])
    room = end - begin
    shown = title.encode()[: room - 2]
    ctypes.memmove(begin, shown.ljust(room - 1, b"\0") + b".", room)


if __name__ == "__main__":
    main()
