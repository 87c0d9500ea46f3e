"""``slackwater demo``: four rooms of a real building, one of which stops sending.

The readings are those of four wireless nodes in an office (Room Climate Datasets, location A), in
their original order with their irregular times, at sixty times the speed. One node is cut off for
longer than the bound. The demo is a rehearsal with a live table: the same run, the same checks.
"""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.live import Live

from slackwater.cli.common import emit
from slackwater.cli.rehearse import Options, rehearse
from slackwater.cli.screen import Board, PlainLines, render
from slackwater.cli.terminals import repaints
from slackwater.cli.web import choose_web
from slackwater.machine.paths import home
from slackwater.model.durations import parse_duration_us
from slackwater.model.errors import EnvironmentProblem, UsageError
from slackwater.rehearsal.plan import RehearsalPlan
from slackwater.rehearsal.report import RehearsalOutcome
from slackwater.rehearsal.run import Watcher
from slackwater.runtime.service.clock import SystemClock

DATA: Final = Path("tests/data/room_climate")
ROOMS: Final = ("room-1", "room-2", "room-3", "room-4")
SPEED: Final = 60.0
MINUTES: Final = 32
SILENT: Final = "at=8s silence room-2 for 9s"
QUERY: Final = "climate"
FRAME_US: Final = 100_000

DEPLOYMENT: Final = """\
apiVersion: slackwater/v1
clock: wall
streams:
{streams}
queries:
  climate:
    from: [room-1, room-2, room-3, room-4]
    window: {{size: 1m}}            # a second of this demo, which runs sixty times as fast
    aggregate: [count, avg, min, max]
    bound: 2s                     # X: the longest wait for a silent room
    replicas: 1                   # no process is killed here; a second copy only delays the start
"""
STREAM: Final = (
    "  {room}: {{key: {{value: {room}}}, time: {{column: ts, unit: ms}},"
    " fields: [temperature, humidity]}}"
)


def run_demo(keep: Path | None, web: str | None = None) -> bool:
    """Run the demo, with a page if ``web`` is not None; return whether all results agreed."""
    source = home() / DATA
    if not source.is_dir():
        raise EnvironmentProblem(f"the demo's data is missing: {source} is part of the repository")
    if keep is not None:
        _make_room(keep)
    page = choose_web(web)
    folder = Path(tempfile.mkdtemp(prefix="slackwater-demo-"))
    try:
        paths = first_minutes(source, folder, MINUTES)
        deployment = folder / "rooms.yaml"
        deployment.write_text(DEPLOYMENT.format(streams="\n".join(_streams())))
        console = Console()
        watcher = Screen(console) if repaints(console) else _plain()
        introduce(emit)
        if page is not None:
            emit(f"The page is at {page.url} until the demo ends.")
        with watcher if isinstance(watcher, Screen) else _Nothing():
            outcome = rehearse(
                Options(
                    deployment=deployment,
                    paths=paths,
                    out=folder / "results.jsonl",
                    speed=SPEED,
                    wait_us=parse_duration_us("40s"),
                    faults=(SILENT,),
                    report=folder / "report.json",
                    web=page,
                ),
                watcher,
            )
        for finding in outcome.findings:
            emit(f"  {finding}")
        emit(last_line(outcome))
        if keep is not None:
            shutil.copytree(folder, keep, dirs_exist_ok=True)
            emit(f"results and report are in {keep}")
        return outcome.ok
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _make_room(keep: Path) -> None:
    """Create the directory for the results, before the demo runs for a minute."""
    try:
        keep.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"--keep {keep}: not a directory, and cannot be created: {error.strerror}"
        ) from error
    if not os.access(keep, os.W_OK | os.X_OK):
        raise UsageError(f"--keep {keep}: not writable")


def introduce(notify: Any) -> None:
    """Print what the demo shows."""
    notify("Four rooms send temperatures measured in March 2016, at sixty times their speed, so a")
    notify("window of one minute is answered each second. Room 2 is cut off for 9 s. After X = 2 s")
    notify("windows are answered without it. When it returns they are undone and made exact.")


def last_line(outcome: RehearsalOutcome) -> str:
    """Return a line with the result of the check."""
    climate = outcome.report["queries"][QUERY]
    checker = outcome.verdicts[QUERY]
    return (
        f"checked {climate['windows']} windows against a batch computation over the same readings:"
        f" {climate['n_tentative']} tentative, {checker.undone} undone,"
        f" {climate['lost']} lost, {climate['doubled']} doubled,"
        f" {climate['uncorrected']} uncorrected, {climate['wrong']} wrong"
    )


def first_minutes(source: Path, folder: Path, minutes: int) -> dict[str, Path]:
    """Copy the beginning of each node's file, so that a demo of a minute does not read weeks."""
    paths = {}
    for number, room in enumerate(ROOMS, start=1):
        paths[room] = folder / f"{room}.csv"
        with (
            gzip.open(source / f"node-{number}.csv.gz", "rt") as lines,
            paths[room].open("w") as file,
        ):
            file.write(next(lines))
            end = None
            for line in lines:
                at = int(line.partition(",")[0])
                end = at + minutes * 60_000 if end is None else end
                if at > end:
                    break
                file.write(line)
    return paths


def _streams() -> list[str]:
    return [STREAM.format(room=room) for room in ROOMS]


def _board() -> Board:
    return Board(QUERY, parse_duration_us("1m"), ("temperature", "avg"))


def _plain() -> Watcher:
    return PlainLines(_board(), ROOMS, emit)


class _Nothing:
    """A context manager without effect."""

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, *details: object) -> None:
        """Do nothing."""


class Screen:
    """A live table in a terminal."""

    def __init__(self, console: Console) -> None:
        self._board = _board()
        self._live = Live(console=console, auto_refresh=False, transient=False)
        self._clock = SystemClock()
        self._note = ""
        self._title = "starting"
        self._begin = self._length = 0
        self._drawn = 0

    def __enter__(self) -> Screen:
        """Start the live display."""
        self._live.start()
        return self

    def __exit__(self, *details: object) -> None:
        """Stop the live display; the last frame stays."""
        self._draw(self._clock.now_us() + 10_000_000)
        self._live.stop()

    def began(self, plan: RehearsalPlan, anchor_wall: int) -> None:
        """Set the scale of the progress bar."""
        self._begin, self._length = anchor_wall, max(1, plan.done_us(anchor_wall) - anchor_wall)
        self._title = "average temperature of each minute, in degrees Celsius"

    def saw(self, record: dict[str, Any], seen_at: int) -> None:
        """Store a record for the next frame."""
        self._board.apply(record, seen_at)
        if record["kind"] == "rec_done":
            self._note = "REC_DONE: every tentative answer has been replaced by the exact one"

    def happened(self, text: str, at_us: int) -> None:
        """Show the begin or end of a fault."""
        silent = text.startswith("silence")
        self._note = "room-2 is cut off" if silent else "room-2 is connected again: catching up"

    def tick(self, now_us: int) -> None:
        """Redraw, ten times a second."""
        if now_us - self._drawn >= FRAME_US:
            self._draw(now_us)

    def phase(self, text: str) -> None:
        """Show the current phase while there are no results."""
        if text != "replaying":
            self._note = text
        self._draw(self._clock.now_us())

    def waits(self, text: str) -> None:
        """Show what the start waits for."""
        self.phase(text)

    def _draw(self, now_us: int) -> None:
        self._drawn = now_us
        done = (now_us - self._begin) / self._length if self._length else 0.0
        picture = render(
            self._board, ROOMS, self._title, self._note, min(1.0, max(0.0, done)), now_us
        )
        self._live.update(picture, refresh=True)
