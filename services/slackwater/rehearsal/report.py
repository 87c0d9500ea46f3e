"""Makes the report from the observations: actual faults, counts, latencies, one verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from slackwater.codec.results import format_time
from slackwater.deployment.fragments import stages
from slackwater.judge.bound import SLACK_US, Judged, Span, judge, outages
from slackwater.judge.check import Checker, Disturbance, Verdict
from slackwater.judge.check_rows import RowChecker
from slackwater.judge.latency import Commits, Latencies, latencies, percentiles
from slackwater.primitives.lateness import Lateness
from slackwater.rehearsal.load import out_of_cpu
from slackwater.rehearsal.plan import RehearsalPlan
from slackwater.rehearsal.stage import StageEvent
from slackwater.runtime.service.cpu import CpuLoad


@dataclass(slots=True)
class RehearsalOutcome:
    """A finished rehearsal: ``report`` is the JSON of ``--report``, ``findings`` explain it."""

    report: dict[str, Any]
    verdicts: dict[str, Verdict]
    findings: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether there are no findings."""
        return bool(self.report["ok"])


def start_line(plan: RehearsalPlan, anchor_wall: int) -> dict[str, Any]:
    """Return the first line of ``results.jsonl``: all values that determine ``due_at``, in seconds.

    Lateness learned during the run is written at the end, by ``lateness_lines``.
    """
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


def lateness_lines(query: str, lateness: Lateness) -> list[dict[str, Any]]:
    """Return the last lines: the event times from which a query had a greater lateness."""
    return [
        {"kind": "lateness", "query": query, "event": format_time(at), "lateness": us / 1e6}
        for at, us in lateness.steps
    ]


def disturbances(events: Iterable[StageEvent]) -> list[Disturbance]:
    """Return each fault, from its begin until the process was processing again.

    A fault ends when a process that was killed, stopped or ended is ready, a paused one is resumed,
    or a silenced stream sends again. Without such an event the fault has no end.
    """
    open_at: dict[tuple[str, bool], int] = {}
    found: list[Disturbance] = []
    for event in sorted(events, key=lambda event: event.at_us):
        of = (event.process, event.event in {"silenced", "heard"})
        if event.event in {"killed", "stopped", "paused", "silenced"} or event.event.startswith(
            "ended"
        ):
            open_at.setdefault(of, event.at_us)
        elif event.event in {"ready", "resumed", "heard"} and of in open_at:
            found.append(Disturbance(open_at.pop(of), event.at_us, *of))
    forever = 2**62
    return found + [Disturbance(at, forever, *of) for of, at in open_at.items()]


def make_outcome(
    plan: RehearsalPlan,
    anchor_wall: int,
    checkers: Mapping[str, Checker],
    events: Sequence[StageEvent],
    quarantine: Mapping[str, Mapping[str, int]],
    repeats: int,
    commits: Callable[[str], Commits],
    loads: Sequence[CpuLoad] = (),
) -> RehearsalOutcome:
    """Evaluate the run; ``commits`` is called for a query with answers observed late."""
    faults = disturbances(events)
    verdicts = {name: checker.finish() for name, checker in checkers.items()}
    findings = [sentence for verdict in verdicts.values() for sentence in verdict.findings]
    findings += _uncounted(plan, quarantine)
    if repeats:
        findings.append(f"doubled: {repeats} results were in the topics twice or out of order")
    found = {name: latencies(checker, faults) for name, checker in checkers.items()}
    judged, times = {}, {}
    for name, query in plan.deployment.queries.items():
        down = outages(faults, stages(query))
        judged[name], times[name] = _judge(checkers[name], found[name], down, commits)
    overload = out_of_cpu(loads, [span for each in judged.values() for span in each.overdue])
    findings += [] if overload is None else [overload.sentence()]
    findings += [line for name in judged for line in _too_late(checkers[name], judged[name])]
    queries = {
        name: _query(checkers[name], verdict, found[name], judged[name])
        | {"judged_ms": percentiles(times[name].ms[~np.isnan(times[name].ms)])}
        for name, verdict in verdicts.items()
    }
    report = {
        "ok": not findings and all(verdict.ok for verdict in verdicts.values()),
        "seed": plan.seed,
        "faults": [fault.text for fault in plan.faults],
        "queries": queries,
        "overloaded": None if overload is None else overload.to_json(),
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
    return RehearsalOutcome(report, verdicts, findings)


def _judge(
    checker: Checker, seen: Latencies, down: Sequence[Span], commits: Callable[[str], Commits]
) -> tuple[Judged, Latencies]:
    """Judge by the times observed, or by those of commits if an answer was observed after X.

    Also returns the latencies that the verdict is about.
    """
    as_seen = judge(checker, seen, down)
    if not (np.nan_to_num(seen.ms) * 1e3 > checker.expectations.bound).any():
        return as_seen, seen
    committed = latencies(checker, [], commits(checker.expectations.query))
    judged = judge(checker, committed, down)
    return replace(judged, seen_late=as_seen.late - judged.late), committed


def _too_late(checker: Checker, judged: Judged) -> list[str]:
    """Describe the windows beyond their bound: the number, and the worst, in order."""
    agreed = checker.expectations
    if not judged.late:
        return []
    bound = f"{agreed.bound / 1e6:g} s" + (
        f" (of {agreed.bound_of})" if agreed.bound_of not in {"", agreed.query} else ""
    )
    named = [
        f"late: {agreed.query} window {format_time(each.window_start)} was first answered"
        f" {each.late / 1e6:.3f} s after its normal time; {each.allowed / 1e6:.3f} s were allowed"
        for each in judged.worst
    ]
    total = (
        f"late: {judged.late} of {agreed.windows} windows of {agreed.query} were first answered"
        f" beyond their bound of {bound} and {SLACK_US // 1000} ms"
    )
    return [total, *named]


def _query(checker: Checker, verdict: Verdict, found: Latencies, judged: Judged) -> dict[str, Any]:
    """Return a query's section of the report. Delay_new is Proc_new less the clean median."""
    there = found.ms[~np.isnan(found.ms)]
    proc_new = round(float(there.max()), 3) if len(there) else None
    figures = found.figures()
    normal = figures["clean"]["p50"]
    return {
        "windows": verdict.windows,
        "rows": verdict.rows,
        "has_windows": not isinstance(checker, RowChecker),
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
        "bound_ms": checker.expectations.bound / 1e3,
        "bound_of": checker.expectations.bound_of,
        "beyond_bound": judged.late,
        "seen_beyond_bound": judged.late + judged.seen_late,
        "excused": judged.excused,
        "late_windows": [
            {
                "window_start": format_time(each.window_start),
                "late_ms": each.late / 1e3,
                "allowed_ms": each.allowed / 1e3,
            }
            for each in judged.worst
        ],
    }


def _uncounted(plan: RehearsalPlan, quarantine: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Check that unusable readings are counted, once each (guarantee-6)."""
    findings = []
    for name, sent in plan.inputs.items():
        given = quarantine.get(name, {})
        expected = {"late": len(sent.late)}
        if plan.limit is None:
            # With ``--duration`` the number of malformed lines "sent" is undefined.
            expected["malformed"] = sent.malformed
        findings += [
            f"quarantine: {given.get(reason, 0)} {reason} readings of {name}, not {count}"
            for reason, count in expected.items()
            if given.get(reason, 0) != count
        ]
    return findings
