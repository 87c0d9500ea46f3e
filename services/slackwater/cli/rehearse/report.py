"""From what was seen to the report: faults as they happened, counts, latencies, one verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from slackwater.cli.rehearse.plan import Plan
from slackwater.cli.rehearse.stage import Event
from slackwater.client.check import Checker, Disturbance, Latencies, Verdict, latencies
from slackwater.codec.results import format_time


@dataclass(slots=True)
class Outcome:
    """A finished rehearsal: ``report`` is the JSON of ``--report``, ``findings`` explain it."""

    report: dict[str, Any]
    verdicts: dict[str, Verdict]
    findings: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Everything agreed."""
        return bool(self.report["ok"])


def start_line(plan: Plan, anchor_wall: int) -> dict[str, Any]:
    """The first line of ``results.jsonl``: all that ``due_at`` follows from, in seconds."""
    deployment = plan.deployment
    return {
        "kind": "start",
        "wall": format_time(anchor_wall),
        "event": format_time(plan.start),
        "speed": plan.speed,
        "disorder": {name: deployment.streams[name].disorder_us / 1e6 for name in plan.inputs},
        "lateness": {name: deployment.lateness_us(name) / 1e6 for name in deployment.queries},
        "bound": {name: deployment.bound_us(name) / 1e6 for name in deployment.queries},
    }


def disturbances(events: Iterable[Event]) -> list[Disturbance]:
    """Each fault from its beginning until the process did its work again.

    A killed process is back when it is ready, a paused one when it goes on, a silenced stream when
    it is heard. One that never came back disturbs to the end of time.
    """
    open_at: dict[str, int] = {}
    found: list[Disturbance] = []
    for event in sorted(events, key=lambda event: event.at_us):
        if event.event in {"killed", "paused", "silenced", "ended"}:
            open_at.setdefault(event.process, event.at_us)
        elif event.event in {"ready", "resumed", "heard"} and event.process in open_at:
            start = open_at.pop(event.process)
            found.append(Disturbance(start, event.at_us, event.process == "broker"))
    forever = 2**62
    found += [Disturbance(at, forever, process == "broker") for process, at in open_at.items()]
    return found


def make_outcome(
    plan: Plan,
    anchor_wall: int,
    checkers: Mapping[str, Checker],
    events: Sequence[Event],
    quarantine: Mapping[str, Mapping[str, int]],
    repeats: int,
) -> Outcome:
    """Judge what was seen."""
    faults = disturbances(events)
    verdicts = {name: checker.finish() for name, checker in checkers.items()}
    findings = [sentence for verdict in verdicts.values() for sentence in verdict.findings]
    findings += _uncounted(plan, quarantine)
    if repeats:
        findings.append(f"doubled: {repeats} results were in the topics twice or out of order")
    queries = {
        name: _query(checkers[name], verdict, latencies(checkers[name], faults))
        for name, verdict in verdicts.items()
    }
    report = {
        "ok": not findings and all(verdict.ok for verdict in verdicts.values()),
        "seed": plan.seed,
        "faults": [fault.text for fault in plan.faults],
        "queries": queries,
        "quarantine": {stream: dict(reasons) for stream, reasons in quarantine.items()},
        "events": [
            {
                "at_s": round((event.at_us - anchor_wall) / 1e6, 3),
                "wall": format_time(event.at_us),
                "process": event.process,
                "event": event.event,
            }
            for event in events
        ],
        "findings": findings,
    }
    return Outcome(report, verdicts, findings)


def _query(checker: Checker, verdict: Verdict, found: Latencies) -> dict[str, Any]:
    """One query of the report. Delay_new: Proc_new less what is normal, the clean median."""
    there = found.ms[~np.isnan(found.ms)]
    proc_new = round(float(there.max()), 3) if len(there) else None
    figures = found.figures()
    normal = figures["clean"]["p50"]
    bound_ms = checker.terms.bound / 1e3
    return {
        "windows": verdict.windows,
        "n_tentative": verdict.n_tentative,
        "proc_new_ms": proc_new,
        "delay_new_ms": (
            None if proc_new is None or normal is None else round(proc_new - normal, 3)
        ),
        "latency_ms": figures,
        "lost": verdict.lost,
        "doubled": verdict.doubled,
        "uncorrected": verdict.uncorrected,
        "wrong": verdict.wrong,
        "undone": verdict.undone,
        "bound_ms": bound_ms,
        "beyond_bound": int(np.sum(found.judged & (np.nan_to_num(found.ms) > bound_ms))),
    }


def _uncounted(plan: Plan, quarantine: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Readings that cannot be used are counted, once each (guarantee 6)."""
    findings = []
    for name, sent in plan.inputs.items():
        given = quarantine.get(name, {})
        expected = {"late": len(sent.late)}
        if plan.limit is None:
            # Of a replay that was cut nobody can say how many malformed lines were "sent".
            expected["malformed"] = sent.malformed
        findings += [
            f"quarantine: {given.get(reason, 0)} {reason} readings of {name}, not {count}"
            for reason, count in expected.items()
            if given.get(reason, 0) != count
        ]
    return findings
