"""The place of `slackwater up`: a machine with a broker of its own, and a user's file.

The streams of the user's file have proxies from the start on, also if no query reads them. As on a
node, processes read a file that is written from the record, so that a user can edit the other one
while they run. Fragments take their placement numbers from the registry in Kafka: there is one
machine, and a data directory can be lost while Kafka is kept; numbers of a new record would then be
smaller than those in the state records, and roots would refuse them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from slackwater.deployment.stored import to_text
from slackwater.machine.background import Background
from slackwater.machine.placed_proxies import PlacedProxies
from slackwater.machine.processes import Processes
from slackwater.model.deployment import Deployment
from slackwater.registration.begins import Begins
from slackwater.registration.registering import Registering
from slackwater.registration.truncation import Truncation
from slackwater.runtime.security.private import write_atomically
from slackwater.runtime.service.placements import Placements
from slackwater.runtime.service.registry import QueryDefinition


@dataclass(frozen=True, slots=True)
class HowToRegister:
    """What is particular to the registration of a stack's queries.

    Attributes:
        path: the user's deployment file.
        declared: what it has; its queries are registered without their streams.
        input_partitions: number of partitions with which missing input topics are created; None if
            they are created by others.
        speed: of a rehearsal, how many times faster than the wall its clock is, and no clock is
            published; None for live data.
    """

    path: Path
    declared: Deployment
    input_partitions: int | None
    speed: float | None = None


class StackPlace:
    """Where the processes of a stack run; the stack begins and ends them.

    Args:
        processes: those of the stack.
        file: the file that they read.
        how: how queries are registered.
        take: takes in the recorded queries and the names of the paused ones, and returns them with
            all streams, those of the user's file too.
    """

    def __init__(
        self,
        processes: Processes,
        file: Path,
        how: HowToRegister,
        take: Callable[[Deployment, Collection[str]], Deployment],
    ) -> None:
        self.prefix = ""
        self.numbers: Placements | None = None
        self._processes, self._file, self._how, self._take = processes, file, how, take
        self._proxies = PlacedProxies(processes.supervisor, processes.launch, "")
        self._registering: Registering | None = None

    @property
    def definitions(self) -> Mapping[str, QueryDefinition]:
        """All registered queries as last read, deleted ones too; empty at first."""
        return {} if self._registering is None else self._registering.definitions

    def open(self) -> Processes:
        """Return the processes: the stack has been opened."""
        return self._processes

    async def close(self) -> None:
        """Do nothing: the stack stops itself, and runs on if the agent fails."""

    def begin(self, deployment: Deployment, background: Background) -> Processes:
        """See ``Place``."""
        return self._processes

    def take(self, deployment: Deployment, paused: Collection[str]) -> None:
        """See ``Place``: the file is written."""
        write_file(self._file, self._take(deployment, paused), self._how.path.parent)

    async def settle_proxies(self, assigned: Collection[str], deployment: Deployment) -> None:
        """See ``Place``; those of the user's file run in any case."""
        of_file = self._how.declared
        streams = {**deployment.streams, **of_file.streams}
        declared = [name.process for s in of_file.streams.values() for name in s.proxy_names]
        wanted = dict.fromkeys([*declared, *assigned])
        await self._proxies.settle(wanted, replace(deployment, streams=streams))

    def registering(self, truncation: Truncation, begins: Begins) -> Registering:
        """See ``Place``."""
        how, processes = self._how, self._processes
        self._registering = Registering(
            *(processes.transport, processes.listener, how.path, truncation, begins),
            declared=how.declared.queries,
            input_partitions=how.input_partitions,
            speed=how.speed,
        )
        return self._registering


def write_file(file: Path, deployment: Deployment, folder: Path) -> None:
    """Write what processes read, unless it is written; names of files in it are made absolute.

    ``folder`` is that of the user's file, to which they are relative.
    """
    http = deployment.http
    streams = {
        name: stream
        if stream.http is None
        else replace(
            stream,
            http=replace(stream.http, token_file=_absolute(stream.http.token_file, folder)),
        )
        for name, stream in deployment.streams.items()
    }
    listen = replace(
        http,
        certificate_file=_absolute(http.certificate_file, folder),
        key_file=_absolute(http.key_file, folder),
    )
    text = to_text(replace(deployment, streams=streams, http=listen))
    if not (file.exists() and file.read_text() == text):
        write_atomically(file, text)


def _absolute(name: str | None, folder: Path) -> str | None:
    return None if name is None else str(folder.resolve() / name)
