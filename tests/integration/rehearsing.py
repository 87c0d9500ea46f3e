"""Shared by the tests of rehearsals: real rooms, the command, and its output.

A run starts a broker, Spark and all processes, replays real files, and checks itself; tests examine
the exit code, the report, and the lines of ``results.jsonl``.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from tests.support.halt_witness import Witness

DATA = Path(__file__).parents[1] / "data"
ROOMS = {f"room-{i}": DATA / "room_climate" / f"node-{i}.csv.gz" for i in (1, 2, 3, 4)}

REHEARSED_S_MAX = 800
WAIT = ("--wait", "300s")
"""Maximum wait for the last results; a machine may be slow."""


def streams_yaml(rooms: Iterable[str], key: str = "column: node") -> str:
    """Return the beginning of a deployment: streams with the columns of a room's file."""
    return "apiVersion: slackwater/v1\nstreams:\n" + "".join(
        f"  {room}: {{key: {{{key}}}, time: {{column: ts, unit: ms}},"
        " fields: [temperature, humidity]}\n"
        for room in rooms
    )


ROOMS_YAML = streams_yaml(ROOMS)


@dataclass(frozen=True)
class Ran:
    """A finished rehearsal."""

    code: int
    shown: str
    report: dict[str, Any]
    lines: list[dict[str, Any]]
    stood_still: bool = False
    """Whether the machine was halted, as measured by an independent witness."""

    def of(self, query: str, kind: str) -> list[dict[str, Any]]:
        """Return the lines of one kind about one query, in the order read."""
        return [line for line in self.lines if line["kind"] == kind and line["query"] == query]

    def kinds(self, query: str) -> set[str]:
        """Return the kinds of lines about a query."""
        return {line["kind"] for line in self.lines if line.get("query") == query}

    def events(self) -> set[tuple[str, str]]:
        """Return (process, event) pairs."""
        return {(event["process"], event["event"]) for event in self.report["events"]}

    def agreed(self) -> None:
        """Check each query against the batch: all answers, once each, in time, with UNDO.

        If the report names a lack of CPU, with figures, answers may be late; if the machine was
        halted, they must be; all other checks apply. The CPU needed is measured in ``bench/``.
        """
        findings = self.report["findings"]
        if self.report["overloaded"] is not None or self.stood_still:
            findings = [
                each for each in findings if not each.startswith(("late: ", "overloaded: "))
            ]
        assert findings == [], self.shown
        assert self.code == int(not self.report["ok"]), self.shown
        for query in self.report["queries"].values():
            assert [query[what] for what in ("lost", "doubled", "uncorrected", "wrong")] == [0] * 4
        self.as_documented()

    def as_documented(self) -> None:
        """Check what the page on results says of the fields, apart from the figures."""
        runs: dict[tuple[str, int], list[tuple[str, str, int]]] = {}
        epochs: dict[tuple[str, int], int] = {}
        rows: dict[tuple[str, int, str], int] = {}
        for line in (line for line in self.lines if "query" in line):
            part = (line["query"], line["part"])
            assert [*line][:5] == ["query", "part", "seq", "kind", "epoch"], line
            epoch = epochs.setdefault(part, 0)
            match line["kind"]:
                case "stable" | "tentative" as label:
                    rows[*part, label] = rows.get((*part, label), 0) + 1
                case "boundary":
                    assert line["keys"] == rows.pop((*part, line["label"]), 0), line
                    start, end = line["window_start"], line["window_end"]
                    if line["label"] == "tentative":
                        assert line["epoch"] in (epoch, epoch + 1), line
                        epochs[part] = line["epoch"]
                        runs.setdefault(part, []).append((start, end, line["epoch"]))
                    elif line["windows"] == 1:
                        of = [run for run in runs.get(part, ()) if run[0] <= start < run[1]]
                        single = [n for first, _, n in of if first == start]
                        # A run may have the window, or, where windows overlap, only its start.
                        assert line["epoch"] in (single or [0, *(n for *_, n in of)]), line
                case "undo" | "rec_done":
                    assert line["epoch"] == epoch, line


def rehearse(folder: Path, deployment: str, inputs: Mapping[str, Path], *options: str) -> Ran:
    """Run the command in this folder, to its end."""
    (folder / "deployment.yaml").write_text(deployment)
    command = [sys.executable, "-m", "slackwater.cli.app", "rehearse"]
    command += ["--deployment", "deployment.yaml", "--out", "r.jsonl", "--report", "report.json"]
    for stream, path in inputs.items():
        command += ["--input", f"{stream}={path}"]
    with Witness(folder) as witness:
        done = subprocess.run(
            [*command, *(() if "--wait" in options else WAIT), *options],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=REHEARSED_S_MAX,
        )
    shown = done.stdout + done.stderr
    assert (folder / "report.json").exists(), shown
    report = orjson.loads((folder / "report.json").read_bytes())
    lines = [orjson.loads(line) for line in (folder / "r.jsonl").read_bytes().splitlines()]
    return Ran(done.returncode, shown, report, lines, witness.stood_still)


def at(*faults: str) -> list[str]:
    """Return faults as options: ``at("2s kill root")``."""
    return [option for fault in faults for option in ("--fault", f"at={fault}")]
