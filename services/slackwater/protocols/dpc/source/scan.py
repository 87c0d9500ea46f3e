"""Scan of a source log by its next writer, to find the next id and the watermark in force.

A writer continues at the end of the log's contiguous prefix (rule-7). The scan finds this end by
the readers' rules: repeats, records of zombies and damaged records do not move it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from slackwater.model.limits import NEVER
from slackwater.model.records import NO_EPOCH, Kind, SourceRecord
from slackwater.primitives.ids import Contiguous


class InputPosition(NamedTuple):
    """Where an input continues, and the leader epoch that its record gives (rule-31)."""

    position: int
    epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class Resume:
    """The point at which a log's writer continues (rule-7 and rule-9)."""

    next_id: int = 0
    watermark: int = NEVER
    largest: int = NEVER
    """The largest stime of the input so far."""
    position: int = 0
    """The input position to read on from."""
    input_epoch: int = NO_EPOCH


@dataclass(slots=True)
class LogScan:
    """The writer's state, recovered from a source log read in offset order.

    ``accepted`` has, per spool, the runs (first, last) of ids that its accepted records have: two
    spools may have claimed the same ids (rule-6, rule-7, rule-9, trace-2).
    """

    ids: Contiguous = field(default_factory=lambda: Contiguous(0))
    inc: int = -1
    watermark: int = NEVER
    largest: int = NEVER
    position: int = 0
    spool: str = ""
    accepted: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    positions: dict[str, InputPosition] = field(default_factory=dict)
    """Per spool, the input position of its last accepted record.

    Records of a spool do not name it. If retention has deleted their START it is not known: ``""``.
    """
    started: dict[str, None] = field(default_factory=dict)
    """The spools that START named, in order; one may not have a record yet."""
    has_hole: bool = False
    """True if a record beyond the end of the prefix was read, and the record at its end was not."""
    pending_gap: bool = False
    """True after a damaged record at the prefix's end: the record after it may begin with a later
    id, and the ids between are a gap (trace-15)."""
    was_cut: bool = False
    """True until a record has been read after those that retention has deleted. What is known here
    is older than they are (trace-15)."""
    affected_until: int = NEVER
    """Upper bound of the event times of lost readings: damaged at the log's end, in no spool."""

    def see(self, offset: int, record: SourceRecord) -> None:
        """Process the next record of the log."""
        if self.was_cut and record.kind is not Kind.VOID:
            self._go_on_behind_cut(record)
        if record.kind is Kind.START:
            self.inc = max(self.inc, offset)
            self.spool = record.spool
            self.started.pop(record.spool, None)
            self.started[record.spool] = None
            if record.gap:
                self.ids, self.accepted = Contiguous(record.first_id), {}
        elif record.kind is Kind.VOID:
            self.pending_gap = not self.has_hole
            return
        elif record.inc < self.inc:
            return
        is_ahead = record.first_id > self.ids.next_id
        if is_ahead and self.pending_gap:
            self.ids = Contiguous(record.first_id)
        if not self.ids.accept(record.first_id, record.last_id):
            self.has_hole |= is_ahead
            return
        self.has_hole = self.pending_gap = False
        self.watermark = max(self.watermark, record.boundary)
        if record.kind is Kind.START:
            return
        if record.spool != self.spool and record.spool:
            self.spool = record.spool  # retention has deleted START
            self.started.setdefault(record.spool, None)
        self.positions[self.spool] = InputPosition(record.input_position, record.input_epoch)
        if record.readings:
            self.largest = max(self.largest, record.stime_max)
            self._add_accepted(record.first_id, record.last_id)

    def _go_on_behind_cut(self, record: SourceRecord) -> None:
        """Take the first record left, whose writer is known if it is the one known so far."""
        self.was_cut = False
        if record.kind is Kind.START:
            return
        if record.inc == self.inc:
            self.accepted[self.spool] = [(0, record.first_id - 1)]
        else:
            self.inc = max(self.inc, record.inc)
            self.started[self.spool] = None
            self.positions.pop(self.spool, None)
            self.spool = ""

    def give_up(self, spool: str, next_id: int, watermark: int) -> None:
        """Record that ``spool`` no longer holds ids below ``next_id``: damaged ones are lost.

        At the log's end no later record shows how many ids were lost. A reader that has read them
        before the damage expects ``next_id``. With a smaller id, the next record would be a repeat
        to this reader, and the others would record no loss. ``watermark`` is the one after the lost
        readings.
        """
        if self.pending_gap and spool == self.spool and next_id > self.ids.next_id:
            self.ids = Contiguous(next_id)
            self.affected_until = watermark

    def _add_accepted(self, first: int, last: int) -> None:
        runs = self.accepted.setdefault(self.spool, [])
        if runs and runs[-1][1] + 1 == first:
            runs[-1] = (runs[-1][0], last)
        else:
            runs.append((first, last))

    def has(self, spool: str, last_id: int) -> bool:
        """True if this spool's record that ends with ``last_id`` was accepted."""
        return any(first <= last_id <= last for first, last in self.accepted.get(spool, ()))

    def resume(self, spool: str) -> Resume:
        """The point at which a writer with this spool (or this input) continues."""
        at = self.positions.get(spool, InputPosition(0))
        return Resume(
            next_id=self.ids.next_id,
            watermark=self.watermark,
            largest=self.largest if spool == self.spool else NEVER,
            position=at.position,
            input_epoch=at.epoch,
        )
