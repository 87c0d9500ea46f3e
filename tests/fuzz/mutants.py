"""Faults in the scanner, each of which the comparison with the definition must detect.

A mutant is an edit of one file of ``formats/scan``. The package is copied with the edit, and a
child process reads generated messages with the copy, compiled anew. The replaced text must exist
once, so a mutant whose target has changed fails instead of testing nothing.
"""

# ruff: noqa: T201

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.fuzz.near import STREAMS
from tests.fuzz.run import JUDGES, MESSAGES, ROOT, SIZE, Kind

from slackwater.formats import scan

SEEDS_MAX = 100
NO_SCANNER = 3


class ScanMutant(NamedTuple):
    """A fault in a file of the scanner."""

    name: str
    file: str
    old: str
    new: str


MUTANTS = (
    ScanMutant(
        "the last bit of a double",
        "decimals.py",
        "(mantissa + (mantissa & U64(1))) >> U64(1)",
        "mantissa >> U64(1)",
    ),
    ScanMutant("a half is rounded up", "decimals.py", "if is_half and", "if False and"),
    ScanMutant(
        "the sign of zero",
        "leaves.py",
        "-value if negative else",
        "-value if value > 0 and negative else",
    ),
    ScanMutant("the first of two members counts", "kernel.py", "if seen & bit:", "if False:"),
    ScanMutant(
        "one level too deep",
        "kernel.py",
        "NESTING_DEPTH_MAX - 1 - depth",
        "NESTING_DEPTH_MAX - depth",
    ),
    ScanMutant("a zero as a word is a zero", "grammar.py", "if count == 1 and", "if True and"),
    ScanMutant("a number of any length", "grammar.py", "> NUMBER_CHARS_MAX", "> 10**9"),
    ScanMutant("UTF-8 longer than needed", "grammar.py", "second < 0xA0", "second < 0x80"),
    ScanMutant(
        "times before 1970 are truncated upward",
        "times.py",
        "-((us + part - 1) // part)",
        "-(us // part)",
    ),
    ScanMutant(
        "blanks round a key are kept",
        "leaves.py",
        "if _has_blanks(first, close):",
        "if False:",
    ),
    ScanMutant(
        "NaN of a message that is left counts twice",
        "kernel.py",
        "store_i64(output + NOT_FINITE, not_finite)  # the definition counts those of this one",
        "pass",
    ),
    ScanMutant("1900 is a leap year", "times.py", "year % 100 != 0 or", "True or"),
)
COLUMNS_MUTANTS = (
    ScanMutant(
        "arrays of unequal lengths",
        "arrays.py",
        "if rows != SINGLE and rows != size:",
        "if False:",
    ),
    ScanMutant(
        "null keeps the value of another message",
        "arrays.py",
        "store_f64(_value(leaf - FIELD, row + size, output), np.nan)",
        "pass",
    ),
    ScanMutant(
        "an absent field keeps the value of another message",
        "arrays.py",
        "store_f64(_value(field, row, output), np.nan)",
        "pass",
    ),
    ScanMutant(
        "a single time applies to the first row only",
        "arrays.py",
        "store_i64(times + 8 * more, time)",
        "pass",
    ),
    ScanMutant("no comma between values", "arrays.py", "if byte != _COMMA:", "if False:"),
    ScanMutant(
        "NaN of all rows counts once",
        "arrays.py",
        "after if load_i64(output + NOT_FINITE) == not_finite else UNSURE",
        "after",
    ),
    ScanMutant("rows of messages overlap", "kernel.py", "row += rows", "row += max(rows - 1, 0)"),
)


def findings_of(mutant: ScanMutant, folder: Path) -> list[str]:
    """Return the first finding of a child with this scanner, or the cause of its end."""
    kind = "columns" if mutant in COLUMNS_MUTANTS else "near"
    room = folder / "scan"
    shutil.copytree(ROOT_OF_SCAN, room, ignore=shutil.ignore_patterns("__pycache__"))
    path = room / mutant.file
    text = path.read_text()
    assert text.count(mutant.old) == 1, f"{mutant.file} has {text.count(mutant.old)} {mutant.old!r}"
    path.write_text(text.replace(mutant.old, mutant.new))
    command = [sys.executable, "-m", "tests.fuzz.mutants", str(room), kind]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != NO_SCANNER, f"{mutant.name} cannot be compiled: {done.stderr}"
    return done.stdout.splitlines() or done.stderr.splitlines()[-1:]


ROOT_OF_SCAN = Path(scan.__file__).parent


def _worker(room: str, kind: Kind) -> None:
    """In the child: compare, with the scanner of that folder."""
    scan.__path__[:] = [room]
    if scan.scanner_of(STREAMS[0]) is None:
        sys.exit(NO_SCANNER)
    for seed in range(SEEDS_MAX):
        batch = MESSAGES[kind](seed, SIZE)
        findings = JUDGES[kind](batch.spec, batch.messages)
        if findings:
            print(findings[0][:1_000].replace("\n", " "))
            return


if __name__ == "__main__":
    _worker(sys.argv[1], "columns" if sys.argv[2] == "columns" else "near")
