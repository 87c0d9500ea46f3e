"""``slackwater plan``: a deployment's resource needs, and advice where the machine lacks them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from slackwater.cli.common import emit, warn
from slackwater.deployment.parse import load_deployment
from slackwater.machine.plan import Machine, PlannedLoad, ResourcePlan, advice, plan
from slackwater.model.deployment import Deployment
from slackwater.model.errors import CheckFailed


def print_plan(
    deployment: Path, load: PlannedLoad, data_dir: Path, format_: str, site: str | None = None
) -> None:
    """Print the plan; ``CheckFailed`` if it does not fit this machine."""
    found, lacks, machine = needs(load_deployment(deployment, site=site), load, data_dir)
    if format_ == "json":
        emit(json.dumps(as_json(found, lacks, machine)))
    else:
        for line in as_text(found, lacks, load, machine):
            emit(line)
    if lacks:
        raise CheckFailed("this deployment does not fit this machine; see the advice above")


def needs(
    deployment: Deployment, load: PlannedLoad, data_dir: Path, *, own_broker: bool = True
) -> tuple[ResourcePlan, list[str], Machine]:
    """Return the plan, what it lacks on this machine, and the machine.

    Topics of another broker take no disk here.
    """
    found = plan(deployment, load, own_broker=own_broker)
    machine = Machine.this(data_dir)
    if not own_broker:
        machine = replace(machine, disk_free_bytes=math.inf)
    return found, advice(found, deployment, load, machine), machine


def warn_of(deployment: Deployment, data_dir: Path, *, own_broker: bool) -> None:
    """Warn about needs beyond this machine's resources, as ``plan`` has them by default."""
    load = PlannedLoad()
    _, lacks, _ = needs(deployment, load, data_dir, own_broker=own_broker)
    for line in lacks:
        warn(f"warning: {line}")
    if lacks:
        warn(f"warning: this is for {_of_load(load)}; `slackwater plan` computes it for others")


def _of_load(load: PlannedLoad) -> str:
    return f"{load.per_s:,.0f} readings/s of each stream, {load.keys:,} keys"


def as_text(
    found: ResourcePlan, lacks: Sequence[str], load: PlannedLoad, machine: Machine
) -> Iterator[str]:
    """Yield a table of the processes and their total needs."""
    yield _of_load(load)
    yield ""
    yield f"{'process':<20} {'fragments':>9} {'MB':>8} {'cores':>6}"
    for process in found.processes:
        fragments = process.fragments or ""
        yield (
            f"{process.name:<20} {fragments:>9} {process.memory_mb:>8,.0f} {process.cores:>6.2f}"
        )
    yield f"{'total':<20} {'':>9} {found.memory_mb:>8,.0f} {found.cores:>6.2f}"
    yield f"{'machine':<20} {'':>9} {machine.memory_mb:>8,.0f} {machine.cores:>6}"
    yield ""
    yield f"topics: {found.topics}, with {found.partitions} partitions"
    yield (
        f"disk: {found.disk_bytes_a_day / 1e9:,.2f} GB a day, at most"
        f" {found.disk_bytes_max / 1e9:,.1f} GB; {machine.disk_free_bytes / 1e9:,.0f} GB are free"
    )
    for line in lacks or ["the deployment fits this machine"]:
        yield f"-> {line}"


def as_json(found: ResourcePlan, lacks: Sequence[str], machine: Machine) -> dict[str, object]:
    """Return the plan as JSON."""
    sums = {"memory_mb": found.memory_mb, "cores": found.cores}
    return {**asdict(found), **sums, "machine": asdict(machine), "advice": list(lacks)}
