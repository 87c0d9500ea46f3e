"""Memory of every process during an outage twenty times as long as X.

The stack of ``pipeline.py`` at 20,000 readings/s; one of four streams is disconnected for 40 s, X =
2 s. The resident memory of each process is sampled before the outage, each 8 s during it, and after
the corrections. Memory must not grow with the outage's length: Kafka is the buffer.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from bench.pipeline import BOUND_S, BUCKET_US, Results, Stack, run_phase

RATE = 20_000
OUTAGE_S = 20 * BOUND_S
SAMPLES = 5


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="slackwater-outage-") as folder:
        stack = Stack(Path(folder))
        try:
            measure(stack)
        finally:
            stack.stop()


def measure(stack: Stack) -> None:
    """One outage on a warm stack."""
    results = Results(stack.transport)
    results.start()
    bucket = int(time.time() * 1e6) // BUCKET_US * BUCKET_US
    bucket = run_phase(stack, RATE, 20, bucket)
    samples = {"before": memory(stack)}
    stack.generators[0].silent = True
    for i in range(1, SAMPLES + 1):
        bucket = run_phase(stack, RATE, OUTAGE_S / SAMPLES, bucket)
        samples[f"{OUTAGE_S / SAMPLES * i:.0f} s"] = memory(stack)
    stack.generators[0].silent = False
    bucket = run_phase(stack, RATE, 15, bucket)
    samples["15 s after"] = memory(stack)
    stack.check_alive()
    print("| MB | " + " | ".join(samples) + " |")
    print("|---|" + "---|" * len(samples))
    for name in samples["before"]:
        print(
            f"| {name} | " + " | ".join(f"{sample[name]:.0f}" for sample in samples.values()) + " |"
        )
    late = [seen for due, seen in results.seen.first.items() if due < bucket / 1e6 - 15]
    print(
        f"\n{results.seen.tentative} windows tentative; first answers at most "
        f"{max(late[-int(OUTAGE_S) :]):.2f} s after their normal time (X = {BOUND_S:.0f} s); "
        f"{len(results.seen.stable)} stable in the end"
    )


def memory(stack: Stack) -> dict[str, float]:
    """MB of each process."""
    return {name: used[1] for name, used in stack.usage.read().items()}


if __name__ == "__main__":
    main()
