"""Model of the aggregator, a pure function: one ordered record in, one delta per part out.

The real one consists of native Spark expressions; here the same figures are computed one by one. It
may run twice, repeat records, and be late: a delta's identity is the record's offset. A record that
does not decode gives VOID (rule-19).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from math import isnan, nan
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np
from tests.simulator.clock import SECOND
from tests.simulator.kafka import PositionGoneError
from tests.simulator.process import Process

from slackwater.model.records import DeltaRecord, Kind, OrderedRecord, RootState, type_f64

if TYPE_CHECKING:
    from tests.simulator.kafka import Log
    from tests.simulator.queries import SimQuery
    from tests.simulator.world import World

Fragment = tuple["SimQuery", int, int]
"""Key of a query's fragment: child, replica."""

HOLE_REPEAT_US = 2 * SECOND
"""The production value."""


@lru_cache(maxsize=4096)
def part_of(key: str, parts: int) -> int:
    """Return the part of a key."""
    return crc32(key.encode()) % parts


def aggregate(record: OrderedRecord | None, seq: int, parts: int) -> list[DeltaRecord]:
    """Return one delta for each part."""
    if record is None:
        return [DeltaRecord(Kind.VOID, 0, 0, -1, 0, 0, seq) for _ in range(parts)]
    figures = _figures(record)
    return [_of_part(record, figures, seq, part, parts) for part in range(parts)]


def _figures(record: OrderedRecord) -> list[list[list[float]]]:
    """Return count, sum, m2, min and max by field and key, by plain loops."""
    runs = list(pairwise(map(int, record.offsets.tolist())))
    columns = [values.tolist() for values in record.values]
    return [[_five(values[low:high]) for low, high in runs] for values in columns]


def _five(run: list[float]) -> list[float]:
    run = [value for value in run if not isnan(value)]
    if not run:
        return [0.0, 0.0, 0.0, nan, nan]
    total = sum(run)
    mean = total / len(run)
    return [len(run), total, sum((v - mean) * (v - mean) for v in run), min(run), max(run)]


def _of_part(
    record: OrderedRecord, figures: list[list[list[float]]], seq: int, part: int, parts: int
) -> DeltaRecord:
    mine = [i for i, key in enumerate(record.keys) if part_of(key, parts) == part]
    keys = tuple(record.keys[i] for i in mine)
    columns: Sequence[type_f64] = _NOTHING
    if mine:
        table = np.array([[of_field[i] for i in mine] for of_field in figures], float)
        columns = tuple(table[:, :, i] for i in range(5))
    return DeltaRecord(
        record.kind,
        record.child,
        record.replica,
        record.inc,
        record.bucket_start,
        record.bucket_end,
        seq,
        record.piece,
        record.pieces,
        record.first_id,
        record.last_id,
        record.frontier,
        record.missing,
        record.gap,
        keys,
        _hash(keys),
        record.fields,
        *columns,
    )


_NOTHING: Sequence[type_f64] = (np.zeros((0, 0)),) * 5


@lru_cache(maxsize=4096)
def _hash(keys: tuple[str, ...]) -> int:
    if not keys:
        return 0
    return int.from_bytes(blake2b("\0".join(keys).encode(), digest_size=7).digest(), "big") + 1


class SimAggregator(Process):
    """A running instance; it may run any fragments, and other instances may run the same ones."""

    def __init__(self, world: World, name: str, fragments: list[Fragment]) -> None:
        super().__init__(world, name)
        self.fragments = fragments
        self._inputs: list[tuple[Log[object], SimQuery, tuple[int, int, int]]] = []
        self._next: dict[str, int] = {}
        self._begun: dict[str, int] = {}
        self._busy_until: dict[tuple[object, ...], int] = {}

    def start(self) -> None:
        """Start at the smallest ``contiguous_seq`` of all readers' state records (rule-26)."""
        if not self.world.broker.up:
            self.later(20_000, self.start)
            return
        for fragment in self.fragments:
            self._take_on(fragment)
        self.world.works(self)
        self.turn_in(0)

    def add(self, fragment: Fragment) -> None:
        """Run one more fragment."""
        self.fragments.append(fragment)
        if self._inputs or len(self.fragments) == 1:
            self._take_on(fragment)
            self.turn_in(0)

    def remove(self, fragment: Fragment) -> None:
        """Run a fragment no longer."""
        query, child, replica = fragment
        self.fragments.remove(fragment)
        self._inputs = [
            each for each in self._inputs if (each[1], *each[2][:2]) != (query, child, replica)
        ]

    def _take_on(self, fragment: Fragment) -> None:
        query, child, replica = fragment
        for line in (0, 1):
            log = query.ordered_log(child, replica, line)
            self._inputs.append((log, query, (child, replica, line)))
            self._begin(log, query, (child, replica, line))
            self.watch(log)

    def _begin(self, log: Log[object], query: SimQuery, at: tuple[int, int, int]) -> None:
        states = [state for reader in query.readers for state in reader.root_states()]
        offset = min((contiguous_seq_of(state, *at) for state in states), default=0)
        self._next[log.name] = max(offset, log.beginning)
        self._begun[log.name] = self.now

    def _send_again(self) -> None:
        """Replay from the roots' positions when a root misses records (rule-11)."""
        repeat_us = self.world.config.paced(HOLE_REPEAT_US)
        for log, query, at in self._inputs:
            is_settled = self.now - self._begun[log.name] > repeat_us
            if is_settled and query.is_missed(*at):
                self._begin(log, query, at)

    def turn(self) -> None:
        if not self.world.broker.up:
            return
        self._send_again()
        for log, query, at in self._inputs:
            task = query.name, *self.task_of(*at)
            left_us = self._busy_until.get(task, 0) - self.now
            if left_us > 0:
                self.turn_in(left_us)
                continue
            cost_us = self.world.config.aggregate_us
            try:
                some = log.read(self._next[log.name], 20 if cost_us else 500)
            except PositionGoneError:
                self.world.restart(self)  # nothing is skipped (``failOnDataLoss``)
                return
            for offset, value in some:
                self._aggregate(query, value, offset, at)
                self._next[log.name] = offset + 1
            if some and cost_us:
                self._busy_until[task] = self.now + cost_us * len(some)
                self.turn_in(cost_us * len(some))

    @staticmethod
    def task_of(child: int, replica: int, line: int) -> tuple[int, ...]:
        """Return the partition's task; each has its own, so none waits for another (trace-33)."""
        return child, replica, line

    def _aggregate(
        self, query: SimQuery, value: object, offset: int, at: tuple[int, int, int]
    ) -> None:
        assert value is None or isinstance(value, OrderedRecord)
        for part, delta in enumerate(aggregate(value, offset, query.config.parts)):
            self.producer.send(query.delta_log(part, *at), delta)


def contiguous_seq_of(state: RootState | None, child: int, replica: int, line: int) -> int:
    """Return the position before which no replay is needed, by one part's state record."""
    for log in state.logs if state is not None else ():
        if (log.child, log.replica, log.line) == (child, replica, line):
            return log.contiguous_seq
    return 0
