"""Determines whether answers were late for lack of CPU, and which processes lacked it.

Only the time in which an answer was overdue is examined: a busy machine whose answers are in time
is not a finding. A process is out of CPU in a second in which its threads waited for a core, or in
which its single computing thread (Python's) used a whole core and needed more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from slackwater.judge.bound import Span
from slackwater.runtime.service.cpu import CpuLoad, CpuShare, is_starved

BUSY_MIN: Final = 0.95
NAMED_MAX: Final = 3
REPORTED_MIN: Final = 0.05
"""Minimum share of the machine that is reported."""


@dataclass(frozen=True, slots=True)
class Starved:
    """A process out of CPU: for how many seconds, and its share of CPU meanwhile."""

    process: str
    seconds: float
    share: CpuShare

    def phrase(self) -> str:
        """The text for a finding."""
        return f"{self.process} {self.share.phrase()}, for {self.seconds:.0f} s"


@dataclass(frozen=True, slots=True)
class MachineOverload:
    """The machine while answers were overdue, and the processes that lacked CPU, worst first.

    ``others`` is the part of ``busy`` used by processes outside the rehearsal.
    """

    seconds: float
    busy: float
    stolen: float
    others: float
    starved: tuple[Starved, ...]

    def sentence(self) -> str:
        """The text of the finding."""
        who = "; ".join(each.phrase() for each in self.starved[:NAMED_MAX])
        others = f", {self.others:.0%} by other programs" if self.others >= REPORTED_MIN else ""
        stolen = f", {self.stolen:.0%} taken by its host" if self.stolen >= REPORTED_MIN else ""
        machine = f"the machine was {self.busy:.0%} busy for {self.seconds:.0f} s{others}{stolen}"
        return f"overloaded: {who}; {machine}" if who else f"overloaded: {machine}"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON for the report."""
        return {
            "seconds": round(self.seconds, 3),
            "machine_busy": round(self.busy, 4),
            "machine_stolen": round(self.stolen, 4),
            "machine_others": round(self.others, 4),
            "processes": [
                {
                    "process": each.process,
                    "seconds": round(each.seconds, 3),
                    "used_cores": round(each.share.used, 4),
                    "waited_s_per_s": round(each.share.waited, 4),
                }
                for each in self.starved
            ],
        }


def out_of_cpu(loads: Iterable[CpuLoad], overdue: Sequence[Span]) -> MachineOverload | None:
    """Return the overload while answers were overdue; None if there was enough CPU."""
    met = [load for load in loads if _meets(load, overdue)]
    seconds = sum(load.lasted_s for load in met)
    if not seconds:
        return None
    busy = sum(load.busy * load.lasted_s for load in met) / seconds
    stolen = sum(load.stolen * load.lasted_s for load in met) / seconds
    others = sum(load.others * load.lasted_s for load in met) / seconds
    names = dict.fromkeys(name for load in met for name in load.processes)
    starved = [each for each in (_starved(name, met) for name in names) if each is not None]
    if not starved and busy < BUSY_MIN:
        return None
    worst_first = sorted(starved, key=lambda each: (-round(each.seconds), -each.share.waited))
    return MachineOverload(seconds, busy, stolen, others, tuple(worst_first))


def _starved(process: str, loads: Iterable[CpuLoad]) -> Starved | None:
    demanding = [
        (load.lasted_s, load.processes[process])
        for load in loads
        if process in load.processes and is_starved(process, load.processes[process])
    ]
    seconds = sum(lasted_s for lasted_s, _ in demanding)
    if not seconds:
        return None
    used = sum(lasted_s * share.used for lasted_s, share in demanding) / seconds
    waited = sum(lasted_s * share.waited for lasted_s, share in demanding) / seconds
    return Starved(process, seconds, CpuShare(used, waited))


def _meets(load: CpuLoad, spans: Sequence[Span]) -> bool:
    begin = load.at_us - round(load.lasted_s * 1e6)
    return any(start < load.at_us and end > begin for start, end in spans)
