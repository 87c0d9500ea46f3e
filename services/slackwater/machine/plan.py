"""Computes the resource plan of a deployment: processes with memory and CPU, topics, disk. Pure.

The processes and their fragments are those of the layout; their costs are measured
(``machine.costs``). A deployment file does not contain the rates of its streams: these are a
``PlannedLoad``, whose default is an order of magnitude. CPU is that of normal operation; a catch-up
after a failure uses all available CPU.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from slackwater.deployment.children import planned
from slackwater.deployment.sharing import share
from slackwater.machine import costs
from slackwater.machine.launchers import ProcessSpec
from slackwater.machine.layout import Launch, fragment_specs, proxy_specs
from slackwater.model.deployment import Deployment, QuerySpec
from slackwater.model.kinds import BROKER, KINDS, PROCESSES, Cost
from slackwater.model.names import DeliveryName, FragmentName, ProxyName, RootName, kind_of
from slackwater.registration.topics import topic_specs

DAY_S: Final = 86_400
CORES_SHARE_MAX: Final = 0.7
"""With more, queues grow, and a restarted process has no CPU left for its catch-up."""
MEMORY_SHARE_MAX: Final = 0.8
"""The rest is for the operating system and for the page cache from which the broker reads."""
SHORT_BOUND_US: Final = 1_000_000
_NOWHERE: Final = Launch(Path("-"), "-", Path("-"))


@dataclass(frozen=True, slots=True)
class PlannedLoad:
    """Readings per second of each stream, and keys per window."""

    per_s: float = 100.0
    keys: int = 100


@dataclass(frozen=True, slots=True)
class Machine:
    """The resources of a machine."""

    cores: int
    memory_mb: float
    disk_free_bytes: float

    @classmethod
    def this(cls, data_dir: Path) -> Machine:
        """Return this machine; the disk is that of the data directory or of its closest parent."""
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        existing = next(path for path in (data_dir, *data_dir.absolute().parents) if _is_seen(path))
        return cls(os.cpu_count() or 1, memory / 1e6, shutil.disk_usage(existing).free)


def _is_seen(path: Path) -> bool:
    """Return whether a path exists; False below a directory without the right to search it."""
    try:
        return path.exists()
    except PermissionError:
        return False


@dataclass(frozen=True, slots=True)
class PlannedProcess:
    """One process, its number of fragments, and the resources that it needs."""

    name: str
    fragments: int
    memory_mb: float
    cores: float


@dataclass(frozen=True, slots=True)
class ResourcePlan:
    """The resources that a deployment needs under a load."""

    processes: tuple[PlannedProcess, ...]
    topics: int
    partitions: int
    disk_bytes_a_day: float
    disk_bytes_max: float
    """Disk usage once retention deletes as much as is written."""

    @property
    def memory_mb(self) -> float:
        """Memory of all processes."""
        return sum(process.memory_mb for process in self.processes)

    @property
    def cores(self) -> float:
        """Cores of all processes."""
        return sum(process.cores for process in self.processes)


def plan(deployment: Deployment, load: PlannedLoad, *, own_broker: bool = True) -> ResourcePlan:
    """Return the plan; queries are assumed to be new, and input topics to have one partition."""
    deployment = share(deployment)
    specs = [*proxy_specs(deployment, _NOWHERE), *fragment_specs(deployment, _NOWHERE)]
    processes = [
        PlannedProcess("supervisor", 0, costs.SUPERVISOR.memory_mb, costs.SUPERVISOR.cores)
    ]
    if own_broker:
        processes.append(_broker(deployment, load))
    processes += [_process(spec, deployment, load) for spec in specs]
    topics = topic_specs(deployment, dict.fromkeys(_fed(deployment), 1))
    a_day, kept = _disk(deployment, load)
    return ResourcePlan(
        tuple(processes), len(topics), sum(topic.partitions for topic in topics), a_day, kept
    )


def advice(
    found: ResourcePlan, deployment: Deployment, load: PlannedLoad, machine: Machine
) -> list[str]:
    """Return what does not fit the machine, with advice; empty if everything fits."""
    return [
        *_for_memory(found, deployment, load, machine),
        *_for_cores(found, deployment, load, machine),
        *_for_children(deployment, load),
        *_for_disk(found, machine),
    ]


# Computation of the plan.


def _process(spec: ProcessSpec, deployment: Deployment, load: PlannedLoad) -> PlannedProcess:
    kind, fragments = kind_of(spec.name), _fragments(spec)
    base = PROCESSES[kind].cost
    memory_mb, cores = base.memory_mb, base.cores
    for fragment in fragments:
        of, _, name = fragment.rpartition("/")
        row = KINDS[of or kind]
        parsed = row.parse(name)
        memory_mb += row.cost.memory_mb + 1e-6 * _key_bytes(row.cost, parsed, deployment, load)
        cores += row.cost.cores + 1e-6 * _work_us(row.cost, parsed, deployment, load)
    return PlannedProcess(spec.name, len(fragments), memory_mb, cores)


def _fragments(spec: ProcessSpec) -> Sequence[str]:
    """Return the fragments of a process: its parts, those of its command line, or itself."""
    if spec.parts:
        return spec.parts
    if "--fragments" in spec.command:
        return spec.command[spec.command.index("--fragments") + 1].split(",")
    return (spec.name,)


def _key_bytes(cost: Cost, name: FragmentName, deployment: Deployment, load: PlannedLoad) -> float:
    """Return the memory of the keys of a window, of which a child may have all, and their panes."""
    if not cost.bytes_a_key or isinstance(name, ProxyName):
        return 0.0
    query = deployment.queries[name.query]
    each = cost.bytes_a_key
    if query.window is not None:
        panes = query.children * -(-query.window.size_us // query.window.slide_us)
        each += cost.pane_bytes_a_field * len(deployment.output_fields(query)) * panes
    return each * load.keys / (query.parts if isinstance(name, RootName) else 1)


def _work_us(cost: Cost, name: FragmentName, deployment: Deployment, load: PlannedLoad) -> float:
    """Return the CPU time in us per second for the readings of a fragment."""
    if isinstance(name, ProxyName):
        return cost.us_a_reading * load.per_s / len(deployment.streams[name.stream].proxy_names)
    query = deployment.queries[name.query]
    if isinstance(name, DeliveryName):
        return costs.DELIVERY_US_A_ROW * _rows_per_s(query, load)
    if isinstance(name, RootName):
        return costs.ROOT_US_A_KEY * _rows_per_s(query, load) / query.parts
    return cost.us_a_reading * _child_per_s(deployment, query, name.child, load)


def _child_per_s(deployment: Deployment, query: QuerySpec, child: int, load: PlannedLoad) -> float:
    """Return the readings per second of a child: of its streams and of queries that it reads."""
    logs = planned(deployment, query)
    return sum(
        logs.share_of(child, source)
        * (
            _rows_per_s(deployment.queries[source], load)
            if source in deployment.queries
            else load.per_s
        )
        for source in logs.streams_of(child)
    )


def _rows_per_s(query: QuerySpec, load: PlannedLoad) -> float:
    if query.window is None:
        return load.per_s * len(query.sources)
    return load.keys * 1e6 / query.window.slide_us


def _broker(deployment: Deployment, load: PlannedLoad) -> PlannedProcess:
    base = PROCESSES[BROKER].cost
    memory_mb, cores = base.memory_mb, base.cores
    logs = [load.per_s for stream in deployment.streams.values() if not stream.elsewhere]
    for query in deployment.queries.values():
        if not query.has_children:
            continue
        for child in range(query.children):
            if query.is_remote(child):
                continue
            per_s = _child_per_s(deployment, query, child, load)
            # Each replica writes all readings to its stable log, normally none to its live log.
            logs += [per_s, 0.0] * query.replicas
        if query.window is not None:
            # Each replica of each child writes deltas of each part; they hold no readings.
            logs += [0.0] * (query.parts * query.children * query.replicas)
    cores += costs.BROKER_A_LOG * len(logs) + 1e-6 * costs.BROKER_US_A_READING * sum(logs)
    return PlannedProcess(BROKER, 0, memory_mb, cores)


def _fed(deployment: Deployment) -> list[str]:
    """Return the streams that are fed by a topic."""
    return [name for name, stream in deployment.streams.items() if stream.topic is not None]


def _disk(deployment: Deployment, load: PlannedLoad) -> tuple[float, float]:
    """Return bytes per day and in total, without the internal logs, which are truncated."""
    names = deployment.names
    fed = dict.fromkeys(_fed(deployment), 1)
    kept_days = {
        topic.name: float(topic.config.get("retention.ms", 0)) / 1000 / DAY_S
        for topic in topic_specs(deployment, fed)
    }
    a_day = kept = 0.0
    for name, stream in deployment.streams.items():
        if stream.elsewhere:
            continue
        log = names.source(f"{name}.0" if stream.topic is not None else name)
        reading = costs.READING_BYTES + costs.FIELD_BYTES * len(stream.fields)
        grows = DAY_S * (costs.CUTS_PER_S * costs.RECORD_BYTES + load.per_s * reading)
        a_day, kept = a_day + grows, kept + grows * kept_days[log]
    for query in deployment.queries.values():
        grows = DAY_S * _rows_per_s(query, load) * costs.ROW_BYTES
        a_day += grows
        kept += grows * kept_days[names.results(query.name, "stable")]
    return a_day, kept


# Computation of the advice.


def _for_memory(
    found: ResourcePlan, deployment: Deployment, load: PlannedLoad, machine: Machine
) -> Iterator[str]:
    allowed = MEMORY_SHARE_MAX * machine.memory_mb
    if found.memory_mb <= allowed:
        return
    yield (
        f"memory: the plan needs {found.memory_mb:,.0f} MB, and the machine has"
        f" {machine.memory_mb:,.0f} MB, of which at most {MEMORY_SHARE_MAX:.0%} should be used"
    )
    saved = found.memory_mb - _of_single(found, deployment, load).memory_mb
    if saved > 0:
        yield (
            f"`replicas: 1` in all queries needs {saved:,.0f} MB less, but then answers wait for"
            " the restart of an aggregator that dies"
        )


def _for_cores(
    found: ResourcePlan, deployment: Deployment, load: PlannedLoad, machine: Machine
) -> Iterator[str]:
    allowed = CORES_SHARE_MAX * machine.cores
    if found.cores <= allowed:
        return
    yield (
        f"CPU: normal operation needs {found.cores:.1f} cores, and the machine has {machine.cores},"
        f" of which at most {CORES_SHARE_MAX:.0%} should be used"
    )
    saved = found.cores - _of_single(found, deployment, load).cores
    if saved > 0:
        yield f"`replicas: 1` in all queries needs {saved:.1f} cores less, but masks no failure"
    short = [q.name for q in deployment.queries.values() if q.bound_us < SHORT_BOUND_US]
    if short:
        yield f"a `bound` below 1 s will be missed on such a machine: {', '.join(short)}"


def _for_children(deployment: Deployment, load: PlannedLoad) -> Iterator[str]:
    for query in deployment.queries.values():
        per_s = [
            0.0 if query.is_remote(c) else _child_per_s(deployment, query, c, load)
            for c in range(query.children)
        ]
        if max(per_s) > costs.CHILD_READINGS_PER_S_MAX:
            wanted = -(-sum(per_s) // costs.CHILD_READINGS_PER_S_MAX)
            yield (
                f"query {query.name}: {max(per_s):,.0f} readings/s for one orderer, which sustains"
                f" {costs.CHILD_READINGS_PER_S_MAX:,}: use `children: {wanted:.0f}`, if it has as"
                " many logs"
            )


def _for_disk(found: ResourcePlan, machine: Machine) -> Iterator[str]:
    if found.disk_bytes_max <= machine.disk_free_bytes:
        return
    days = machine.disk_free_bytes / found.disk_bytes_a_day
    yield (
        f"disk: topics grow to {found.disk_bytes_max / 1e9:,.0f} GB before retention limits them,"
        f" and {machine.disk_free_bytes / 1e9:,.0f} GB are free: full after {days:,.0f} days"
    )


def _of_single(found: ResourcePlan, deployment: Deployment, load: PlannedLoad) -> ResourcePlan:
    """Return the plan with one replica of everything, with a broker if ``found`` has one."""
    own_broker = any(process.name == BROKER for process in found.processes)
    return plan(single(deployment), load, own_broker=own_broker)


def single(deployment: Deployment) -> Deployment:
    """Return the deployment with one replica of everything."""
    queries = {name: replace(q, replicas=1) for name, q in deployment.queries.items()}
    return replace(deployment, queries=queries)
