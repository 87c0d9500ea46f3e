"""Runs both readers on input that no correct producer sends.

    python -m tests.fuzz [json|near|columns|arrays|csv] [--messages N] [--from SEED]

An example has 1,000 messages or lines, and one seed. Two child processes read at a time. The full
size is ten million messages: ``make drills ARGS="-k fuzz"``.
"""

# ruff: noqa: T201

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tests.fuzz.run import KINDS, SIZE, Kind, examples, one_message, slices, worker


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("kind", nargs="?", choices=KINDS, default="json")
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed")
    parser.add_argument("--worker", type=int, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--part", type=int, nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    kind: Kind = arguments.kind
    if arguments.worker is not None:
        worker(kind, *arguments.worker)
        return 0
    if arguments.part is not None:
        one_message(kind, *arguments.part)
        return 0
    read, failed = 0, False
    with ThreadPoolExecutor(2) as pool:
        parts = slices(arguments.first, -(-arguments.messages // SIZE))
        for outcome in pool.map(partial(examples, kind), parts):
            read += outcome.read
            failed |= bool(outcome.findings)
            print(*outcome.findings, sep="\n", end="\n" * bool(outcome.findings))
            print(f"{read:,} {kind} messages or lines", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
