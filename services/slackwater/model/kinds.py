"""The kinds of fragments, one row each, in the order of their stages.

A proxy serves streams, orderers sort readings by time, aggregators compute deltas in Spark, mergers
merge them into panes, uplinks send these to a centre, roots answer, deliveries evaluate alerts.
What places, starts, sizes, prints, watches or rehearses fragments of any kind reads this table, and
so do deadlines and Kafka's access rules: a new kind is a new row.
``slackwater.host.app`` has the factories of those that hosts run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from slackwater.model.names import (
    AGGREGATOR,
    DELIVERY,
    MERGER,
    ONLY,
    ORDERER,
    PROXY,
    ROOT,
    UPLINK,
    DeliveryName,
    FragmentName,
    MergerName,
    OrdererName,
    ProxyName,
    RootName,
    UplinkName,
    copy_names,
    kind_of,
    own_name,
)

if TYPE_CHECKING:
    from slackwater.model.deployment import QuerySpec

BROKER: Final = "broker"
"""Name of the embedded broker's process."""
GATEWAY: Final = "gateway"
"""Name of the process that serves the page (`up --web`); it has no heartbeat."""
NOTIFIER: Final = "notifier"
"""Name of the process that sends alerts (`slackwater notify`, `up --notify`)."""
HOST: Final = "host"
"""Kind of the processes that run orderers, mergers, uplinks, roots and deliveries."""

StreamResource = Literal["source", "added", "input", "quarantine", "learned"]
"""Source logs; those of partitions that are added to a stream's topic (rule-30); the topics that
streams read; quarantine; what proxies record in the registry: values of ``expect_every: auto``,
numbers of logs."""
QueryResource = Literal[
    "ordered",
    "deltas",
    "merged",
    "state",
    "child state",
    "panes",
    "results",
    "results read",
    "alerts",
    "fence",
    "alert fence",
]
"""Logs; merged panes; state records of roots, and of orderers, which may be another query's; panes;
results, and those of the queries that a query reads; alerts; transactional ids, of parts (rule-27)
and of deliveries."""
Resource: TypeAlias = StreamResource | QueryResource | Literal["registry", "group", "own"]
"""What there is in Kafka to have access to, by what it is for: also the registry, the group ids
that Spark makes, and all topics of the deployment."""
Operation = Literal["Alter", "Create", "Delete", "Describe", "Read", "Write"]
"""Kafka's names; each includes ``Describe``, except ``Create``."""
Access: TypeAlias = Mapping[Operation, Sequence[Resource]]


@dataclass(frozen=True, slots=True)
class Cost:
    """Memory in MB, cores, CPU time in us for each reading, and memory of keys in bytes.

    ``bytes_a_key``: for each key that it numbers; ``pane_bytes_a_field``: beside them, for each
    field of a key in a pane (bench.keys, a million keys that return).
    """

    memory_mb: float = 0.0
    cores: float = 0.0
    us_a_reading: float = 0.0
    bytes_a_key: float = 0.0
    pane_bytes_a_field: float = 0.0


@dataclass(frozen=True, slots=True)
class ProcessKind:
    """A kind of process of a deployment on one machine."""

    name: str
    task: str
    """What it is, as a start prints it."""
    cost: Cost
    """That of a process without fragments; see ``machine/costs.py``."""
    is_jvm: bool = False
    """It can use several cores, and its fragments have no heartbeats of their own."""


_PROCESSES: Final = (
    ProcessKind(BROKER, "Kafka", Cost(300.0, 0.12), is_jvm=True),
    # With a topic: 120 MB are the scanner's compiler.
    ProcessKind(PROXY, "proxies, which write readings to Kafka", Cost(225.0, 0.01)),
    ProcessKind(AGGREGATOR, "aggregators (Spark)", Cost(600.0, 0.045), is_jvm=True),
    ProcessKind(HOST, "hosts, the processes in which orderers and roots run", Cost(100.0, 0.04)),
)
PROCESSES: Final[Mapping[str, ProcessKind]] = {each.name: each for each in _PROCESSES}


UPLINKS: Final = 2
"""Copies of each uplink."""
Groups: TypeAlias = tuple[tuple[str, ...], ...]
"""Full names of fragments. Those of one group are copies of each other: one of them suffices."""


def _orderers(query: QuerySpec) -> Groups:
    """The replicas of each child; a child that a site has is an empty group."""
    return tuple(
        tuple(
            OrdererName(query.child_query, child, r).process
            for r in range(0 if query.is_remote(child) else query.replicas)
        )
        for child in range(query.children)
    )


def _aggregated(query: QuerySpec) -> Groups:
    """A fragment beside each orderer; a query without a window needs none (trace-21)."""
    if query.window is None:
        return ()
    return tuple(
        tuple(f"{AGGREGATOR}/{own_name(name)}" for name in group) for group in _orderers(query)
    )


def _mergers(query: QuerySpec) -> Groups:
    return tuple(
        tuple(
            MergerName(query.name, child, copy).process
            for copy in range(0 if query.is_remote(child) else query.mergers)
        )
        for child in range(query.children if query.mergers else 0)
    )


def _uplinks(query: QuerySpec) -> Groups:
    """Two at a site with a Kafka of its own, for all of its children."""
    if query.uplink is None:
        return ()
    return (tuple(UplinkName(query.name, 0, copy).process for copy in range(UPLINKS)),)


def _roots(query: QuerySpec) -> Groups:
    return tuple(
        tuple(of.process for of in copy_names(query.name, part, query.copies))
        for part in range(query.parts)
    )


def _deliveries(query: QuerySpec) -> Groups:
    """One for all parts, if the query has alerts, or had some."""
    return ((DeliveryName(query.name).process,),) if query.delivers else ()


@dataclass(frozen=True, slots=True)
class FragmentKind:
    """A kind: its fragments, where they run, and what they need."""

    name: str
    """The first part of its fragments' names."""
    plural: str
    process: str
    """The kind of process that runs its fragments."""
    task: str
    """What its fragments do, as a start prints it."""
    parse: Callable[[str], FragmentName]
    """Parses the rest of a fragment's name; ``UsageError`` if it is none."""
    cost: Cost
    """That of a fragment."""
    access: Access
    """What it reads is its input."""
    groups: Callable[[QuerySpec], Groups] = lambda _: ()
    """Its fragments for a query."""
    is_shared: bool = False
    """Its fragments are those of children, which several queries may read."""
    follows: bool = False
    """Those of a new generation run only when the earlier one has ended (rule-29)."""
    has_deadline: bool = False
    """It waits for its input until a deadline (rule-15)."""
    reads_answers: bool = False
    """Its input are the answers, which do not wait for it."""
    spares_work: bool = False
    """Answers here do without it: none of them waits for it."""


_KINDS: Final = (
    FragmentKind(
        *(PROXY, "proxies", PROXY, "proxies, which write readings to Kafka", ProxyName.parse),
        # Input from a JSON topic: the lowest rate by CPU time in bench.json_input.
        cost=Cost(3.0, 0.005, 1 / 1.92),
        access={
            "Read": ("input", "source"),
            "Write": ("source", "quarantine", "learned"),
            "Create": ("added",),
        },
    ),
    FragmentKind(
        *(ORDERER, "orderers", HOST, "orderers, which sort readings by time", OrdererName.parse),
        # Slope of bench.pipeline's columns from 10,000 to 1,000,000 readings/s.
        cost=Cost(1.0, 0.0055, 0.19, bytes_a_key=260.0),
        access={
            "Describe": ("input",),
            "Read": ("source", "results read", "ordered", "state", "child state"),
            "Write": ("ordered", "child state"),
        },
        groups=_orderers,
        is_shared=True,
        has_deadline=True,
    ),
    FragmentKind(
        *(AGGREGATOR, "aggregators", AGGREGATOR, "aggregators (Spark)", OrdererName.parse),
        cost=Cost(5.0, 0.0035, 0.24),
        access={"Read": ("ordered", "state", "group"), "Write": ("deltas",)},
        groups=_aggregated,
        is_shared=True,
    ),
    FragmentKind(
        *(MERGER, "mergers", HOST, "mergers, which merge deltas into panes", MergerName.parse),
        cost=Cost(1.0, 0.008, bytes_a_key=330.0, pane_bytes_a_field=48.0),
        access={"Read": ("deltas", "merged", "state"), "Write": ("merged",)},
        groups=_mergers,
        spares_work=True,
    ),
    FragmentKind(
        *(UPLINK, "uplinks", HOST, "uplinks, which send merged panes on", UplinkName.parse),
        cost=Cost(15.0, 0.004),
        access={"Read": ("merged",)},
        groups=_uplinks,
        spares_work=True,
    ),
    FragmentKind(
        *(ROOT, "roots", HOST, "roots, which answer the queries", RootName.parse),
        cost=Cost(1.0, 0.008, bytes_a_key=330.0, pane_bytes_a_field=48.0),
        access={
            "Read": ("ordered", "deltas", "merged", "state", "panes"),
            # A root takes its placement number from the registry (rule-27).
            "Write": ("state", "panes", "registry", "fence", "results"),
        },
        groups=_roots,
        has_deadline=True,
    ),
    FragmentKind(
        *(DELIVERY, "deliveries", HOST, "deliveries, which evaluate alerts", DeliveryName.parse),
        cost=Cost(2.0, 0.005),
        access={
            "Read": ("results", "alerts"),
            # As a root it takes its placement number from the registry (rule-27).
            "Write": ("alerts", "registry", "alert fence"),
        },
        groups=_deliveries,
        follows=True,
        reads_answers=True,
    ),
)
KINDS: Final[Mapping[str, FragmentKind]] = {each.name: each for each in _KINDS}


def is_hosted(process: str) -> bool:
    """Return whether it is the name of a fragment that hosts run, many in one process."""
    return kind_of(process) in KINDS and KINDS[kind_of(process)].process == HOST


def parsed(process: str) -> FragmentName:
    """Return what a fragment's full name says; ``KeyError`` if it has no kind.

    Raises:
        UsageError: the kind has no fragments of this name.
    """
    return KINDS[kind_of(process)].parse(own_name(process))


def query_of(process: str) -> str:
    """Return the query of a fragment; empty for proxies and for other processes.

    Raises:
        UsageError: the kind has no fragments of this name.
    """
    name = parsed(process) if kind_of(process) in KINDS else None
    return "" if name is None or isinstance(name, ProxyName) else name.query


def replica_of(process: str) -> int | None:
    """Return the number of a fragment among its copies; None if it has only one."""
    name = parsed(process)
    if isinstance(name, MergerName | UplinkName | RootName) and name.copy != ONLY:
        return name.copy
    return name.replica if isinstance(name, OrdererName) else None


def group_of(process: str) -> str:
    """Return what the names of a fragment's copies begin with; its name if it has only one."""
    return process if replica_of(process) is None else process.rpartition(".")[0]


def deadlines_from(kind: str = "") -> int:
    """Return how many stages have a deadline, from this one, or the first, to the last."""
    waiting = [each.name for each in KINDS.values() if each.has_deadline]
    return len(waiting) - (waiting.index(kind) if kind else 0)
