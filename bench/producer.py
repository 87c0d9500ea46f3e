"""CPU time of ``slackwater.Producer`` to a topic of columns, in ns a reading.

    python -m bench.producer [READINGS]

A process sends columns of 1,000 keys to one partition of an embedded broker, in calls of 10,000
readings. The columns are made beforehand, values have all digits of a double. The CPU time is that
of the sender's process with all its threads: ``send``, the encoder, the client of Kafka. With some
gigabytes the disk determines all figures, so the default is a million.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil
import pyarrow as pa

import slackwater
from slackwater.machine.broker import EmbeddedBroker
from slackwater.runtime.logs.topics import TopicLayout, ensure_topics

READINGS_A_CALL: Final = 10_000
KEYS: Final = np.array([f"sensor-{i:04d}" for i in range(1_000)])
FIELDS: Final = (1, 5)
ROUNDS: Final = 3


def columns_of(fields: int) -> dict[str, Any]:
    """Return the columns of one call; values have all digits of a double."""
    numbers = np.arange(READINGS_A_CALL)
    values = np.random.default_rng(1).normal(20, 5, (fields, READINGS_A_CALL))
    return {
        "ts": 1_700_000_000_000 + numbers,
        "sensor": KEYS[numbers * 7919 % len(KEYS)],
        **{f"field-{i}": column for i, column in enumerate(values)},
    }


def forms(fields: int) -> Mapping[str, Any]:
    """Return the same readings in several forms."""
    columns = columns_of(fields)
    keys = columns["sensor"]
    return {
        "numpy, keys `<U`": columns,
        "keys a list of str": columns | {"sensor": keys.tolist()},
        "Arrow table": pa.table(columns),
        "Arrow, keys a dictionary": pa.table(
            columns | {"sensor": pa.array(keys.tolist()).dictionary_encode()}
        ),
    }


def measure(broker: EmbeddedBroker, topic: str, readings: Any, n: int) -> dict[str, float]:
    """Send n readings; return ns a reading of CPU time and of wall time."""
    ensure_topics(broker.bootstrap, [TopicLayout(topic, 1, {})])
    of_broker = psutil.Process(broker.pid)
    with slackwater.Producer(
        bootstrap=broker.bootstrap, topic=topic, format="json-columns"
    ) as sender:
        sender.send(readings)
        sender.flush()
        wall, cpu, beside = time.perf_counter(), time.process_time(), sum(of_broker.cpu_times()[:2])
        for _ in range(n // READINGS_A_CALL):
            sender.send(readings)
        sender.flush()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        beside = sum(of_broker.cpu_times()[:2]) - beside
    return {name: s / n * 1e9 for name, s in (("cpu", cpu), ("wall", wall), ("broker", beside))}


def main() -> None:
    """Measure each form with one and with five fields."""
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    print("| fields | form | sender's CPU, ns a reading | readings/s | broker's CPU |")
    print("|---" * 5 + "|")
    for fields in FIELDS:
        with (
            tempfile.TemporaryDirectory() as folder,
            EmbeddedBroker(Path(folder) / "b", heap_mib_max=1_024, runs_long=True) as broker,
        ):
            measure_forms(broker, fields, n)


def measure_forms(broker: EmbeddedBroker, fields: int, n: int) -> None:
    """Print a line for each form: the round with the least CPU time."""
    readings = forms(fields)
    spent: dict[str, list[dict[str, float]]] = {form: [] for form in readings}
    # The first round warms up the broker. Forms take turns, since other load changes.
    for round_ in range(1 + ROUNDS):
        for form in readings:
            spent[form].append(measure(broker, f"bench-{round_}", readings[form], n))
    for form, rounds in spent.items():
        best = min(rounds[1:], key=lambda each: each["cpu"])
        print(
            f"| {fields} | {form} | {best['cpu']:.0f} | {1e9 / best['wall']:,.0f} |"
            f" {best['broker']:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
