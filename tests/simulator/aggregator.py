"""The aggregator as the pure function it is: one ordered record in, one delta per part out.

The real one is native Spark expressions; here the same figures are made with numpy. It may run
twice, send what it sent before, and be late: deltas have their identity from the record's offset.
A record that does not decode gives VOID (rule 19).
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np
from tests.simulator.process import Process

from slackwater.model.records import DeltaRecord, Kind, OrderedRecord, RootState

if TYPE_CHECKING:
    from tests.simulator.kafka import Log
    from tests.simulator.world import World


def part_of(key: str, parts: int) -> int:
    """Which part a key belongs to."""
    return crc32(key.encode()) % parts


def aggregate(record: OrderedRecord | None, seq: int, parts: int) -> list[DeltaRecord]:
    """One delta for each part."""
    if record is None:
        return [DeltaRecord(Kind.VOID, 0, 0, -1, 0, 0, seq) for _ in range(parts)]
    return [_of_part(record, seq, part, parts) for part in range(parts)]


def _of_part(record: OrderedRecord, seq: int, part: int, parts: int) -> DeltaRecord:
    mine = [i for i, key in enumerate(record.keys) if part_of(key, parts) == part]
    keys = tuple(record.keys[i] for i in mine)
    shape = (len(record.fields), len(mine))
    figures = [np.zeros(shape) for _ in range(5)]
    figures[3][:] = figures[4][:] = np.nan
    for f, values in enumerate(record.values):
        for k, i in enumerate(mine):
            run = values[int(record.offsets[i]) : int(record.offsets[i + 1])]
            run = run[~np.isnan(run)]
            if len(run):
                for figure, value in zip(figures, _five(run), strict=True):
                    figure[f, k] = value
    return DeltaRecord(
        kind=record.kind,
        child=record.child,
        replica=record.replica,
        inc=record.inc,
        bucket_start=record.bucket_start,
        bucket_end=record.bucket_end,
        seq=seq,
        piece=record.piece,
        pieces=record.pieces,
        first_id=record.first_id,
        last_id=record.last_id,
        frontier=record.frontier,
        missing=record.missing,
        gap=record.gap,
        keys=keys,
        keys_hash=_hash(keys),
        fields=record.fields,
        count=figures[0],
        sum=figures[1],
        m2=figures[2],
        min=figures[3],
        max=figures[4],
    )


def _five(run: np.ndarray) -> tuple[float, float, float, float, float]:
    total = float(run.sum())
    apart = run - total / len(run)
    return len(run), total, float((apart * apart).sum()), float(run.min()), float(run.max())


def _hash(keys: tuple[str, ...]) -> int:
    if not keys:
        return 0
    return int.from_bytes(blake2b("\0".join(keys).encode(), digest_size=7).digest(), "big") + 1


class SimAggregator(Process):
    """One running instance; it may host any fragments, and others may host the same."""

    def __init__(self, world: World, name: str, fragments: list[tuple[int, int]]) -> None:
        super().__init__(world, name)
        self.fragments = fragments
        self._inputs: list[tuple[Log[object], tuple[int, int, int]]] = []
        self._next: dict[str, int] = {}
        self._busy_until: dict[tuple[int, ...], int] = {}

    def start(self) -> None:
        """Rule 26: from the smallest ``whole`` over the parts' state records."""
        if not self.world.broker.up:
            self.later(20_000, self.start)
            return
        states = self.world.root_states()
        for child, replica in self.fragments:
            for line in (0, 1):
                log = self.world.ordered_log(child, replica, line)
                offset = min((whole_of(s, child, replica, line) for s in states), default=0)
                self._inputs.append((log, (child, replica, line)))
                self._next[log.name] = max(offset, log.beginning)
                self.watch(log)
        self.turn_in(0)

    def turn(self) -> None:
        if not self.world.broker.up:
            return
        for log, at in self._inputs:
            task = self.task_of(*at)
            left_us = self._busy_until.get(task, 0) - self.now
            if left_us > 0:
                self.turn_in(left_us)
                continue
            cost_us = self.world.config.aggregate_us
            some = log.read(self._next[log.name], 20 if cost_us else 500)
            for offset, value in some:
                self._aggregate(value, offset, at)
                self._next[log.name] = offset + 1
            if some and cost_us:
                self._busy_until[task] = self.now + cost_us * len(some)
                self.turn_in(cost_us * len(some))

    @staticmethod
    def task_of(child: int, replica: int, line: int) -> tuple[int, ...]:
        """Each partition has a task of its own: one does not wait for another (R33)."""
        return child, replica, line

    def _aggregate(self, value: object, offset: int, at: tuple[int, int, int]) -> None:
        assert value is None or isinstance(value, OrderedRecord)
        for part, delta in enumerate(aggregate(value, offset, self.world.config.parts)):
            self.producer.send(self.world.delta_log(part, *at), delta)


def whole_of(state: RootState | None, child: int, replica: int, line: int) -> int:
    """What an aggregator need not send again, by one part's state record."""
    for log in state.logs if state is not None else ():
        if (log.child, log.replica, log.line) == (child, replica, line):
            return log.whole
    return 0
