"""Cost constants of the resource plan (``plan.py``); those of each kind are in ``model/kinds.py``.

The cost of a process is its base, an idle cost per fragment, and a cost per reading. Constants that
name a bench are measured, on two cores of an AMD EPYC; the others are marked as estimates. For 1,
10 and 20 queries of bench.queries the model gives 0.38, 0.74 and 1.13 cores. Measured were 0.38,
0.78 and 1.15; the rehearsal itself took 0.09 of the last figure.

The cost of a process is its cost with one fragment, less the cost of the fragment: a stream of the
proxy, an orderer or a root of a host, a fragment of an aggregator. Memory is that of
bench.pipeline, first row. Cores are fitted to bench.queries with 1, 10 and 20 queries: with 20, a
host takes 0.22, an aggregator with its JVM 0.115, the broker 0.35, the proxy of four streams 0.03.
A query takes 15 MB in all processes together (bench.queries); how they are divided is an estimate.
"""

from __future__ import annotations

from typing import Final

from slackwater.model.kinds import Cost

SUPERVISOR: Final = Cost(95.0, 0.01)
"""The cores are an estimate."""

BROKER_A_LOG: Final = 0.0022
"""Cores of the broker for each log with four appends a second and one reader (bench.queries)."""
BROKER_US_A_READING: Final = 0.15
"""CPU time of the broker for each reading and log that it passes (bench.pipeline)."""
ROOT_US_A_KEY: Final = 1.0
"""CPU time of a root for each row of a window (bench.codec, result rows)."""

DELIVERY_US_A_ROW: Final = 6.0
"""CPU time of a delivery for each row of a window (bench.alerts)."""

CHILD_READINGS_PER_S_MAX: Final = 1_000_000
"""The highest rate measured with one orderer (bench.pipeline)."""

CUTS_PER_S: Final = 4
"""Records per second and stream: one at each cut point, with readings or with a boundary alone. A
stream read by a join has 10 per second, by a query without a window 100."""
READING_BYTES: Final = 9.0
FIELD_BYTES: Final = 8.0
"""Size in a source log: 253,103 bytes for 10,000 readings of two fields (bench.codec)."""
RECORD_BYTES: Final = 140.0
"""Size of a record without its readings, including its batch in Kafka."""
ROW_BYTES: Final = 380.0
"""Size of a JSON result row with one field, including its share of the boundary (bench.restart)."""
