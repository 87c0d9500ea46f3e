"""A failure of ten minutes with one replica of each stage left: answers go on, memory stays flat.

Guarantees 2 and 5, and the paper's Property 1. The stack of ``bench/pipeline.py``, one of four
streams cut off; resident memory of each process is sampled, and every window's latency is seen.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from bench.outage import memory
from bench.pipeline import BOUND_S, BUCKET_US, Results, Stack, run_phase

RATE = 2_000
OUTAGE_S, QUICK_S = 600.0, 40.0
SAMPLES = 10
CORRECTED_S_MAX = 300.0


def run(*, quick: bool) -> dict[str, Any]:
    """Measure."""
    with tempfile.TemporaryDirectory(prefix="slackwater-paper-") as folder:
        stack = Stack(Path(folder))
        try:
            return measure(stack, QUICK_S if quick else OUTAGE_S)
        finally:
            stack.stop()


def measure(stack: Stack, outage_s: float) -> dict[str, Any]:
    """One outage on a warm stack."""
    results = Results(stack.transport)
    results.start()
    bucket = int(time.time() * 1e6) // BUCKET_US * BUCKET_US
    bucket = run_phase(stack, RATE, 20, bucket)
    samples = [{"at_s": 0.0, **memory(stack)}]
    began = bucket / 1e6
    stack.generators[0].silent = True
    for i in range(1, SAMPLES + 1):
        bucket = run_phase(stack, RATE, outage_s / SAMPLES, bucket)
        samples.append({"at_s": outage_s / SAMPLES * i, **memory(stack)})
        print(f"  {samples[-1]}", flush=True)
    stack.generators[0].silent = False
    healed = bucket / 1e6
    corrected, waited_s = 0, 0.0
    while waited_s < CORRECTED_S_MAX and corrected < outage_s - 1:
        bucket = run_phase(stack, RATE, CORRECTED_S_MAX / 12, bucket)
        waited_s += CORRECTED_S_MAX / 12
        corrected = sum(began < due <= healed for due in results.seen.stable)
    stack.check_alive()
    late = [seen for due, seen in results.seen.first.items() if began < due <= healed]
    missing = int(outage_s) - len(late)
    if not late:
        raise SystemExit("no window was answered in the failure")
    return {
        "bound_s": BOUND_S,
        "failure_s": outage_s,
        "samples": samples,
        "answers": len(late),
        "unanswered": max(missing - 1, 0),
        "proc_new_s": max(late),
        "n_tentative": results.seen.tentative,
        "corrected": corrected,
        "corrected_within_s": waited_s,
    }
