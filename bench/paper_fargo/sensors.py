"""The six sensors of section 4.1, in one process: JSON of 90 to 110 bytes, round-robin.

Each event has an offset, a random value, the time in UTC as text, and the sensor's name, and is a
message. A sensor sends its events to the partitions in turn, as the thesis's sensors do to child
nodes. Events are stamped evenly over each tick, so every window has the same number of them.

    python -m bench.paper_fargo.sensors BOOTSTRAP TOPIC PARTITIONS EVENTS_PER_S
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from typing import Final

import numpy as np
from confluent_kafka import Producer

SENSORS: Final = 6
TICK_US: Final = 20_000
EVENT: Final = b'{"offset":%010d,"value":%09.6f,"timestamp":"%s.%06dZ","sensorId":"%d"}'
FIRST_PORT: Final = 50_001
"""The name of a sensor is its port."""
FLUSH_S: Final = 10.0


def events(sensor: int, tick: int, per_tick: int) -> list[bytes]:
    """Return the events of a sensor in a tick (number of ticks since the epoch)."""
    at_us = tick * TICK_US
    second = datetime.fromtimestamp(at_us // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S").encode()
    rest_us, first = at_us % 1_000_000, tick * per_tick % 10_000_000_000
    values = np.random.default_rng((sensor, tick)).uniform(10.0, 99.0, per_tick).tolist()
    return [
        EVENT % (first + n, value, second, rest_us + n * TICK_US // per_tick, FIRST_PORT + sensor)
        for n, value in enumerate(values)
    ]


def main() -> None:
    """Send until ended."""
    bootstrap, topic, partitions, per_s = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
    per_tick = per_s * TICK_US // 1_000_000
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "queue.buffering.max.messages": 2_000_000,
        }
    )
    tick, sent = time.time_ns() // 1_000 // TICK_US + 1, 0
    while True:
        time.sleep(max(0.0, (tick + 1) * TICK_US / 1e6 - time.time()))
        of: list[list[dict[str, bytes]]] = [[] for _ in range(partitions)]
        ticks = [events(sensor, tick, per_tick) for sensor in range(SENSORS)]
        for at_once in zip(*ticks, strict=True):  # in the order of their times
            for event in at_once:
                of[sent % partitions].append({"value": event})
                sent += 1
        for partition, messages in enumerate(of):
            producer.produce_batch(topic, messages, partition=partition)
        producer.poll(0)
        tick += 1


if __name__ == "__main__":
    main()
