"""Cost constants for an estimate before anything is started (``plan.py``).

The cost of a process is its base, an idle cost per fragment, and a cost per reading. Constants that
name a bench are measured, on two cores of an AMD EPYC; the others are marked as estimates. For 1,
10 and 20 queries of bench.queries the model gives 0.38, 0.71 and 1.08 cores; measured were 0.38,
0.78 and 1.15, of which the rehearsal took 0.09 of the last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Cost:
    """MB, cores, and microseconds of a core a reading."""

    memory_mb: float = 0.0
    cores: float = 0.0
    us_a_reading: float = 0.0


PROCESSES: Final[Mapping[str, Cost]] = {
    "supervisor": Cost(95.0, 0.01),
    "broker": Cost(300.0, 0.12),
    "proxy": Cost(105.0, 0.01),
    "host": Cost(100.0, 0.04),
    "aggregator": Cost(600.0, 0.045),
}
"""Of one without any fragment: what it takes with one, less what that one adds. Memory:
bench.pipeline, first row. Cores: from bench.queries with 1, 10 and 20 queries; with 20, a host
takes 0.22, an aggregator with its JVM 0.115, the broker 0.35, the proxy of four streams 0.03. The
supervisor's is an estimate.
"""

FRAGMENTS: Final[Mapping[str, Cost]] = {
    # A topic of JSON: bench.json_input, its readings a second of CPU time.
    "proxy": Cost(3.0, 0.005, 1e6 / 472_615),
    # What bench.pipeline's columns rise by from 10,000 to 1,000,000 readings/s.
    "orderer": Cost(1.0, 0.0055, 0.19),
    "root": Cost(1.0, 0.008),
    "aggregator": Cost(5.0, 0.0035, 0.24),
}
"""Of each fragment of a process: a stream of the proxy, an orderer or a root of a host. Cores as
above; memory is estimated, but a query takes 15 MB in all processes together (bench.queries).
"""

BROKER_A_LOG: Final = 0.0022
"""Cores of the broker for each log with four appends a second and one reader (bench.queries)."""
BROKER_US_A_READING: Final = 0.15
"""For each log that a reading goes through (bench.pipeline)."""
ROOT_US_A_KEY: Final = 1.0
"""For each row of a window (bench.codec, result rows)."""

CHILD_READINGS_PER_S_MAX: Final = 1_000_000
"""The largest that one orderer has been seen to sustain (bench.pipeline)."""

CUTS_PER_S: Final = 4
"""Each stream writes a record at every cut point, with what has come or only with its promise; ten
a second where a join reads it, a hundred where a query without a window does."""
READING_BYTES: Final = 9.0
FIELD_BYTES: Final = 8.0
"""In a source log: bench.codec, 253,103 bytes for 10,000 readings of two fields."""
RECORD_BYTES: Final = 140.0
"""What a record takes beside its readings, its batch in Kafka included."""
ROW_BYTES: Final = 380.0
"""A row of a result with one field, its share of the boundary included: JSON (bench.restart)."""
