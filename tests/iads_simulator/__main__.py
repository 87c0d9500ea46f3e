"""``python -m tests.iads_simulator --seeds 1000``: many seeds; a failure prints its plan."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace

from tests.iads_simulator.checkers import CHECKERS
from tests.iads_simulator.world import Plan, draw, run


def violation(plan: Plan) -> str:
    """Return the violation of a run, or an empty text."""
    try:
        history = run(plan)
        for check in CHECKERS:
            check(history)
    except (AssertionError, LookupError, ValueError) as error:
        return f"{type(error).__name__}: {str(error)[:800]}"
    return ""


def shrink(plan: Plan) -> Plan:
    """Remove faults, then requests, while the plan still fails."""
    for n in reversed(range(len(plan.faults))):
        less = replace(plan, faults=plan.faults[:n] + plan.faults[n + 1 :])
        plan = less if violation(less) else plan
    for n in reversed(range(len(plan.requests))):
        less = replace(plan, requests=plan.requests[:n] + plan.requests[n + 1 :])
        plan = less if violation(less) else plan
    return plan


def main() -> int:
    """Parse the arguments and run; return 1 if a property was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.iads_simulator", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--keep-going", action="store_true")
    options = parser.parse_args()
    began, failed, done = time.monotonic(), 0, 0
    for seed in range(options.first, options.first + options.seeds):
        done += 1
        plans = (draw(seed), draw(seed, control=True))
        found = next((plan for plan in plans if violation(plan)), None)
        if found is not None:
            failed += 1
            what, plan = violation(found), shrink(found)
            print(f"seed {seed}: {what}\nshrunk: {violation(plan)}\n{plan}")  # noqa: T201
            print(f"again: python -m tests.iads_simulator --from {seed} --seeds 1", flush=True)  # noqa: T201
            if not options.keep_going:
                break
        if done % 500 == 0:
            print(f"{done} seeds, {failed} failed", flush=True)  # noqa: T201
    print(f"{done} seeds, {failed} failed, {time.monotonic() - began:.0f} s")  # noqa: T201
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
