"""``python -m tests.simulator``: runs many seeds on all cores, one seed, or a plan.

The first failure ends the run, unless ``--keep-going`` is given. The failing plan is shrunk for at
most a minute, and printed with the command that repeats it.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from os import cpu_count
from pathlib import Path

from tests.simulator.joined.plans import draw_machines
from tests.simulator.plans import Plan, draw
from tests.simulator.run import Outcome, run
from tests.simulator.shrink import shrink
from tests.simulator.trace import trace

CHUNK = 25
REPORT_EVERY_S = 20


def main() -> int:
    """Parse the arguments and run; return 1 if a guarantee was violated."""
    options = _options()
    logging.disable()  # damaged records are counted by the history
    if options.plan or options.seed is not None:
        return _one(options)
    return _many(options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=cpu_count() or 1, help="processes")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at a failure")
    parser.add_argument("--seed", type=int, help="this seed alone")
    parser.add_argument("--machines", action="store_true", help="run on nodes, with controllers")
    parser.add_argument("--plan", help="a plan as JSON, or the name of a file that holds one")
    parser.add_argument("--shrink-s", type=float, default=60, help="how long to shrink; 0: not")
    parser.add_argument("--show", action="store_true", help="print the plan, do not run it")
    return parser.parse_args()


def _one(options: argparse.Namespace) -> int:
    draws = _draw(machines=options.machines)
    plan = draws(options.seed) if options.plan is None else _plan(options.plan)
    if options.show:
        _emit(plan.to_json())
        return 0
    outcome = run(plan)
    if outcome.violation is None:
        _emit(f"seed {plan.seed}: every guarantee holds ({outcome.events} events)")
        return 0
    _print_failure(outcome, options.shrink_s)
    return 1


def _draw(*, machines: bool) -> Callable[[int], Plan]:
    return draw_machines if machines else draw


def _plan(text: str) -> Plan:
    return Plan.from_json(text if text.lstrip().startswith("{") else Path(text).read_text("utf-8"))


def _many(options: argparse.Namespace) -> int:
    began = reported = time.monotonic()
    done = failed = simulated = 0
    draws = _draw(machines=options.machines)
    for seeds, simulated_us, broken in _chunks(draws, options.first, options.seeds, options.jobs):
        done += seeds
        simulated += simulated_us
        for seed in broken:
            failed += 1
            _print_failure(run(draws(seed)), options.shrink_s)
        now = time.monotonic()
        if broken or now - reported >= REPORT_EVERY_S:
            reported = now
            _emit(f"{done} seeds, {failed} failed, {done / (now - began):.1f} seeds a second")
        if failed and not options.keep_going:
            break
    took = time.monotonic() - began
    _emit(
        f"{done} seeds, {failed} failed, {took:.0f} s, {done / took:.1f} seeds and "
        f"{simulated / 1e6 / took:.0f} simulated seconds a second, {options.jobs} processes"
    )
    return 1 if failed else 0


def _chunks(
    draws: Callable[[int], Plan], first: int, count: int, jobs: int
) -> Iterator[tuple[int, int, list[int]]]:
    """Run the seeds; return their number, the simulated time, and the failing seeds."""
    starts = range(first, first + count, CHUNK)
    ranges = [range(at, min(at + CHUNK, first + count)) for at in starts]
    if jobs == 1:
        yield from (_chunk(draws, seeds) for seeds in ranges)
        return
    with ProcessPoolExecutor(jobs) as pool:
        futures = [pool.submit(_chunk, draws, seeds) for seeds in ranges]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _chunk(draws: Callable[[int], Plan], seeds: range) -> tuple[int, int, list[int]]:
    simulated, failed = 0, []
    for seed in seeds:
        outcome = run(draws(seed))
        simulated += outcome.simulated_us
        if outcome.violation is not None:
            failed.append(seed)
    return len(seeds), simulated, failed


def _print_failure(failed: Outcome, shrink_s: float) -> None:
    if shrink_s > 0:
        failed = shrink(failed, seconds_max=shrink_s)
    _emit(trace(failed))


def _emit(text: str) -> None:
    print(text, flush=True)  # noqa: T201 (a command)


if __name__ == "__main__":
    sys.exit(main())
