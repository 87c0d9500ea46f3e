"""The IADS paper's claims on latencies, beside what the cores and real controllers take.

The conclusions of Khazan and Lynch give three: a response takes about one message latency, a
refresh after a view change the detection and one latency, and one more with a state transfer.
Refreshes are measured with the cores on the simulated network, where the time of detection can be
seen: it is the last one at which a member of the new view holds the new membership. Responses are
measured with three controller processes on loopback, whose messages a relay delays; their files are
synchronised before each response.

``make paper-iads`` prints the table and writes docs/results/iads.md; ``--no-write`` prints only.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from bench.controllers import responses_ms
from bench.run import machine
from tests.iads_simulator.checkers import CHECKERS
from tests.iads_simulator.world import Fault, History, Plan, run

NAMES: Final = ("a", "b", "c")
DELAYS_MS: Final = (0, 10, 50)
RUNS: Final = 20
OPERATIONS: Final = 300
PAGE: Final = Path(__file__).parents[1] / "docs" / "results" / "iads.md"
SLACK_MS: Final = 20
HEAD: Final = """\
# The IADS paper's latencies, repeated

Khazan and Lynch's conclusions, with *d* the one-way latency between members, and what this code
takes. *Detection* ends when the last member of the new view holds the new membership. Refreshes are
of the cores on the simulated network ({runs} runs, three members, 200 operations a second, all
checkers of `make sim-iads`); responses are of three `slackwater controller` processes on loopback,
whose messages are delayed by a relay ({operations} operations, one after the other; the disk is
synchronised before each response). The largest of all runs is given, or the percentile.
"""
NOTES: Final = """
The paper's response of one latency is out of reach with its printed order: an operation is
processed when every other member has shown a later logical time, which it sends after it has
received the operation. That is 2d ([IADS](../protocols/iads.md)).

`make paper-iads` repeats this page. {machine}
"""


def main() -> int:
    """Measure, print and write; 1 if a figure is beyond its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-write", action="store_true")
    options = parser.parse_args()
    rows = [*_rows_of_refreshes(), *_rows_of_responses()]
    header = ["", "paper", "limit", *(f"d = {delay} ms" for delay in DELAYS_MS)]
    lines = [header, ["---"] * len(header), *(cells for cells, _ in rows)]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    print(table)
    if not options.no_write:
        head = HEAD.format(runs=RUNS, operations=OPERATIONS)
        notes = NOTES.format(machine=machine())
        PAGE.write_text(f"{head}\n{table}\n{notes}")
    return int(not all(is_within for _, is_within in rows))


# Refreshes, in virtual time.


def _rows_of_refreshes() -> list[tuple[list[str], bool]]:
    return [
        _row(
            "refresh after a member has crashed: no state transfer",
            "detection + d",
            f"detection + d + {SLACK_MS} ms",
            [_refreshes_ms(delay, _crash) for delay in DELAYS_MS],
            [delay + SLACK_MS for delay in DELAYS_MS],
        ),
        _row(
            "refresh after a split has healed: state transfer",
            "detection + 2d",
            f"detection + 2d + {SLACK_MS} ms",
            [_refreshes_ms(delay, _heal) for delay in DELAYS_MS],
            [2 * delay + SLACK_MS for delay in DELAYS_MS],
        ),
    ]


def _crash(at: int) -> tuple[Fault, ...]:
    return (Fault(at, "crash", "c"),)


def _heal(at: int) -> tuple[Fault, ...]:
    """Member a is cut off, and connected again at ``at``."""
    return (
        *(Fault(at - 2_000_000, "cut", "a", other, us=1) for other in "bc"),
        Fault(at, "heal", "a"),
        *(Fault(at, "heal", other) for other in "bc"),
    )


def _refreshes_ms(delay_ms: int, faults: Callable[[int], tuple[Fault, ...]]) -> list[float]:
    """From detection to the last refresh, per run, while 200 operations/s are requested."""
    found = []
    for seed in range(RUNS):
        at = 4_000_000 + seed * 7_919
        until = at + 3_000_000  # the simulator heals everything then
        requests = tuple((t, "a") for t in range(at - 100_000, at + 700_000, 5_000))
        plan = Plan(
            seed, NAMES, delay_ms * 1_000, 0.0, faults(at), requests, until + 4_000_000, 0.0
        )
        history = run(plan)
        for check in CHECKERS:
            check(history)
        assert len(history.answered) == len(requests), "each operation is answered once"
        found.append(_since_detection_ms(history, at, until))
    return found


def _since_detection_ms(history: History, at: int, until: int) -> float:
    """Of the first view after ``at`` that all of its members install."""
    views = {
        life: [(then, view) for then, view, _ in of if at <= then < until]
        for life, of in history.views.items()
    }
    newest = {life: of[-1] for life, of in views.items() if of}
    view = max((view for _, view in newest.values()), key=lambda view: view.number)
    members = [life for life, (_, last) in newest.items() if last == view]
    assert {life.name for life in members} == view.names
    blocked = [
        max(then for then in history.blocked[life] if at <= then <= newest[life][0])
        for life in members
    ]
    refreshed = [
        max(
            then
            for then, refresh in history.refreshed[life]
            if newest[life][0] <= then < until and refresh.members == view.names
        )
        for life in members
    ]
    return (max(refreshed) - max(blocked)) / 1e3


# Responses, of real processes.


def _rows_of_responses() -> list[tuple[list[str], bool]]:
    times = [asyncio.run(responses_ms(delay / 1e3, OPERATIONS)) for delay in DELAYS_MS]
    p50 = [statistics.median(of) for of in times]
    p99 = [of[int(len(of) * 0.99)] for of in times]
    return [
        _row("response, p50", "d", "2d + 5 ms", [[x] for x in p50], [2 * d + 5 for d in DELAYS_MS]),
        _row(
            "response, p99", "d", "2d + 20 ms", [[x] for x in p99], [2 * d + 20 for d in DELAYS_MS]
        ),
    ]


def _row(
    name: str,
    paper: str,
    limit: str,
    measured_ms: Sequence[Sequence[float]],
    limits_ms: Sequence[float],
) -> tuple[list[str], bool]:
    cells = [f"{max(of):.1f} ms" for of in measured_ms]
    within = all(max(of) <= most for of, most in zip(measured_ms, limits_ms, strict=True))
    return [name, paper, limit, *cells], within


if __name__ == "__main__":
    sys.exit(main())
