"""The processes of a deployment on one machine, with their command lines. Pure.

A deployment has one proxy for all streams, and additional proxies for streams that declare
several. Its hosts and aggregators are those of ``deployment/fragments.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from slackwater.deployment.fragments import placed
from slackwater.machine.launchers import ProcessSpec
from slackwater.model.deployment import Deployment
from slackwater.model.kinds import HOST
from slackwater.model.names import AGGREGATOR, PROXY, ProxyName, own_name

# Proxies stop first, so that no more input arrives; then the other processes; the broker is last.
STOP_FIRST: Final = 0
_STOP_THEN: Final = 1


@dataclass(frozen=True, slots=True)
class Launch:
    """The parameters of the command lines; ``proxy_options`` are for proxies only, and so on."""

    deployment_path: Path
    bootstrap: str
    data_dir: Path
    proxy_options: Sequence[str] = ()
    aggregator_options: Sequence[str] = ()
    python: str = sys.executable
    kafka_config: Path | None = None
    host_options: Sequence[str] = ()

    @property
    def environment(self) -> Mapping[str, str]:
        """Environment of the processes; unlike arguments, it is not visible to other users.

        The first variable is empty if there is no file, so that a process does not use an inherited
        one for another cluster. The second is empty since the inherited health file belongs to the
        process that starts these.
        """
        return {
            "SLACKWATER_KAFKA_CONFIG": str(self.kafka_config or ""),
            "SLACKWATER_HEALTH_FILE": "",
        }


def proxy_specs(deployment: Deployment, launch: Launch) -> list[ProcessSpec]:
    """Return the proxy, which serves all streams, and those that share topics with it.

    Process n serves the share n of each stream with more than n proxies.
    """
    served: dict[int, list[ProxyName]] = {}
    for stream in deployment.streams.values():
        for name in stream.proxy_names:
            served.setdefault(name.share, []).append(name)
    return [
        proxy_spec(proxy_process(share), names, deployment, launch)
        for share, names in sorted(served.items())
    ]


def proxy_process(share: int) -> str:
    """Return the name of the process that serves this share of all streams that have it."""
    return f"{PROXY}/{share}" if share else PROXY


def proxy_spec(
    process: str, served: Sequence[ProxyName], deployment: Deployment, launch: Launch
) -> ProcessSpec:
    """Return a process that serves these streams of a deployment."""
    streams = {name.stream for name in served}
    options = _of_streams(launch.proxy_options, deployment, streams)
    return ProcessSpec(
        process,
        _command("slackwater.proxy", tuple(map(str, served)), launch, ("--commands", *options)),
        STOP_FIRST,
        env=launch.environment,
        parts=tuple(name.process for name in served),
    )


def _of_streams(
    options: Sequence[str], deployment: Deployment, streams: Collection[str]
) -> list[str]:
    """Return a proxy's options without those that name another stream (``--input room-1=F``)."""
    elsewhere = deployment.streams.keys() - streams
    kept: list[str] = []
    for option in options:
        if option.partition("=")[0] in elsewhere and kept:
            kept.pop()
        else:
            kept.append(option)
    return kept


def fragment_specs(
    deployment: Deployment, launch: Launch, paused: Collection[str] = ()
) -> list[ProcessSpec]:
    """Return the aggregators and hosts; aggregators are first, since they start slowest.

    ``paused``: names of queries that exist and do not run.
    """
    aggregators, hosts = (placed(kind, deployment, paused) for kind in (AGGREGATOR, HOST))
    return [
        *(aggregator_spec(at, [*map(own_name, has)], launch) for at, has in aggregators.items()),
        *(host_spec(at, has, launch) for at, has in hosts.items()),
    ]


def aggregator_spec(name: str, fragments: Sequence[str], launch: Launch) -> ProcessSpec:
    """Return an aggregator with these fragments; commands can change them."""
    options = ("--fragments", ",".join(fragments), "--commands", *launch.aggregator_options)
    spec = _spec(name, "slackwater_spark.app", launch, options)
    return replace(spec, fragments=tuple(fragments), takes_commands=True)


def host_spec(name: str, fragments: Sequence[str], launch: Launch, *options: str) -> ProcessSpec:
    """Return a host with these fragments; commands can change them."""
    options = ("--fragments", ",".join(fragments), "--commands", *launch.host_options, *options)
    spec = _spec(name, "slackwater.host", launch, options, tuple(fragments))
    return replace(spec, takes_commands=True)


def _spec(
    process: str,
    module: str,
    launch: Launch,
    options: Sequence[str] = (),
    parts: tuple[str, ...] = (),
) -> ProcessSpec:
    name = own_name(process)
    command = _command(module, (name,), launch, options)
    return ProcessSpec(process, command, _STOP_THEN, env=launch.environment, parts=parts)


def _command(
    module: str, names: Sequence[str], launch: Launch, options: Sequence[str]
) -> tuple[str, ...]:
    where = ("--bootstrap", launch.bootstrap, "--data-dir", str(launch.data_dir))
    what = ("--deployment", str(launch.deployment_path))
    return (launch.python, "-m", module, *names, *what, *where, *options)
