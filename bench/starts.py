"""A first start as its user sees it: when lines are printed, and whether first answers are in time.

``up`` begins with an empty data directory and runs for a minute: two streams of which nothing is
sent, and a topic without a reading. Columns: seconds until all processes are ready; the longest
time without a line until then; first answers in the minute; how many of them were tentative, how
many UNDO and REC_DONE were written, and how many answers exceeded X, counted from the normal time
(``due_at``); the longest time of a first answer after its normal time, and, of those windows only
that ended after all was ready, after the window's end. A second table has the CPU seconds of
each kind of process until then: a start is work for the cores, so on a slower machine all of it
takes longer.

For ``rehearse`` and ``demo`` it prints the longest time without a line of output in a pipe.

Run with ``python -m bench.starts [--runs 3] [--seconds 60] [--commands up,rehearse,demo]``; prints
Markdown.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil
from bench.idle import cpu_s

SLACKWATER: Final = Path(sys.executable).with_name("slackwater")
READY: Final = "processes are ready"
START_S_MAX: Final = 300.0
RUN_S_MAX: Final = 600.0
X_US: Final = 2_000_000
LATENESS_US: Final = 100_000
DEPLOYMENT: Final = """\
apiVersion: slackwater/v1
clock: wall
streams:
  room-1: {key: {value: hall}, time: {column: ts, unit: ms}, fields: [temperature], disorder: 100ms}
  room-2: {key: {value: hall}, time: {column: ts, unit: ms}, fields: [temperature], disorder: 100ms}
  lab:
    topic: {name: lab-readings, format: json}
    key: {field: mote}
    time: {field: at, unit: us}
    fields: [temperature]
    disorder: 100ms
    sporadic: true
queries:
  climate:
    from: [room-1, room-2, lab]
    window: {size: 1m, slide: 2s}
    aggregate: [count, avg]
    bound: 2s
"""


@dataclass
class Lines:
    """Lines of a command's output with the times (s, monotonic) at which they were read."""

    began_s: float
    found: list[tuple[float, str]] = field(default_factory=list)

    def follow(self, process: subprocess.Popen[str]) -> None:
        """Read until the output ends."""
        assert process.stdout is not None
        for line in process.stdout:
            self.found.append((time.monotonic() - self.began_s, line.rstrip()))

    def at(self, text: str) -> float | None:
        """Seconds until the first line with this text; None if there is none."""
        return next((at_s for at_s, line in list(self.found) if text in line), None)

    def silence(self, until_s: float) -> tuple[float, str]:
        """The longest time without a line before ``until_s``, and the line before it."""
        seen = [(0.0, "the start"), *(each for each in self.found if each[0] < until_s)]
        ends = [at_s for at_s, _ in seen[1:]] + [until_s]
        return max((end - at_s, line) for (at_s, line), end in zip(seen, ends, strict=True))


@contextlib.contextmanager
def running(words: Sequence[str], folder: Path) -> Iterator[tuple[Lines, subprocess.Popen[str]]]:
    """Run a command of slackwater and read its output; interrupt it at the end."""
    command = [str(SLACKWATER), *words]
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    lines = Lines(time.monotonic())
    reading = threading.Thread(target=lines.follow, args=[process], daemon=True)
    reading.start()
    try:
        yield lines, process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(60)
        reading.join(10)


def wait_until(is_so: Callable[[], bool], within_s: float) -> None:
    """Wait for a condition; end the program after ``within_s``."""
    give_up = time.monotonic() + within_s
    while not is_so():
        if time.monotonic() > give_up:
            raise SystemExit("it did not happen in time")
        time.sleep(0.1)


def up_row(folder: Path, seconds: float) -> tuple[str, Mapping[str, float]]:
    """One first start, as a line of the table, and the CPU seconds until all was ready."""
    (folder / "rooms.yaml").write_text(DEPLOYMENT)
    with running(["up", "rooms.yaml"], folder) as (lines, process):
        wait_until(lambda: lines.at(READY) is not None, START_S_MAX)
        started = psutil.Process(process.pid)
        spent = cpu_s([started, *started.children(recursive=True)])
        ready_s, ready_us = lines.at(READY), time.time() * 1e6
        assert ready_s is not None
        silent_s, before = lines.silence(ready_s)
        time.sleep(max(0.0, seconds - ready_s))
        printed = subprocess.run(
            [str(SLACKWATER), "results", "climate", "--format", "jsonl"],
            cwd=folder, stdout=subprocess.PIPE, check=True, text=True,
        ).stdout  # fmt: skip
    records = [json.loads(line) for line in printed.splitlines()]
    cells = [
        f"{ready_s:.1f}",
        f"{silent_s:.1f} (after: {before[:50]})",
        *counted(records, ready_us),
    ]
    return "| " + " | ".join(cells) + " |", spent


def counted(records: Sequence[dict[str, Any]], ready_us: float) -> list[str]:
    """The cells of a start's first answers."""
    firsts: dict[str, dict[str, Any]] = {}
    for record in records:
        if record["kind"] == "boundary":
            firsts.setdefault(record["window_start"], record)
    after_us = [_us(each["emitted_at"]) - _us(each["due_at"]) for each in firsts.values()]
    late = sum(each > X_US for each in after_us)
    of_ready = [
        _us(each["emitted_at"]) - _us(each["window_end"]) - LATENESS_US
        for each in firsts.values()
        if _us(each["window_end"]) > ready_us
    ]
    kinds = [record["kind"] for record in records]
    tentative = sum(each["label"] == "tentative" for each in firsts.values())
    worst = max(after_us, default=0) / 1e6
    worst_ready = max(of_ready, default=0) / 1e6
    return [
        str(len(firsts)), str(tentative), str(kinds.count("undo")), str(kinds.count("rec_done")),
        str(late), f"{worst:.2f}", f"{worst_ready:.2f}",
    ]  # fmt: skip


def _us(text: str) -> float:
    return dt.datetime.fromisoformat(text).timestamp() * 1e6


def silent_row(name: str, words: Sequence[str], folder: Path) -> str:
    """The longest time without a line of a command that ends by itself."""
    with running(words, folder) as (lines, process):
        process.wait(RUN_S_MAX)
        lasted_s = time.monotonic() - lines.began_s
    silent_s, before = lines.silence(lasted_s)
    return f"| {name} | {lasted_s:.0f} | {silent_s:.1f} | {before[:70]} |"


def rehearsal(folder: Path) -> list[str]:
    """Write a deployment and two files of readings; return the words of the command."""
    (folder / "rooms.yaml").write_text(
        DEPLOYMENT.split("  lab:")[0]
        + """\
queries:
  climate:
    from: [room-1, room-2]
    window: {size: 1m, slide: 10s}
    aggregate: [count, avg]
    bound: 2s
"""
    )
    began_ms = 1_700_000_000_000
    for room in ("1", "2"):
        rows = [f"{began_ms + 1_000 * n},{20 + n % 7}" for n in range(1_200)]
        (folder / f"room-{room}.csv").write_text("\n".join(["ts,temperature", *rows]) + "\n")
    return ["rehearse", "--deployment", "rooms.yaml", "--speed", "60", "--out", "results.jsonl",
            "--input", "room-1=room-1.csv", "--input", "room-2=room-2.csv",
            "--fault", "at=5s silence room-2 for 8s"]  # fmt: skip


def main() -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--commands", default="up,rehearse,demo")
    options = parser.parse_args()
    wanted = options.commands.split(",")
    if "up" in wanted:
        print("| ready s | longest silence s | first answers | tentative | undo | rec_done | late"
              " | worst s after due | worst s of windows that ended after ready |")  # fmt: skip
        print("|" + "---|" * 9, flush=True)
        costs = []
        for _ in range(options.runs):
            with tempfile.TemporaryDirectory(prefix="slackwater-starts-") as folder:
                row, spent = up_row(Path(folder), options.seconds)
                costs.append(spent)
                print(row, flush=True)
        kinds = sorted({kind for spent in costs for kind in spent})
        print(f"\n| {' | '.join(kinds)} | all |\n|" + "---|" * (len(kinds) + 1))
        for spent in costs:
            cells = [f"{spent.get(kind, 0.0):.1f}" for kind in kinds]
            print(f"| {' | '.join(cells)} | {sum(spent.values()):.1f} |", flush=True)
    others: dict[str, Callable[[Path], list[str]]] = {
        "rehearse": rehearsal,
        "demo": lambda _folder: ["demo"],
    }
    if chosen := [name for name in others if name in wanted]:
        print("\n| command | lasted s | longest silence s | after the line |\n|---|---|---|---|")
        for name in chosen:
            with tempfile.TemporaryDirectory(prefix="slackwater-starts-") as made:
                print(silent_row(name, others[name](Path(made)), Path(made)), flush=True)


if __name__ == "__main__":
    main()
