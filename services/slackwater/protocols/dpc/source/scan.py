"""Scan of a source log for its next writer: the next id and the watermark in force."""

from __future__ import annotations

from dataclasses import dataclass, field

from slackwater.model.limits import NEVER
from slackwater.model.records import Kind, SourceRecord
from slackwater.primitives.ids import Contiguous


@dataclass(frozen=True, slots=True)
class Resume:
    """The point at which a log's writer continues (rule-7 and rule-9)."""

    next_id: int = 0
    watermark: int = NEVER
    largest: int = NEVER
    """The largest stime of the input so far."""
    position: int = 0
    """The input position to read on from."""


@dataclass(slots=True)
class LogScan:
    """The writer's state, recovered from a source log read in offset order.

    The scan applies the readers' acceptance rule, so that writer and readers agree on the end of
    the contiguous prefix. ``accepted`` lists, per spool, the runs of ids its accepted records have:
    two spools may have claimed the same ids (rule-6, rule-7, rule-9, trace-2).
    """

    ids: Contiguous = field(default_factory=lambda: Contiguous(0))
    inc: int = -1
    watermark: int = NEVER
    largest: int = NEVER
    position: int = 0
    spool: str = ""
    accepted: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)
    """Per spool, the input position of its last accepted record."""
    has_hole: bool = False
    """A record lies beyond the end of the prefix."""
    pending_gap: bool = False
    """The record is damaged: the prefix continues after it, with a gap (trace-15)."""
    affected_until: int = NEVER
    """Watermark up to which damaged records at the log's end, in no spool any more, may reach."""

    def see(self, offset: int, record: SourceRecord) -> None:
        """Process the next record of the log."""
        if record.kind is Kind.START:
            self.inc = max(self.inc, offset)
            self.spool = record.spool
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
        self.positions[self.spool] = record.input_position
        if record.readings:
            self.largest = max(self.largest, record.stime_max)
            self._won(record.first_id, record.last_id)

    def give_up(self, spool: str, next_id: int, watermark: int) -> None:
        """Record that ``spool`` no longer holds ids below ``next_id``; damaged ones are lost.

        At the log's end no later record's ids show how many were lost. Readers that read them
        before the damage continue at ``next_id``, so the next record must not have a smaller id:
        these readers would drop it as a repeat, and others would record no loss.
        """
        if self.pending_gap and spool == self.spool and next_id > self.ids.next_id:
            self.ids = Contiguous(next_id)
            self.affected_until = watermark

    def _won(self, first: int, last: int) -> None:
        runs = self.accepted.setdefault(self.spool, [])
        if runs and runs[-1][1] + 1 == first:
            runs[-1] = (runs[-1][0], last)
        else:
            runs.append((first, last))

    def has(self, spool: str, last_id: int) -> bool:
        """True if this spool's record that ends with ``last_id`` was accepted."""
        return any(first <= last_id <= last for first, last in self.accepted.get(spool, ()))

    def resume(self, spool: str) -> Resume:
        """The point at which a writer with this spool (or input) continues."""
        return Resume(
            next_id=self.ids.next_id,
            watermark=self.watermark,
            largest=self.largest if spool == self.spool else NEVER,
            position=self.positions.get(spool, 0),
        )
