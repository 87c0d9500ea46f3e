"""The command ``rehearse``, and the function it shares with the demo."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson
from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as RichProgress

from slackwater.cli.common import emit, warn
from slackwater.cli.tables import short_time
from slackwater.cli.terminals import repaints
from slackwater.codec.results import format_time
from slackwater.deployment.parse import load_deployment
from slackwater.deployment.sharing import share
from slackwater.deployment.sites import check_all_here
from slackwater.judge.bound import SLACK_US
from slackwater.machine.paths import java_executable
from slackwater.machine.starting import READY
from slackwater.machine.web import WebAddress
from slackwater.model.errors import EnvironmentProblem, UsageError
from slackwater.rehearsal.local import LocalStage, process_names
from slackwater.rehearsal.plan import RehearsalPlan, make_plan
from slackwater.rehearsal.report import RehearsalOutcome
from slackwater.rehearsal.run import Rehearsal, Watcher, verify
from slackwater.runtime.service.settings import settings

BAR_COLUMNS: Final = 24
EARLY: Final = " (negative: before it, since the inputs had ended)"


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
    web: WebAddress | None = None


def rehearse(options: Options, watcher: Watcher) -> RehearsalOutcome:
    """Plan, run and report. The data directory is kept if given, or after a failure."""
    for name, path in (("--out", options.out), ("--report", options.report)):
        if path is not None and not path.absolute().parent.is_dir():
            raise UsageError(f"{name} {path}: there is no directory {path.absolute().parent}")
        if path is not None and path.is_dir():
            raise UsageError(f"{name} {path} is a directory: name a file")
    java_executable()  # before the files, which may be large
    micro_batch = settings().aggregator_mode == "micro-batch"
    deployment = share(load_deployment(options.deployment, micro_batch=micro_batch))
    check_all_here(deployment, options.deployment, "a rehearsal has one")
    processes = process_names(deployment, options.paths)
    watcher.phase("reading the files")
    plan = make_plan(
        deployment,
        options.paths,
        speed=options.speed,
        duration_us=options.duration_us,
        faults=options.faults,
        seed=options.seed,
        processes=processes,
    )
    for line in plan.barely_read():
        warn(f"slackwater: {line}")
    given = options.data_dir
    directory = Path(tempfile.mkdtemp(prefix="slackwater-rehearse-")) if given is None else given
    failed = True
    try:
        stage = LocalStage(plan, options.deployment, directory, options.web)
        run = Rehearsal(plan, stage, processes, options.out, options.wait_us, watcher)
        outcome = run.run()
        _write_report(options.report, outcome)
        failed = not outcome.ok
        return outcome
    except KeyboardInterrupt:
        failed = False
        raise
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
    with progress() as watcher:
        outcome = rehearse(options, watcher)
    for line in summary(outcome):
        emit(line)
    verify(outcome)
    emit(
        "all results equal the batch computation, and no first answer exceeded its bound by"
        f" {SLACK_US // 1000} ms; results in {options.out}"
    )


def summary(outcome: RehearsalOutcome) -> list[str]:
    """Return the report as lines."""
    lines = []
    for name, query in outcome.report["queries"].items():
        latency, rows = query["judged_ms"], query["rows"]
        shown = (
            "no answer"
            if not latency["n"]
            else (
                f"first answers p50 {latency['p50']:.0f} ms, p99 {latency['p99']:.0f} ms,"
                f" max {latency['max']:.0f} ms after their normal time"
                + (EARLY if latency["p50"] < -0.5 else "")
            )
        )
        what = "windows" if query["has_windows"] else "buckets of readings"
        counted = f"{rows} row{'' if rows == 1 else 's'}" if rows else "no row"
        lines.append(
            f"{name}: {counted} in {query['windows']} {what}, {query['n_tentative']} tentative;"
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
    """Prints phases, faults, and progress every few seconds, as lines."""

    every_us = 2_500_000

    def __init__(self, emit: Callable[[str], None] = emit) -> None:
        self._emit = emit
        self._begin = self._end = self._printed_at = 0
        self._counts: dict[str, int] = {}

    def began(self, plan: RehearsalPlan, anchor_wall: int) -> None:
        """Store the plan and the start of the replay."""
        self._begin, self._end = anchor_wall, plan.done_us(anchor_wall)
        self._printed_at = anchor_wall
        begins = short_time(format_time(plan.start))
        self._emit(f"... {plan.replay_us / 1e6:.1f} s of replay; readings begin at {begins}")

    def saw(self, record: dict[str, Any], seen_at: int) -> None:
        """Count the answers."""
        if record["kind"] == "boundary":
            label = record["label"]
            self._counts[label] = self._counts.get(label, 0) + record["windows"]

    def happened(self, text: str, at_us: int) -> None:
        """Print the begin or end of a fault."""
        self._emit(f"... {(at_us - self._begin) / 1e6:6.1f} s  {text}")

    def tick(self, now_us: int) -> None:
        """Print progress every few seconds."""
        if now_us - self._printed_at >= self.every_us:
            self._printed_at = now_us
            end = (self._end - self._begin) / 1e6
            self._emit(f"... {(now_us - self._begin) / 1e6:6.1f} s of {end:.0f} s  {self.counts}")

    def phase(self, text: str) -> None:
        """Print the current phase."""
        self._emit(f"... {text}")

    def waits(self, text: str) -> None:
        """Print what the start waits for."""
        self._emit(f"... {text}")

    @property
    def counts(self) -> str:
        """How many windows have been answered, by label."""
        return ", ".join(f"{n} {label}" for label, n in self._counts.items()) or "no answer"


class Bar(Progress):
    """A progress bar on a terminal, with an estimate of the end; phases and faults stay above it.

    The replay takes as long as its readings; the last windows are answered some seconds later.
    """

    def __init__(self, console: Console) -> None:
        super().__init__(partial(console.print, markup=False, highlight=False))
        self._bar = RichProgress(
            TextColumn("{task.description}", markup=False),
            BarColumn(BAR_COLUMNS),
            TextColumn("{task.fields[note]}", markup=False),
            console=console,
            transient=True,
        )
        self._task = self._bar.add_task("starting", total=None, note="")

    def __enter__(self) -> Bar:
        """Draw the bar from now on, also while nothing happens."""
        self._bar.start()
        return self

    def __exit__(self, *details: object) -> None:
        """Remove the bar; the lines above it stay."""
        self._bar.stop()

    def began(self, plan: RehearsalPlan, anchor_wall: int) -> None:
        """Set the length of the bar."""
        super().began(plan, anchor_wall)
        total = max(1, self._end - self._begin)
        self._bar.update(self._task, description="replaying", total=total, completed=0)

    def tick(self, now_us: int) -> None:
        """Move the bar."""
        done_us = max(0, now_us - self._begin)
        left_us = self._end - now_us
        left = (
            f"about {left_us / 1e6:.0f} s left" if left_us > 0 else "waiting for the last answers"
        )
        self._bar.update(self._task, completed=done_us, note=f"{left}  {self.counts}")

    def phase(self, text: str) -> None:
        """Show the current phase beside the bar, and a stage that is ready above it."""
        if text.startswith(READY):
            super().phase(text)
        elif text != "replaying":
            self._bar.update(self._task, description=text, total=None, note="")

    def waits(self, text: str) -> None:
        """Show beside the bar what the start waits for."""
        self._bar.update(self._task, note=text)


def progress() -> AbstractContextManager[Progress]:
    """The bar on a terminal, else lines."""
    console = Console()
    return Bar(console) if repaints(console) else nullcontext(Progress())
