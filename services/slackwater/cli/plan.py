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


def print_plan(deployment: Path, load: PlannedLoad, data_dir: Path, format_: str) -> None:
    """Print the plan; ``CheckFailed`` if it does not fit this machine."""
    checked = load_deployment(deployment)
    machine = Machine.this(data_dir)
    found = plan(checked, load)
    lacks = advice(found, checked, load, machine)
    if format_ == "json":
        emit(json.dumps(as_json(found, lacks, machine)))
    else:
        for line in as_text(found, lacks, load, machine):
            emit(line)
    if lacks:
        raise CheckFailed("this deployment does not fit this machine; see the advice above")


def warn_of(deployment: Deployment, data_dir: Path, *, own_broker: bool) -> None:
    """Warn about needs beyond this machine's resources under the default load.

    Disk is excluded: results grow with the number of keys, which is unknown.
    """
    load = PlannedLoad()
    found = plan(deployment, load, own_broker=own_broker)
    machine = replace(Machine.this(data_dir), disk_free_bytes=math.inf)
    for line in advice(found, deployment, load, machine):
        warn(f"warning: {line}")


def as_text(
    found: ResourcePlan, lacks: Sequence[str], load: PlannedLoad, machine: Machine
) -> Iterator[str]:
    """Yield a table of the processes and their total needs."""
    yield f"{load.per_s:,.0f} readings/s of each stream, {load.keys:,} keys"
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
