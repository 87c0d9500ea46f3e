"""guarantee-5, bounded memory: a process's memory does not grow with the length of a failure.

The bounds follow from the deployment alone: the read-ahead of a line (rule-12), and the data
between a reading's arrival and its window's answer in normal operation.
"""

from __future__ import annotations

import re
from typing import Final

from tests.simulator.checkers.answers import Violation
from tests.simulator.checkers.facts import Facts
from tests.simulator.clock import MS, SECOND
from tests.simulator.config import ROW_BYTES, WorldConfig
from tests.simulator.readings import shared_keys

_GENERATION: Final = re.compile(r"\.g\d+(?=\.)")


def check(facts: Facts) -> None:
    """Check that no sample of any process exceeds its bound."""
    config = facts.config
    orderer, root = orderer_bytes_max(config), root_slices_max(config)
    bounds = dict.fromkeys(config.root_names, root)
    if not config.children_of:
        bounds |= dict.fromkeys(config.orderer_names, orderer)
    for sample in facts.history.samples:
        for process, held in sample.held.items():
            bound = bounds.get(_GENERATION.sub("", process), held)
            if held > bound:
                raise Violation("memory", sample.at, f"{process} holds {held}, more than {bound}")


def span_us(config: WorldConfig) -> int:
    """Return an upper bound of the event time in flight in a healthy run."""
    near = config.bound_us + config.lateness_us + config.window_us + config.skew_us_max
    near += config.join_us
    return 2 * near + 300 * MS


def buckets_in(span_us: int, config: WorldConfig) -> int:
    """Return the number of buckets, with the cut points of all readers."""
    slides = [window.slide_us for window in config.others] or [config.slide_us]
    return span_us // config.w_us + sum(2 * (span_us // slide) for slide in slides)


def orderer_bytes_max(config: WorldConfig) -> int:
    """Return the bound of an orderer: two lines with H of every stream, and data in flight."""
    ahead_us = span_us(config) + config.ahead_buckets_max * config.w_us
    of_stream = 48 * (SECOND // config.habits.every_us + buckets_in(SECOND, config))
    per_second = max(sum(_of_input(config, i, of_stream) for i in of) for of in config.children)
    of_buckets = per_second * ahead_us // SECOND
    of_bytes = config.ahead_bytes_max + per_second * span_us(config) // SECOND
    return 4_000 + 2 * min(of_buckets, of_bytes)


def _of_input(config: WorldConfig, name: str, of_stream: int) -> int:
    """Return the bytes of an input in a second; for a query both versions of each window."""
    reads = config.reads
    if reads is None or name != reads.name:
        return of_stream
    windows = SECOND // reads.slide_us + 1
    rows = windows * (reads.habits.keys * len(reads.sources) + len(shared_keys))
    if reads.rows:
        rows = len(reads.sources) * (1 + SECOND // reads.habits.every_us)
    return 2 * (windows * 512 * reads.parts + rows * ROW_BYTES)


def root_slices_max(config: WorldConfig) -> int:
    """Return the bound per child: both logs of all replicas, 2 H ahead, and the cells."""
    buckets = buckets_in(span_us(config) + 2 * config.ahead_buckets_max * config.w_us, config)
    return 100 + len(config.children) * (600 + buckets * (1 + 3 * config.replicas))
