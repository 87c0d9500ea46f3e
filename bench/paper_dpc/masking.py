"""Section 6.3: the longest failure that leaves no tentative tuple, over a chain of four queries.

X = 8 s; each query is an SUnion over the one before it, the first over three streams, without
windows (the tuples themselves are the results, as in the paper), in buckets of 100 ms. Eight
stages, a margin of 50 ms each: the first orderer may wait for 7.6 s. A failure is masked if no
query of the chain has said anything tentative. A ladder of durations, each tried a few times; the
answer is the longest up to which all tries were masked.
"""

from __future__ import annotations

import time
from typing import Any

from bench.paper_dpc.results import Results
from bench.paper_dpc.system import System, deployment_text, running

LADDER_S = (6.5, 7.0, 7.3, 7.4, 7.5, 7.6, 7.7)
QUICK_S = (7.0, 7.5, 7.7)
TRIES = 2
ATTEMPTS = 3
PRECISION_S = 0.02
BOUND_S = 8.0
PAPER_S = 6.5
QUERIES = {
    "q1": "{from: [s1, s2, s3], bound: 8s, replicas: 1}",
    **{f"q{i}": f"{{from: [q{i - 1}], bound: 8s, replicas: 1}}" for i in (2, 3, 4)},
}


def run(*, quick: bool) -> dict[str, Any]:
    """Measure."""
    with running(deployment_text(("s1", "s2", "s3"), QUERIES), per_s=10, w_us=100_000) as system:
        results = {name: system.follow(name) for name in QUERIES}
        rows: list[dict[str, Any]] = []
        for seconds in QUICK_S if quick else LADDER_S:
            rows.append(rung(system, results, seconds, 1 if quick else TRIES))
            print(f"  {seconds} s: {rows[-1]['n_tentative']} tentative", flush=True)
        for one in results.values():
            one.stop()
    masked = [row["failure_s"] for row in rows if not any(row["n_tentative"])]
    longest = 0.0
    for row in rows:
        if any(row["n_tentative"]):
            break
        longest = row["failure_s"]
    return {"bound_s": BOUND_S, "rows": rows, "masked_s": longest, "any_masked_s": masked}


def rung(system: System, results: dict[str, Results], seconds: float, tries: int) -> dict[str, Any]:
    """Cut one stream for this time, a few times.

    Return the chain's numbers of tentative answers.
    """
    counts = [failure(system, results, seconds) for _ in range(tries)]
    return {"failure_s": seconds, "n_tentative": counts}


def failure(system: System, results: dict[str, Results], seconds: float) -> int:
    """Run one failure of this length; repeat it if this machine was too busy to end it in time."""
    for _ in range(ATTEMPTS):
        system.settle()
        before = sum(one.tentative for one in results.values())
        began = system.feeder.cut("s1")
        time.sleep(max(began + seconds - time.time() - 0.05, 0))
        healed = system.feeder.reconnect("s1")
        results["q4"].wait_until_stable(healed + 1.5, 60)
        if abs(healed - began - seconds) < PRECISION_S:
            return sum(one.tentative for one in results.values()) - before
    raise SystemExit(f"a failure of {seconds} s took {healed - began:.2f} s: the machine is busy")
