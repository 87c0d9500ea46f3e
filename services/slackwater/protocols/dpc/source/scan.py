"""What a source log tells its next writer: where the ids go on, and what has been promised."""

from __future__ import annotations

from dataclasses import dataclass, field

from slackwater.model.limits import NEVER
from slackwater.model.records import Kind, SourceRecord
from slackwater.primitives.ids import Contiguous


@dataclass(frozen=True, slots=True)
class Resume:
    """Where a log's writer goes on (rule-7 and rule-9)."""

    next_id: int = 0
    watermark: int = NEVER
    largest: int = NEVER
    """The largest stime so far in the input."""
    position: int = 0
    """Where the input goes on."""


@dataclass(slots=True)
class LogScan:
    """What a source log says about its writer, read in the order of its offsets.

    It applies the readers' own acceptance rule, so writer and readers agree on where the
    contiguous prefix ends. ``accepted`` lists, per spool, the runs of ids its records won: two
    spools may have claimed the same ids (trace-2).

    See rule-6, rule-7, rule-9.
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
    """A damaged one does, and no other: behind it the prefix goes on, and a gap is in it
    (trace-15)."""
    affected_until: int = NEVER
    """What is damaged at the log's end, and in no spool any more, was promised up to this time."""

    def see(self, offset: int, record: SourceRecord) -> None:
        """The next record of the log."""
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
        """``spool`` has given up what lies below ``next_id``: if that is damaged, it is lost.

        At the log's end no record's ids tell how much that was. Who read it while it was whole goes
        on at ``next_id``, so what comes next must not have a smaller id, or it would be a repeat to
        them, and for others no loss at all.
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
        """Did this spool's record that ends with ``last_id`` win its ids?"""
        return any(first <= last_id <= last for first, last in self.accepted.get(spool, ()))

    def resume(self, spool: str) -> Resume:
        """Where a writer with this spool (or input) goes on."""
        return Resume(
            next_id=self.ids.next_id,
            watermark=self.watermark,
            largest=self.largest if spool == self.spool else NEVER,
            position=self.positions.get(spool, 0),
        )
