"""The writer of a persistent source log: assigns ids and watermarks, and refuses unusable readings.

DPC's data sources log every tuple durably before it is visible (section 2.2) and send boundary
tuples, which promise that nothing older follows (section 4.2.1). ``SourceCore`` does this without
clock, disk or broker. Readings come in as columns, in input order; records go out, each with
contiguous ids and the watermark that holds after it.

A reading below the watermark is late. The stream's ``LateRule`` decides which readings these are:

* ``input``: watermarks derive from the input alone (a file, or a stream whose boundaries come from
  its readings). A reading is late if its time lies more than ``disorder`` below the largest time
  before it, or below a boundary in the input. That is a function of the input, independent of
  flushes, so a restart decides the same, and a batch computation can apply the rule. The watermark
  never passes a usable reading: later input is above (largest time so far) - ``disorder``, or late.
* ``promise``: watermarks follow the clock, and a reading is late if it is below the watermark.

Where readings are compared with a clock (``now_us``), no watermark passes it, so no window is
stable before its end, whatever a device stamps. A reading ahead of the clock by more than
``ahead_us`` is refused. One that is ahead by less is logged. For the largest time, and so for the
watermark and for which readings are late, it counts as if it had been on its way as long as the
readings of devices that are not ahead (``lag.py``). A boundary in the input that is ahead counts
as one of now.

A watermark from the clock covers only input that was read to an end observed after it (trace-10);
the caller passes ``clock_us`` in that case. Boundaries of a stream with ``expect_every`` never come
from a clock, whether the duration is declared or learned. If it is learned, the core also counts
the gaps between readings (``primitives/lateness.py``).

Rejected: deciding lateness when a batch is flushed. That saves one comparison, but the set of late
readings would depend on timing, and two runs over one file would differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from slackwater.model.limits import NEVER
from slackwater.model.records import (
    Gap,
    Kind,
    SourceColumns,
    SourceRecord,
    type_i64,
)
from slackwater.primitives.lateness import Gaps, Learning
from slackwater.primitives.windows import Grid
from slackwater.protocols.dpc.source.arrived import Arrived, cut, join
from slackwater.protocols.dpc.source.lag import Lags
from slackwater.protocols.dpc.source.scan import Resume

Reason = Literal["malformed", "crash", "late", "before_start", "ahead", "superseded", "duplicate"]
LateRule = Literal["input", "promise"]
READINGS_DEFAULT_MAX: Final = 10_000
BYTES_DEFAULT_MAX: Final = 256 * 1024
CLOCK_ERROR_US_MAX: Final = 100_000
"""By how much clocks that are synchronized differ: a reading ahead by so much counts as of now."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Readings of an ``Arrived`` that are not logged; with ``before_start``: logged, in no window.

    ``indices`` are those of the readings in its columns.
    """

    reason: Reason
    indices: npt.NDArray[np.intp]
    clock_us: int | None = None
    """With ``ahead``: the time of the clock."""


@dataclass(frozen=True, slots=True)
class SourceRules:
    """The rules of a source log, from the stream's declaration."""

    log: str
    fields: tuple[str, ...]
    disorder_us: int
    late: LateRule
    clock_boundaries: bool
    """False with ``expect_every``: the stream's boundaries come from readings alone."""
    ahead_us: int | None = None
    """How far a reading may be ahead of the clock; None: readings are not compared with a clock."""
    readings_max: int = READINGS_DEFAULT_MAX
    bytes_max: int = BYTES_DEFAULT_MAX
    learning: Learning | None = None
    """With ``expect_every: auto``: how the value is learned from gaps between readings."""
    partitions: int = 0
    """Number of the stream's source logs; 0 for a stream of one log (rule-30)."""

    @property
    def rows_max(self) -> int:
        """Maximum readings in one record, before key lengths are considered."""
        row_bytes = 8 + 4 + 8 * len(self.fields)
        return max(1, min(self.readings_max, self.bytes_max // row_bytes))


@dataclass(frozen=True, slots=True)
class Saved:
    """The state of a core before a flush."""

    next_id: int
    watermark: int
    chunks: tuple[Arrived, ...]
    waiting: int
    lost: int


class SourceCore:
    """One source log, from readings to records."""

    def __init__(self, rules: SourceRules, resume: Resume | None = None) -> None:
        resume = resume or Resume()
        self.rules = rules
        self.next_id = resume.next_id
        self.watermark = resume.watermark
        self.largest = self._resumed_largest(resume)
        self._input_watermark = NEVER
        self._now_us = NEVER
        """The latest time of the clock that readings are compared with; NEVER without one."""
        self._offered_us = NEVER
        """The clock when readings were last offered."""
        self._lags = Lags(rules.ahead_us or 0)
        self.gaps = Gaps(rules.learning) if rules.learning is not None else None
        self.position = resume.position
        self.input_epoch = resume.input_epoch
        """Leader epoch of the message before ``position`` or of a later one, if it is known."""
        self.input_identity = ""
        """Of an input that can be read again: the identity that ``position`` belongs to."""
        self.waiting = 0
        self._chunks: list[Arrived] = []
        self._grids: tuple[Grid, ...] = ()
        self._start_us: int | None = None
        self._end_us: int | None = None
        self._ended = False
        self._lost = 0

    def _resumed_largest(self, resume: Resume) -> int:
        """Return the largest time before the restart.

        That of the log's readings may be ahead of the clock then. The watermark shows what counted:
        it was this less ``disorder``, or more, and then nothing depends on it.
        """
        if self.rules.ahead_us is None or resume.watermark == NEVER:
            return resume.largest
        return min(resume.largest, resume.watermark + self.rules.disorder_us)

    # What comes in.

    def read_by(self, grids: Sequence[Grid], start_us: int | None) -> None:
        """Set the cut points of the queries over this stream and their smallest start time."""
        self._grids = tuple(grids)
        self._start_us = start_us

    def follow(self, stimes: type_i64) -> int:
        """Replay readings that an earlier incarnation processed; return how many were late.

        Only under the rule ``input``: their times determine which later readings are late.
        """
        assert self.rules.late == "input"
        if not len(stimes):
            return 0
        late = stimes < self._largest_before(stimes) - self.rules.disorder_us
        return int(np.count_nonzero(late))

    def advance_watermark(self, t_us: int, now_us: int | None = None) -> bool:
        """Raise the input's watermark to that of a boundary message in it.

        Return False, and change nothing, if it is as far ahead of the clock as no reading may be.
        """
        clock_us = self._clock(now_us)
        if clock_us is not None and t_us > clock_us + self._ahead_us:
            return False
        self._input_watermark = max(self._input_watermark, t_us)
        return True

    def offer(self, arrived: Arrived, now_us: int | None = None) -> tuple[Refused, ...]:
        """Accept readings, and return those that cannot be used.

        ``now_us``: the time of the clock that they are compared with; None if there is none.
        """
        self.position = arrived.position
        clock_us = self._clock(now_us)
        if not len(arrived):
            return ()
        refused: list[Refused] = []
        usable = np.ones(len(arrived), np.bool_)
        if clock_us is not None:
            usable &= arrived.stimes <= clock_us + self._ahead_us
            _note(refused, "ahead", ~usable, clock_us)
        late = self._late(arrived.stimes, usable)
        self._offered_us = NEVER if clock_us is None else self._now_us
        _note(refused, "late", late)
        usable &= ~late
        if self._start_us is not None:
            _note(refused, "before_start", usable & (arrived.stimes < self._start_us))
        kept = arrived if usable.all() else arrived.take(usable)
        if len(kept):
            self._chunks.append(kept)
            self.waiting += len(kept)
        return tuple(refused)

    @property
    def input_watermark(self) -> int:
        """The watermark of the boundary messages in the input, as far as the clock has come."""
        if self._now_us == NEVER:
            return self._input_watermark
        return min(self._input_watermark, self._now_us)

    def _clock(self, now_us: int | None) -> int | None:
        """Note the time, and return that of the clock that readings are compared with, if any."""
        if self.rules.ahead_us is None or now_us is None:
            return None
        self._now_us = max(self._now_us, now_us)
        return now_us

    @property
    def _ahead_us(self) -> int:
        assert self.rules.ahead_us is not None
        return self.rules.ahead_us

    def _late(self, stimes: type_i64, usable: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        late = stimes < max(self.watermark, self.input_watermark)
        counting = np.where(usable, stimes, NEVER)
        before = (
            self._largest_before(counting)
            if self._now_us == NEVER
            else self._largest_before_by_clock(counting)
        )
        if self.rules.late == "input":
            late |= stimes < before - self.rules.disorder_us
        late &= usable
        return late

    def _largest_before_by_clock(self, stimes: type_i64) -> type_i64:
        """Per reading, the largest time before it that counts; updates ``largest``."""
        now_us, lag_us = self._now_us, self._lags.us
        is_wrong = stimes > now_us + CLOCK_ERROR_US_MAX
        self._lags.see(stimes, ~is_wrong, now_us)
        is_ahead = stimes > now_us
        if not is_ahead.any():
            return self._largest_before(stimes)
        # Now is later than the arrival of its neighbours. Among them it counts as one of the
        # time before which all earlier readings were offered.
        offered_us = self._offered_us
        counting = np.where(is_ahead, offered_us, stimes)
        if offered_us > NEVER:
            counting = np.where(is_wrong, offered_us - lag_us, counting)
        before = self._largest_before(counting)
        is_right = (is_ahead & ~is_wrong).any()
        self.largest = max(self.largest, now_us if is_right else now_us - self._lags.us)
        return before

    def _largest_before(self, stimes: type_i64) -> type_i64:
        """Per reading, the largest time before it in the input; updates ``largest``."""
        before = np.empty_like(stimes)
        before[0] = self.largest
        before[1:] = stimes[:-1]
        np.maximum.accumulate(before, out=before)
        if self.gaps is not None:
            self.gaps.add((stimes - before)[before > NEVER])
        self.largest = max(int(before[-1]), int(stimes[-1]))
        return before

    def lost(self, readings: int) -> None:
        """Count readings lost from the input; the next record reports the gap (rule-28)."""
        self._lost += readings

    def end(self, end_us: int | None) -> None:
        """Mark the input as exhausted.

        Its watermark is then ``end_us``, independent of the clock (trace-24). With None it is
        determined as before.
        """
        self._ended = True
        self._end_us = end_us

    # What goes out.

    @property
    def grids(self) -> tuple[Grid, ...]:
        """The cut points of the queries over this stream."""
        return self._grids

    @property
    def is_full(self) -> bool:
        """True if enough readings wait for a full record."""
        return self.waiting >= self.rules.rows_max

    def next_flush_us(self, after_us: int, default: Grid) -> int:
        """Event clock time at which the next cut point's watermark is due."""
        disorder = self.rules.disorder_us
        grids = self._grids or (default,)
        return min(grid.next_cut(after_us - disorder) for grid in grids) + disorder

    def begin_at(self, watermark: int) -> None:
        """Set the first watermark of a log that begins while its stream runs (rule-30)."""
        self.watermark = max(self.watermark, watermark)

    def claim(self, clock_us: int | None, follow_us: int | None = None) -> int:
        """The highest watermark that may be sent now, in us of event time.

        ``clock_us``: event clock time at which an end of the input was observed, if the input has
        been read to that end. ``follow_us``: the watermark of other logs, for a log that has never
        held a reading.
        """
        if self._ended and self._end_us is not None:
            return max(self.watermark, self._end_us)
        if self._now_us > NEVER and clock_us is not None:
            self._now_us = max(self._now_us, clock_us)
        claims = [self.watermark, self.input_watermark]
        if self.rules.late == "input" and self.largest > NEVER:
            claims.append(self.largest - self.rules.disorder_us)
        if clock_us is not None and self.rules.clock_boundaries:
            claims.append(clock_us - self.rules.disorder_us)
        if follow_us is not None:
            claims.append(follow_us)
        return max(claims)

    def flush(
        self, inc: int, clock_us: int | None = None, follow_us: int | None = None
    ) -> tuple[SourceRecord, ...]:
        """Records of all waiting readings; a BOUNDARY if none wait and the watermark rises."""
        claim = self.claim(clock_us, follow_us)
        if not self.waiting:
            if claim <= self.watermark:
                return ()
            self.watermark = claim
            return (self._boundary(Kind.BOUNDARY, inc),)
        pieces = cut(join(self._chunks), self.rules.rows_max, self.rules.bytes_max)
        self._chunks, self.waiting = [], 0
        # The watermark of a record is bounded by the readings of later records.
        lowest, boundaries = claim, [0] * len(pieces)
        for i in range(len(pieces) - 1, -1, -1):
            boundaries[i] = max(self.watermark, lowest)
            lowest = min(lowest, int(pieces[i].stimes.min()))
        assert lowest >= self.watermark, "a reading below the watermark was accepted"
        records = []
        for i, (piece, boundary) in enumerate(zip(pieces, boundaries, strict=True)):
            last = i == len(pieces) - 1
            position = self.position if last else int(piece.positions[-1])
            records.append(self._insertion(piece, inc, boundary, position))
        return tuple(records)

    def saved(self) -> Saved:
        """The state that a flush changes; for ``restore``, if the records cannot be stored."""
        return Saved(self.next_id, self.watermark, tuple(self._chunks), self.waiting, self._lost)

    def restore(self, saved: Saved) -> None:
        """Undo the last flush."""
        self.next_id, self.watermark = saved.next_id, saved.watermark
        self._chunks, self.waiting = list(saved.chunks), saved.waiting
        self._lost = saved.lost

    def start(self, spool: str, affected_until: int = NEVER, *, anew: bool = False) -> SourceRecord:
        """The record that begins an incarnation (rule-6).

        ``affected_until``: upper bound of the event times of damaged records right before it
        (trace-15). ``anew``: the ids used so far are unknown, and readers continue with the id of
        this record.
        """
        begun = self._boundary(Kind.START, 0, spool)
        affected_until = max(begun.stime_max, affected_until)
        gap = (Gap(self.rules.log, 0),) if anew else ()
        return replace(begun, stime_min=affected_until, stime_max=affected_until, gap=gap)

    def first_position(self, inc: int) -> SourceRecord:
        """The record of where an input begins that can be read again (rule-31).

        Without it, whoever continues before the first reading would begin anew, where the input
        begins or ends by then.
        """
        return self._boundary(Kind.BOUNDARY, inc)

    def _boundary(self, kind: Kind, inc: int, spool: str = "") -> SourceRecord:
        return SourceRecord(
            kind=kind,
            stream=self.rules.log,
            inc=inc,
            first_id=self.next_id,
            last_id=self.next_id - 1,
            boundary=self.watermark,
            stime_min=self.watermark,
            stime_max=self.watermark,
            input_position=self.position,
            spool=spool or self.input_identity,
            gap=() if kind is Kind.START else self._take_gap(),
            partitions=self.rules.partitions,
            input_epoch=self.input_epoch,
        )

    def _take_gap(self) -> tuple[Gap, ...]:
        lost, self._lost = self._lost, 0
        return (Gap(self.rules.log, lost),) if lost else ()

    def _insertion(self, piece: Arrived, inc: int, boundary: int, position: int) -> SourceRecord:
        first = self.next_id
        self.next_id += len(piece)
        self.watermark = boundary
        return SourceRecord(
            kind=Kind.INSERTION,
            stream=self.rules.log,
            inc=inc,
            first_id=first,
            last_id=self.next_id - 1,
            boundary=boundary,
            stime_min=int(piece.stimes.min()),
            stime_max=int(piece.stimes.max()),
            input_position=position,
            spool=self.input_identity,
            gap=self._take_gap(),
            columns=SourceColumns(
                piece.stimes, piece.key_index, piece.keys, self.rules.fields, piece.values
            ),
            input_epoch=self.input_epoch,
        )


def _note(
    refused: list[Refused],
    reason: Reason,
    mask: npt.NDArray[np.bool_],
    clock_us: int | None = None,
) -> None:
    if mask.any():
        refused.append(Refused(reason, np.flatnonzero(mask), clock_us))
