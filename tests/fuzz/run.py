"""Runs examples in a child process, so that a crash is detected and identified by its seed."""

# ruff: noqa: T201

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from tests.fuzz import grammar, near
from tests.fuzz.judge import (
    SHOWN_CHARS_MAX,
    judge_arrays,
    judge_columns,
    judge_file,
    judge_messages,
)

Kind = Literal["json", "near", "columns", "arrays", "csv"]
KINDS: tuple[Kind, ...] = ("json", "near", "columns", "arrays", "csv")
MESSAGES = {
    "json": grammar.messages,
    "near": near.messages,
    "columns": near.columns,
    "arrays": near.messages,
}
JUDGES = {
    "json": judge_messages,
    "near": judge_messages,
    "columns": judge_columns,
    "arrays": judge_arrays,
}
SIZE = 1_000
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Outcome:
    """The number of messages or lines read correctly, and the findings."""

    read: int
    findings: list[str]


def examples(kind: Kind, seeds: Sequence[int]) -> Outcome:
    """Run examples in a child.

    One that crashes it is reported, and another child runs the others.
    """
    findings: list[str] = []
    read, at = 0, seeds[0]
    while at < seeds[-1] + 1:
        done = _child(kind, "--worker", str(at), str(seeds[-1] + 1))
        lines = done.stdout.splitlines()
        findings += [line for line in lines if not line.startswith("seed ")]
        last = [int(line.removeprefix("seed ")) for line in lines if line.startswith("seed ")][-1]
        read += (last - at) * SIZE
        if done.returncode == 0:
            return Outcome(read + SIZE, findings)
        findings.append(
            f"{kind} seed {last} ends the process ({done.returncode}): {_culprit(kind, last)}"
        )
        findings.append(done.stderr[-1_500:])
        at = last + 1
    return Outcome(read, findings)


def worker(kind: Kind, first: int, end: int) -> None:
    """In the child: print each seed before it is run."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "x.csv"
        for seed in range(first, end):
            print(f"seed {seed}", flush=True)
            for finding in _try(kind, seed, path):
                print(f"{kind} seed {seed}: {finding}"[:1_000].replace("\n", " "), flush=True)


def one_message(kind: Kind, seed: int, start: int, end: int) -> None:
    """In a child: read some messages of an example, to find the one that crashes it."""
    batch = MESSAGES[kind](seed, SIZE)
    JUDGES[kind](batch.spec, batch.messages[start:end])


def _try(kind: Kind, seed: int, path: Path) -> list[str]:
    if kind != "csv":
        batch = MESSAGES[kind](seed, SIZE)
        return JUDGES[kind](batch.spec, batch.messages)
    file = grammar.file(seed, SIZE)
    path.write_bytes(file.data)
    return judge_file(file.spec, path, file.piece_bytes)


def _culprit(kind: Kind, seed: int) -> str:
    """Return the message that crashes the process, if a single one does."""
    if kind == "csv":
        return "write the file with grammar.file(seed)"
    start, end = 0, SIZE
    while end - start > 1:
        middle = (start + end) // 2
        for half in ((start, middle), (middle, end)):
            if _child(kind, "--part", str(seed), *map(str, half)).returncode:
                start, end = half
                break
        else:
            return f"messages {start} to {end} together"
    return repr(MESSAGES[kind](seed, SIZE).messages[start][:SHOWN_CHARS_MAX])


def _child(kind: Kind, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.fuzz", kind, *arguments]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, errors="replace", check=False
    )


def slices(first: int, examples_: int, at_once: int = 500) -> Iterator[range]:
    """Divide the seeds into portions for the children."""
    for start in range(first, first + examples_, at_once):
        yield range(start, min(start + at_once, first + examples_))
