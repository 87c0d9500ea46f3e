"""Assigns fragments to processes after queries were added or removed at run time.

``fragments_to_hosts`` is pure: it assigns new fragments to hosts, and leaves all others where they
are. Replicas of one child never share a host (trace-19). A new start of ``up`` may place the same
fragments differently (``layout``); every placement that separates the replicas is correct.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from slackwater.machine.layout import Launch, aggregator_spec, host_spec
from slackwater.machine.supervisor import Supervisor
from slackwater.model.kinds import HOST, group_of, replica_of
from slackwater.model.names import AGGREGATOR, kind_of


def fragments_to_hosts(
    wanted: Iterable[str], present: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    """Return the fragments of each host, by the host's name; hosts may be new.

    Args:
        wanted: names of all fragments that are to run.
        present: the fragments that each host has.
    """
    wanted = list(wanted)
    placed = {host: [each for each in has if each in wanted] for host, has in present.items()}
    settled = {each for has in placed.values() for each in has}
    for fragment in wanted:
        if fragment not in settled:
            placed.setdefault(_host_for(fragment, placed), []).append(fragment)
    return placed


def _host_for(fragment: str, placed: Mapping[str, Sequence[str]]) -> str:
    """The host for a new fragment; it has no other replica of the fragment, and may be new.

    A replica prefers the host with its number. Otherwise the host with the fewest fragments is
    taken.
    """
    group, replica = group_of(fragment), replica_of(fragment)
    taken = {host for host, has in placed.items() if any(group == group_of(h) for h in has)}
    free = sorted(placed.keys() - taken, key=lambda host: (len(placed[host]), host))
    if replica is not None:
        own = f"{HOST}/{replica}"
        if own in free or not free:
            return own if own not in taken else _unused(placed)
    return free[0] if free else _unused(placed)


def _unused(placed: Mapping[str, Sequence[str]]) -> str:
    return next(name for n in range(len(placed) + 1) if (name := f"{HOST}/{n}") not in placed)


class Fragments:
    """Keeps the fragments of some queries running, in the processes of a supervisor."""

    def __init__(self, supervisor: Supervisor, launch: Launch) -> None:
        self._supervisor, self._launch = supervisor, launch

    async def settle_aggregators(self, wanted: Mapping[str, Sequence[str]]) -> None:
        """Run these aggregators with these fragments, and no others."""
        for name, fragments in wanted.items():
            spec = aggregator_spec(name, fragments, self._launch)
            if name in self._supervisor.processes():
                self._supervisor.serve(spec)
            else:
                await self._supervisor.start(spec)
        for name in self._of_kind(AGGREGATOR):
            if name not in wanted:
                await self._supervisor.end(name)

    def hosts(self) -> dict[str, list[str]]:
        """The fragments of each host, by its name."""
        return {
            host: [part for part in self._supervisor.parts(host) if part != host]
            for host in self._of_kind(HOST)
        }

    async def settle_hosts(self, wanted: Iterable[str]) -> None:
        """Run these fragments, and no others."""
        present = self.hosts()
        placed = fragments_to_hosts(wanted, present)
        # Fragments are removed first, so that none is ever in two hosts.
        for host, has in present.items():
            kept = [each for each in has if each in placed[host]]
            if kept != has:
                self._supervisor.serve(host_spec(host, kept, self._launch))
        for host, fragments in placed.items():
            if host not in present:
                await self._supervisor.start(host_spec(host, fragments, self._launch))
            elif fragments:
                self._supervisor.serve(host_spec(host, fragments, self._launch))
            else:
                await self._supervisor.end(host)

    def _of_kind(self, kind: str) -> list[str]:
        return [name for name in self._supervisor.processes() if kind_of(name) == kind]
