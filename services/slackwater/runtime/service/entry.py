"""The common main of every process: arguments, logging, signals, and how a process ends.

A fragment ends in one of three ways. It is told to stop (SIGTERM, Ctrl-C): its main is given the
chance to leave in order, within a bound. It fails: one line says why and the exit code says of
which kind, and whoever supervises it starts it again; nothing is mended in place, because a restart
is the path that is tested daily. Or it is killed, which looks the same to everybody else.

In the first two cases the interpreter is left at once: a thread that hangs in a client library
must not keep a process alive that others take for dead.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

from slackwater.deployment.parse import load_deployment
from slackwater.model.deployment import Deployment
from slackwater.model.errors import SlackwaterError
from slackwater.runtime.logs.cluster import Cluster, find_cluster
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.security.credentials import Role
from slackwater.runtime.security.private import UMASK
from slackwater.runtime.service.log import set_up_logging
from slackwater.runtime.service.settings import Settings, settings

_log = logging.getLogger(__name__)

STOP_S_MAX = 1.9
"""A process that was told to stop has this long."""

ROLES: Final = {
    "proxy": Role.PROXY,
    "host": Role.HOST,
    "aggregator": Role.AGGREGATOR,
    "registrar": Role.ADMIN,
    "exporter": Role.EXPORTER,
}
"""As whom each kind of process connects to Kafka."""

AddArguments = Callable[[argparse.ArgumentParser], None]


@dataclass(frozen=True)
class ProcessContext:
    """What a process was started with. ``stopping`` is set when it is told to stop.

    ``process`` is its full name (``host/0``), ``names`` the part after the slash;
    where it serves several (streams), all of them, and its full name is its kind. ``arguments`` is
    what the kind's own options gave.
    """

    kind: str
    names: tuple[str, ...]
    deployment_path: Path
    cluster: Cluster
    data_dir: Path
    settings: Settings
    arguments: argparse.Namespace
    stopping: threading.Event = field(default_factory=threading.Event)

    @property
    def process(self) -> str:
        """The name that its supervisor and its log give it."""
        return _process(self.kind, self.names)

    @property
    def name(self) -> str:
        """The part after the slash, of what has one name."""
        (name,) = self.names
        return name

    @cached_property
    def deployment(self) -> Deployment:
        """The deployment file, checked."""
        return load_deployment(
            self.deployment_path, micro_batch=self.settings.aggregator_mode == "micro-batch"
        )

    def transport(self) -> KafkaTransport:
        """The logs of this deployment's Kafka."""
        return KafkaTransport(self.cluster, self.deployment.names)

    def fatal(self, why: str) -> NoReturn:
        """End the process now, from any thread (rule-7); fits ``on_fatal`` of a writer."""
        _log.critical("%s", why)
        leave(1)


def run(
    kind: str,
    main: Callable[[ProcessContext], None],
    argv: Sequence[str] | None = None,
    add_arguments: AddArguments | None = None,
    *,
    serves: str = "",
) -> NoReturn:
    """Run a process whose main is a function: it returns soon after ``stopping`` is set.

    ``serves`` is what it may have several names of (``STREAM``).
    """

    def guarded(context: ProcessContext) -> None:
        def on_signal(signum: int, _frame: FrameType | None) -> None:
            _stop_requested(context, signum)

        signal.signal(signal.SIGTERM, on_signal)
        signal.signal(signal.SIGINT, on_signal)
        main(context)

    _run(kind, guarded, argv, add_arguments, serves)


def run_async(
    kind: str,
    main: Callable[[ProcessContext, asyncio.Event], Coroutine[Any, Any, None]],
    argv: Sequence[str] | None = None,
    add_arguments: AddArguments | None = None,
) -> NoReturn:
    """Run a process whose main is a coroutine: it ends soon after its event is set."""

    async def guarded(context: ProcessContext) -> None:
        loop, stopping = asyncio.get_running_loop(), asyncio.Event()

        def on_signal(signum: int) -> None:
            _stop_requested(context, signum)
            stopping.set()

        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, on_signal, signum)
        await main(context, stopping)

    _run(kind, lambda context: asyncio.run(guarded(context)), argv, add_arguments)


def leave(code: int) -> NoReturn:
    """End this process now."""
    logging.shutdown()
    sys.stdout.flush()
    os._exit(code)


def exit_code_of(error: BaseException) -> int:
    """Which exit code an uncaught error ends a process with, after one line that tells it."""
    if isinstance(error, SlackwaterError):
        _log.error("%s", error)
        return error.exit_code
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    if isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        return exit_code_of(error.exceptions[0])
    _log.critical("a fault of ours: %r", error, exc_info=error)
    return 1


def _run(
    kind: str,
    main: Callable[[ProcessContext], None],
    argv: Sequence[str] | None,
    add_arguments: AddArguments | None,
    serves: str = "",
) -> NoReturn:
    parser = argument_parser(kind, serves)
    if add_arguments is not None:
        add_arguments(parser)
    arguments = parser.parse_args(argv)
    process = _process(kind, arguments.names)
    os.umask(UMASK)
    set_up_logging(process)
    faulthandler.enable()  # a segfault leaves a traceback in the log
    code = 0
    try:
        read = settings()
        set_up_logging(process, level=read.log_level_number)
        main(_context(kind, arguments, read))
    except BaseException as error:  # noqa: BLE001 -- the outermost frame: told, and turned into a code
        code = exit_code_of(error)
    leave(code)


def _process(kind: str, names: Sequence[str]) -> str:
    return kind if len(names) > 1 else f"{kind}/{names[0]}"


def argument_parser(kind: str, serves: str = "") -> argparse.ArgumentParser:
    """The arguments that all kinds share."""
    parser = argparse.ArgumentParser(
        prog=f"python -m slackwater.{kind}",
        description=f"One {kind} of a deployment; `slackwater up` starts it.",
    )
    parser.add_argument(
        "names",
        nargs="+" if serves else 1,
        metavar=serves or "NAME",
        help="the part of its name after the slash",
    )
    parser.add_argument("--deployment", type=Path, required=True, help="the deployment file")
    parser.add_argument(
        "--bootstrap",
        required=True,
        help="where the broker answers, host:port; how to get in: SLACKWATER_KAFKA_CONFIG",
    )
    parser.add_argument("--data-dir", type=Path, required=True, help="where spools and logs lie")
    return parser


def _context(kind: str, arguments: argparse.Namespace, read: Settings) -> ProcessContext:
    return ProcessContext(
        kind=kind,
        names=tuple(arguments.names),
        deployment_path=arguments.deployment,
        cluster=find_cluster(arguments.bootstrap, read.kafka_config, ROLES[kind]),
        data_dir=arguments.data_dir,
        settings=read,
        arguments=arguments,
    )


def _stop_requested(context: ProcessContext, signum: int) -> None:
    if context.stopping.is_set():
        leave(0)  # told twice: somebody is in a hurry
    _log.info("%s: stopping", signal.Signals(signum).name)
    context.stopping.set()
    threading.Thread(target=_leave_at_last, name="last-resort", daemon=True).start()


def _leave_at_last() -> None:
    threading.Event().wait(STOP_S_MAX)
    _log.warning("did not stop within %.1f s", STOP_S_MAX)
    leave(0)
