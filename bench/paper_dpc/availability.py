"""Table III: Proc_new does not depend on how long the failure lasts (section 5.2).

One query with two orderer replicas, bound 3 s, windows of 100 ms over three streams. One stream is
cut for the table's durations, one after the other on one system. Proc_new is the largest latency of
a new answer, as a client sees it after the window's normal time; corrections are not new.
"""

from __future__ import annotations

import time
from typing import Any

from bench.paper_dpc.results import Results, figures
from bench.paper_dpc.system import System, deployment_text, running

DURATIONS_S = (2, 4, 6, 8, 10, 12, 14, 16, 30, 45, 60)
QUICK_S = (2, 4, 8)
BOUND_S = 3.0
PAPER_S = {2: 2.2} | dict.fromkeys(DURATIONS_S[1:], 2.8)
QUERY = "{from: [s1, s2, s3], window: {size: 100ms}, aggregate: [count, max], bound: 3s}"


def run(*, quick: bool) -> dict[str, Any]:
    """Measure."""
    with running(deployment_text(("s1", "s2", "s3"), {"q": QUERY}), per_s=500) as system:
        results = system.follow("q")
        system.settle()
        rows = [failure(system, results, d) for d in (QUICK_S if quick else DURATIONS_S)]
        results.stop()
    return {"bound_s": BOUND_S, "rows": rows}


def failure(system: System, results: Results, seconds: float) -> dict[str, float]:
    """Cut one stream for this time; return a client's measurements."""
    system.settle()
    tentative = results.tentative
    began = system.feeder.cut("s1")
    time.sleep(max(began + seconds - time.time() - 0.05, 0))
    healed = system.feeder.reconnect("s1")
    results.wait_until_stable(healed + BOUND_S + 1, 30)
    new = figures([one.late for one in results.between(began, healed + BOUND_S)])
    return {
        "failure_s": seconds,
        "measured_s": healed - began,
        "proc_new_s": new["max"],
        "p99_s": new["p99"],
        "n": new["n"],
        "n_tentative": results.tentative - tentative,
    }
