"""Section 5.1: how long it takes to go over to another replica of an upstream neighbour.

A query with two orderer replicas and windows of 20 ms. One replica after the other is killed with
-9 and comes back: some in steady state, some in a failure of a stream while the other one is
tentative too, some just before that failure's deadline, when the root has every reason to wait for
a replica that says STABLE and is dead already. The root's log tells when it had heard of the
replica last, when it gave it up, and when it gave its first answer after that. A client tells how
much later than usual its answers came.
"""

from __future__ import annotations

import re
import time
from typing import Any

from bench.paper_dpc.results import Results, figures
from bench.paper_dpc.system import System, deployment_text, running

BOUND_S = 1.0
MARGIN_S = 0.05
KILLS = {"steady": 8, "tentative": 8, "deadline": 4}
QUICK = {"steady": 2, "tentative": 2, "deadline": 1}
PAPER_S = {"switch": 0.040, "total": 0.140}
QUERY = "{from: [s1, s2], window: {size: 20ms}, aggregate: [max], bound: 1s}"
_TOLD = re.compile(
    r"switched from replica (\d) of child 0: heard ([\d.]+) ms before .* answered ([\d.]+) ms after"
)


def run(*, quick: bool) -> dict[str, Any]:
    """Measure."""
    text = deployment_text(("s1", "s2"), {"q": QUERY})
    extra: dict[str, list[float]] = {}
    with running(text, per_s=100, w_us=20_000, flush_us=20_000) as system:
        results = system.follow("q")
        replica = 0
        for kind, kills in (QUICK if quick else KILLS).items():
            for _ in range(kills):
                extra.setdefault(kind, []).extend(kill(system, results, kind, "ab"[replica]))
                replica = 1 - replica
        told = _TOLD.findall(system.log("root/q.0"))
        results.stop()
    if not told:
        raise SystemExit("the root has told of no switch: nothing was measured")
    return {
        "kills": sum((QUICK if quick else KILLS).values()),
        "detection_s": figures([float(heard) / 1000 for _, heard, _ in told]),
        "switch_s": figures([float(answered) / 1000 for _, _, answered in told]),
        "extra_s": {kind: figures(values) for kind, values in extra.items()},
    }


def kill(system: System, results: Results, kind: str, replica: str) -> list[float]:
    """How much later than usual the answers of the second after one kill came (s)."""
    system.settle()
    cut = None
    if kind != "steady":
        cut = system.feeder.cut("s1")
        wait = BOUND_S - 2 * MARGIN_S + (1.0 if kind == "tentative" else -0.04)
        time.sleep(max(cut + wait - time.time(), 0))
    at = system.kill(f"orderer/q.0.{replica}")
    time.sleep(1.5)
    if cut is not None:
        system.feeder.reconnect("s1")
    system.wait_ready([f"orderer/q.0.{replica}"])
    results.wait_until_stable(time.time(), 60)
    hit = [one.late for one in results.between(at - 0.1, at + 1.0)]
    if kind == "deadline":
        # Its windows are late anyway, by what the bound allows: the rest is the kill's.
        assert cut is not None
        usual = BOUND_S - 2 * MARGIN_S
        hit = [max(one.late for one in results.between(cut, at))]
    else:
        usual = figures([one.late for one in results.between(at - 1.0, at - 0.1)])["p50"]
    return [late - usual for late in hit]
