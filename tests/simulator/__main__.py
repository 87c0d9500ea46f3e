"""``python -m tests.simulator --seeds N --from K``: many seeds; the first failure ends the run."""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulator.run import simulate


def main() -> int:
    """Run the seeds, print the rate."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at a failure")
    options = parser.parse_args()
    began, simulated, failed = time.monotonic(), 0, 0
    done = 0
    for seed in range(options.first, options.first + options.seeds):
        done += 1
        outcome = simulate(seed)
        simulated += outcome.simulated_us
        if outcome.violation is not None:
            failed += 1
            print(outcome, flush=True)  # noqa: T201 (a command)
            if not options.keep_going:
                break
        if done % 100 == 0:
            print(f"{done} seeds, {failed} failed", flush=True)  # noqa: T201
    took = time.monotonic() - began
    rate = simulated / 1e6 / took
    print(f"{done} seeds, {failed} failed, {took:.1f} s, {rate:.0f} simulated s per s")  # noqa: T201
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
