"""The command ``rehearse``, and the function it shares with the demo."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from slackwater.cli.common import emit
from slackwater.cli.rehearse.local import LocalStage, process_names
from slackwater.cli.rehearse.plan import RehearsalPlan, make_plan
from slackwater.cli.rehearse.report import RehearsalOutcome
from slackwater.cli.rehearse.run import Rehearsal, Watcher, verify
from slackwater.deployment.parse import load_deployment
from slackwater.deployment.sharing import share
from slackwater.model.errors import EnvironmentProblem, UsageError
from slackwater.runtime.service.settings import settings


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the command line."""

    deployment: Path
    paths: Mapping[str, Path]
    out: Path
    speed: float
    wait_us: int
    duration_us: int | None = None
    faults: Sequence[str] = ()
    seed: int = 0
    report: Path | None = None
    data_dir: Path | None = None


def rehearse(options: Options, watcher: Watcher) -> RehearsalOutcome:
    """Plan, run and report. The data directory is kept if given, or if the rehearsal failed."""
    for name, path in (("--out", options.out), ("--report", options.report)):
        if path is not None and not path.absolute().parent.is_dir():
            raise UsageError(f"{name} {path}: there is no directory {path.absolute().parent}")
        if path is not None and path.is_dir():
            raise UsageError(f"{name} {path} is a directory: name a file")
    micro_batch = settings().aggregator_mode == "micro-batch"
    deployment = share(load_deployment(options.deployment, micro_batch=micro_batch))
    processes = process_names(deployment, options.paths)
    plan = make_plan(
        deployment,
        options.paths,
        speed=options.speed,
        duration_us=options.duration_us,
        faults=options.faults,
        seed=options.seed,
        processes=processes,
    )
    given = options.data_dir
    directory = Path(tempfile.mkdtemp(prefix="slackwater-rehearse-")) if given is None else given
    failed = True
    try:
        stage = LocalStage(plan, options.deployment, directory)
        run = Rehearsal(plan, stage, processes, options.out, options.wait_us, watcher)
        outcome = run.run()
        _write_report(options.report, outcome)
        failed = not outcome.ok
        return outcome
    finally:
        if given is None:
            if failed:
                emit(f"logs are kept in {directory}")
            else:
                shutil.rmtree(directory, ignore_errors=True)


def _write_report(path: Path | None, outcome: RehearsalOutcome) -> None:
    if path is None:
        return
    try:
        path.write_bytes(orjson.dumps(outcome.report, option=orjson.OPT_INDENT_2) + b"\n")
    except OSError as error:
        raise EnvironmentProblem(f"--report {path}: {error.strerror}") from error


def run_rehearse(**given: Any) -> None:
    """Run the command: progress lines, final counts, exit code 1 on disagreement."""
    options = Options(**given)
    outcome = rehearse(options, Progress())
    for line in summary(outcome):
        emit(line)
    verify(outcome)
    emit(
        "all results equal the batch computation, and no first answer exceeded its bound;"
        f" results in {options.out}"
    )


def summary(outcome: RehearsalOutcome) -> list[str]:
    """Return the report as lines."""
    lines = []
    for name, query in outcome.report["queries"].items():
        latency = query["latency_ms"]["all"]
        shown = (
            "no answer"
            if not latency["n"]
            else (
                f"first answers p50 {latency['p50']:.0f} ms, p99 {latency['p99']:.0f} ms,"
                f" max {latency['max']:.0f} ms after their normal time"
            )
        )
        lines.append(
            f"{name}: {query['windows']} windows, {query['n_tentative']} tentative;"
            f" {query['lost']} lost, {query['doubled']} doubled,"
            f" {query['uncorrected']} uncorrected, {query['wrong']} wrong,"
            f" {query['beyond_bound']} late{excused(query['excused'])}{seen_late(query)}; {shown}"
        )
    lines += [
        f"quarantine of {stream}: {', '.join(f'{n} {reason}' for reason, n in reasons.items())}"
        for stream, reasons in outcome.report["quarantine"].items()
        if any(reasons.values())
    ]
    return lines


def excused(windows: int) -> str:
    """Explain why fewer windows are late than ``latency_ms`` suggests."""
    return f" ({windows} more while a stage or the broker was down)" if windows else ""


def seen_late(query: Mapping[str, Any]) -> str:
    """Explain why ``latency_ms`` may exceed the bound although no window is late."""
    windows = query["seen_beyond_bound"] - query["beyond_bound"]
    return f" ({windows} more were committed in time, but read late here)" if windows else ""


class Progress:
    """Prints phases, faults, and progress every few seconds."""

    every_us = 5_000_000

    def __init__(self) -> None:
        self._begin = self._end = self._printed_at = 0
        self._counts: dict[str, int] = {}

    def began(self, plan: RehearsalPlan, anchor_wall: int) -> None:
        """Store the plan and the start of the replay."""
        self._begin, self._end = anchor_wall, plan.done_us(anchor_wall)
        self._printed_at = anchor_wall
        emit(f"... {plan.replay_us / 1e6:.1f} s of replay, anchored at {plan.start / 1e6:.6f}")

    def saw(self, record: dict[str, Any], seen_at: int) -> None:
        """Count the answers."""
        if record["kind"] == "boundary":
            label = record["label"]
            self._counts[label] = self._counts.get(label, 0) + record["windows"]

    def happened(self, text: str, at_us: int) -> None:
        """Print the begin or end of a fault."""
        emit(f"... {(at_us - self._begin) / 1e6:6.1f} s  {text}")

    def tick(self, now_us: int) -> None:
        """Print progress every few seconds."""
        if now_us - self._printed_at >= self.every_us:
            self._printed_at = now_us
            counts = ", ".join(f"{n} {label}" for label, n in self._counts.items()) or "no answer"
            end = (self._end - self._begin) / 1e6
            emit(f"... {(now_us - self._begin) / 1e6:6.1f} s of {end:.0f} s  {counts}")

    def phase(self, text: str) -> None:
        """Print the current phase."""
        emit(f"... {text}")
