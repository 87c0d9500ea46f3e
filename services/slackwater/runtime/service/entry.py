"""The common main of every process: arguments, logging, signals, and termination.

A process ends in one of three ways. On SIGTERM or Ctrl-C its main may shut down in order, within a
time limit. On a failure it logs one line with the reason and exits with the code of the kind of
error, and its supervisor restarts it. Nothing is repaired in place, because a restart is the path
that is tested most. Or it is killed, which is the same for other processes.

In the first two cases the interpreter exits at once: a thread that hangs in a client library must
not keep a process alive that other processes consider dead.
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
from typing import Any, NoReturn

from slackwater.deployment.parse import load_deployment
from slackwater.deployment.stored import SUFFIX, read_stored
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
"""Time for an orderly shutdown after the first signal."""

AddArguments = Callable[[argparse.ArgumentParser], None]


@dataclass(frozen=True)
class ProcessContext:
    """The arguments and settings of a process; ``stopping`` is set when it is to stop.

    ``process`` is the full name (``host/0``), ``names`` the part after the slash. A process that
    serves several streams has all their names, and its full name is its kind. ``arguments`` holds
    the options of its kind.
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
        """The full name, as in the supervisor and the log."""
        return _process(self.kind, self.names)

    @property
    def name(self) -> str:
        """The part after the slash, for a process with one name."""
        (name,) = self.names
        return name

    @cached_property
    def deployment(self) -> Deployment:
        """The checked content of the deployment file, or of the file that a node has written."""
        if self.deployment_path.suffix == SUFFIX:
            return read_stored(self.deployment_path)
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
    """Run a process whose main is a function that returns soon after ``stopping`` is set.

    ``serves`` is the metavariable of its names if it may have several (``STREAM``).
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
    """Run a process whose main is a coroutine that ends soon after its event is set."""

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
    """The exit code for an uncaught error, which is logged in one line."""
    if isinstance(error, SlackwaterError):
        _log.error("%s", error)
        return error.exit_code
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    if isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        return exit_code_of(error.exceptions[0])
    _log.critical("internal error: %r", error, exc_info=error)
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
    except BaseException as error:  # noqa: BLE001 -- the outermost frame: logged, and turned into a code
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
        help="name of the process without its kind",
    )
    parser.add_argument("--deployment", type=Path, required=True, help="the deployment file")
    parser.add_argument(
        "--bootstrap",
        required=True,
        help="address of the broker, host:port; credentials: SLACKWATER_KAFKA_CONFIG",
    )
    parser.add_argument("--data-dir", type=Path, required=True, help="directory of spools and logs")
    return parser


def _context(kind: str, arguments: argparse.Namespace, read: Settings) -> ProcessContext:
    return ProcessContext(
        kind=kind,
        names=tuple(arguments.names),
        deployment_path=arguments.deployment,
        cluster=find_cluster(arguments.bootstrap, read.kafka_config, Role(kind)),
        data_dir=arguments.data_dir,
        settings=read,
        arguments=arguments,
    )


def _stop_requested(context: ProcessContext, signum: int) -> None:
    if context.stopping.is_set():
        leave(0)  # a second signal: exit at once
    _log.info("%s: stopping", signal.Signals(signum).name)
    context.stopping.set()
    threading.Thread(target=_leave_after_limit, name="last-resort", daemon=True).start()


def _leave_after_limit() -> None:
    threading.Event().wait(STOP_S_MAX)
    _log.warning("did not stop within %.1f s", STOP_S_MAX)
    leave(0)
