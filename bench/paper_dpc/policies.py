"""Figure 13: availability and inconsistency under the six policies (section 6.1).

Six queries over the same streams, one a policy, bound 3 s, no windows, buckets of 100 ms (so six
orderers and six roots are all it takes); one stream is cut for the figure's durations. All six live
through the same failures at the same time. Proc_new and its mean over the buckets that were due in
the failure and its correction; N_tentative in buckets.
"""

from __future__ import annotations

import time
from itertools import product
from typing import Any

from bench.paper_dpc.results import Results, figures
from bench.paper_dpc.system import System, deployment_text, running

DURATIONS_S = (2, 4, 6, 10, 16, 30)
QUICK_S = (2, 6)
BOUND_S = 3.0
POLICIES = list(product(("process", "delay"), ("process", "delay", "suspend")))


def run(*, quick: bool) -> dict[str, Any]:
    """Measure."""
    queries = {
        f"{failure}-{stabilization}": "{from: [s1, s2, s3], bound: 3s, replicas: 1, "
        f"policy: {{failure: {failure}, stabilization: {stabilization}}}}}"
        for failure, stabilization in POLICIES
    }
    with running(deployment_text(("s1", "s2", "s3"), queries), per_s=50, w_us=100_000) as system:
        results = {name: system.follow(name) for name in queries}
        rows = [failure(system, results, d) for d in (QUICK_S if quick else DURATIONS_S)]
        for one in results.values():
            one.stop()
    return {"bound_s": BOUND_S, "rows": rows}


def failure(system: System, results: dict[str, Results], seconds: float) -> dict[str, Any]:
    """Cut one stream for this time; return the measurements of each query's client."""
    system.settle()
    before = {name: one.tentative for name, one in results.items()}
    began = system.feeder.cut("s1")
    time.sleep(max(began + seconds - time.time() - 0.05, 0))
    healed = system.feeder.reconnect("s1")
    row: dict[str, Any] = {"failure_s": seconds, "measured_s": healed - began}
    for name, one in results.items():
        one.wait_until_stable(healed + BOUND_S + 1, 60)
        new = figures([seen.late for seen in one.between(began, healed + BOUND_S)])
        row[name] = {
            "proc_new_s": new["max"],
            "mean_s": new["mean"],
            "n_tentative": one.tentative - before[name],
        }
    return row
