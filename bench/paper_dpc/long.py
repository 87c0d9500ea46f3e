"""A failure of ten minutes with one replica of each stage left: answers continue, memory is flat.

guarantee-2 and guarantee-5, and the paper's Property 1. Two replicas of orderer and aggregator;
when one of four streams is cut, the second of each is killed, and stays down. Every window's
latency is measured, and resident memory of the remaining processes is sampled. For the JVMs the
*live heap* is sampled as well, the size after a full collection: their resident memory shows only
the largest size of the heap so far.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from math import floor
from typing import Any

from bench.paper_dpc.results import figures
from bench.paper_dpc.system import System, deployment_text, running

STREAMS = ("s1", "s2", "s3", "s4")
BOUND_S = 2.0
QUERY = (
    f"{{from: [{', '.join(STREAMS)}], window: {{size: 1s}}, "
    f"aggregate: [count, sum, avg, min, max], bound: {BOUND_S:g}s, replicas: 2}}"
)
PER_S, KEYS = 500, 1_000
WARM_S = 30.0
OUTAGE_S, QUICK_S = 600.0, 40.0
SAMPLES = 10
CORRECTED_S_MAX = 300.0


def run(*, quick: bool) -> dict[str, Any]:
    """Measure."""
    text = deployment_text(STREAMS, {"q": QUERY})
    with running(text, per_s=PER_S, keys=KEYS) as system:
        return measure(system, QUICK_S if quick else OUTAGE_S)


def measure(system: System, outage_s: float) -> dict[str, Any]:
    """One outage on a warm system."""
    results = system.follow("q")
    time.sleep(WARM_S)  # no condition: the first windows include loading and compilation
    system.settle()
    second = [name for name in system.memory_mb() if name in {"host/1", "aggregator/1"}]
    assert second, "there is nothing to kill"
    for name in second:
        system.kill(name, away_s=2 * (outage_s + CORRECTED_S_MAX))
    began = system.feeder.cut("s1")
    samples = [sample(system, second, began)]
    for i in range(1, SAMPLES + 1):
        time.sleep(max(0.0, began + outage_s / SAMPLES * i - time.time()))
        samples.append(sample(system, second, began))
        print(f"  {samples[-1]}", flush=True)
    healed = system.feeder.reconnect("s1")
    results.wait_until_stable(healed, CORRECTED_S_MAX)
    corrected_s = time.time() - healed
    samples.append(sample(system, second, began))
    found = results.between(began, healed)
    results.stop()
    phase = found[0].due % 1 if found else 0.0
    due = floor(healed - phase) - floor(began - phase)
    late = figures([one.late for one in found])
    return {
        "bound_s": BOUND_S,
        "failure_s": outage_s,
        "killed": second,
        "samples": samples,
        "answers": len(found),
        "unanswered": due - len(found),
        "proc_new_s": late["max"],
        "p99_s": late["p99"],
        "n_tentative": results.tentative,
        "corrected_s": corrected_s,
        "deaths": system.deaths(),
    }


def sample(system: System, without: list[str], began: float) -> dict[str, Any]:
    """Return resident memory and live heap (MB) of each remaining process, with the time."""
    left = {name: mb for name, mb in system.memory_mb().items() if name not in without}
    heaps = {name: live_heap_mb(pid) for name, pid in system.jvms().items() if name in left}
    return {"at_s": round(time.time() - began), "resident": left, "live_heap": heaps}


def live_heap_mb(pid: int) -> float:
    """Return the size of a JVM's heap after a full collection."""
    jcmd = shutil.which("jcmd")
    if jcmd is None:
        raise SystemExit("jcmd of the JDK is not in the PATH")
    reported = subprocess.run(
        [jcmd, str(pid), "GC.class_histogram"], capture_output=True, text=True, check=True
    )
    total = reported.stdout.split("\n")[-2].split()
    assert total[0] == "Total", reported.stdout[-200:]
    return int(total[2]) / 1e6
