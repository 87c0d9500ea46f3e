"""The kinds of fragments, one row each, in the order of their stages.

A proxy serves streams, orderers sort readings by time, aggregators compute deltas in Spark, roots
answer. What prints, starts, watches or rehearses fragments of any kind reads this table, so that a
new kind is a new row. ``slackwater.host.app`` has the factories of those that hosts run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from slackwater.model.names import FragmentName, OrdererName, RootName

BROKER: Final = "broker"
"""Name of the embedded broker's process."""
PROXY: Final = "proxy"
"""Kind of the processes that serve streams, and name of the one that serves all."""
ORDERER: Final = "orderer"
AGGREGATOR: Final = "aggregator"
ROOT: Final = "root"
HOST: Final = "host"
"""Kind of the processes that run orderers and roots."""


@dataclass(frozen=True, slots=True)
class FragmentKind:
    """A kind: what its fragments are called, and where they run."""

    name: str
    """The first part of its fragments' names."""
    plural: str
    process: str
    """The kind of process that runs its fragments."""
    task: str
    """What its fragments do, as a start says it."""
    parse: Callable[[str], FragmentName] | None = None
    """Parses the rest of the name of a fragment that hosts run."""


KINDS: Final[Mapping[str, FragmentKind]] = {
    each.name: each
    for each in (
        FragmentKind(PROXY, "proxies", PROXY, "proxies, which write readings to Kafka"),
        FragmentKind(
            ORDERER, "orderers", HOST, "orderers, which sort readings by time", OrdererName.parse
        ),
        FragmentKind(AGGREGATOR, "aggregators", AGGREGATOR, "aggregators (Spark)"),
        FragmentKind(ROOT, "roots", HOST, "roots, which answer the queries", RootName.parse),
    )
}
HOSTED: Final[Mapping[str, Callable[[str], FragmentName]]] = {
    each.name: each.parse for each in KINDS.values() if each.parse is not None
}
"""The kinds whose fragments hosts run, many in one process, with the parsers of their names."""
PROCESSES: Final = (*dict.fromkeys(each.process for each in KINDS.values()), BROKER)
"""The kinds of processes of a deployment on one machine."""
