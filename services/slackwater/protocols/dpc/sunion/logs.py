"""The logs of an orderer: a cursor of each line in every source log and result topic.

A cursor is fed by the live consumer while it is attached, and by a catch-up reader while it is
parked. A cursor too far ahead of its line is parked, so that memory is bounded however far a stream
runs ahead or however long a failure lasts (rule-12).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slackwater.model.errors import HeldTooMuchError
from slackwater.model.limits import FOREVER
from slackwater.model.records import (
    Hole,
    OrdererState,
    ResultBatch,
    SourcePosition,
    SourceRecord,
    StreamPositions,
)
from slackwater.protocols.common.inputs import InputLog, Inputs
from slackwater.protocols.common.line import LINES, Line, LineName
from slackwater.protocols.dpc.sunion.chain import NullCursor, ResultCursor
from slackwater.protocols.dpc.sunion.config import OrdererConfig
from slackwater.protocols.dpc.sunion.cursor import SourceCursor
from slackwater.protocols.dpc.sunion.log_cursor import Cursor, LiveCursor


class OrdererLogs:
    """Feeds the cursors of both lines, and parks those that are too far ahead.

    Args:
        config: the orderer's configuration.
        line: the positions of the two lines; only read here.
        state: the state record, with a position of each line in each log.
        lookback_us: how far below a line's position readings are still needed.
        suppress_until: by the index of a log, its end offset at START (trace-6).
    """

    def __init__(
        self,
        config: OrdererConfig,
        line: Line,
        state: OrdererState,
        lookback_us: int,
        suppress_until: Mapping[int, int],
    ) -> None:
        self._config = config
        self._line = line
        self._lookback_us = lookback_us
        self.stable: list[Cursor] = []
        self.live: list[LiveCursor] = []
        for log, positions in enumerate(state.streams):
            self._open(log, positions.rebuild, positions.live if line.forked else positions.rebuild)
        self._excess: dict[tuple[LineName, int], int] = {}
        """By line and log: ``excess_bytes`` at the last step, where it exceeded the log's share of
        H. Parking a cursor removes its entry."""
        cursors = enumerate(zip(self.live, self.stable, strict=True))
        self.inputs: Inputs[int, Cursor] = Inputs(
            {
                i: InputLog(live, stable, self._backlog_max(i), has_markers=self._has_results(i))
                for i, (live, stable) in cursors
            },
            config.inputs,
            suppress_until,
        )

    def _open(self, log: int, stable: SourcePosition, live: SourcePosition) -> None:
        """The two lines' cursors in one log."""
        config = self._config
        name, disorder_us = (
            config.names[log],
            config.disorders_us[log] if config.disorders_us else 0,
        )
        if log in config.results:
            self.stable.append(ResultCursor(stable, name, strict=True))
            self.live.append(ResultCursor(live, name, strict=False))
        elif log - 1 in config.results:
            self.stable.append(NullCursor())
            self.live.append(ResultCursor(live, name, strict=False))
        else:
            bounds = {"disorder_us": disorder_us, "lookback_us": self._lookback_us}
            self.stable.append(SourceCursor(stable, strict=True, **bounds))
            self.live.append(SourceCursor(live, strict=False, **bounds))

    # Records.

    def receive(self, stream: int, offset: int, taken: SourceRecord | ResultBatch) -> None:
        """A record of the live consumer, or the batch that it ends, for attached cursors (rule-12).

        ``offset`` is that of the record.
        """
        first = taken.offset if isinstance(taken, ResultBatch) else offset
        for _, cursor in self.inputs.receive(stream, first, offset + 1):
            cursor.offer(first, taken)
        self._bound(stream)

    def catch_up(
        self, line: LineName, stream: int, offset: int, taken: SourceRecord | ResultBatch
    ) -> None:
        """The same of the catch-up reader of one line: it feeds that line's parked cursor."""
        first = taken.offset if isinstance(taken, ResultBatch) else offset
        cursor = self.inputs.replaying(line, stream, first, offset + 1)
        if cursor is not None:
            cursor.offer(first, taken)
            self.inputs.attach(line, stream)

    def ends(self, ends: Mapping[int, int | None], fetched_at: int) -> int:
        """Record end offsets requested at ``fetched_at``; None if the broker gave no answer.

        A live cursor with a backlog skips it (rule-13). Returns the number of skipped records.
        """
        self.inputs.answer(ends, fetched_at)
        skipped = 0
        for stream, end in ends.items():
            cursor = self.live[stream]
            behind = cursor.boundary < self._line.live_next
            if end is not None and behind and self._is_backlog(stream, end):
                skipped += end - cursor.offset
                cursor.seek(end)
        return skipped

    def _is_backlog(self, stream: int, end: int) -> bool:
        ahead = end - self.live[stream].offset
        return self._line.forked and ahead > self._backlog_max(stream)

    def _backlog_max(self, stream: int) -> int:
        config = self._config
        is_rows = self._has_results(stream)
        return config.backlog_rows_max if is_rows else config.backlog_records_max

    def _has_results(self, stream: int) -> bool:
        return isinstance(self.live[stream], ResultCursor)

    # Where the cursors are.

    def cursors(self, line: LineName) -> Sequence[Cursor]:
        """The cursors of one line, one for each log."""
        return self.stable if line is LineName.STABLE else self.live

    def _next_of(self, line: LineName) -> int:
        return self._line.stable_next if line is LineName.STABLE else self._line.live_next

    def nearest_reading(self, line: LineName, start: int) -> int:
        """A lower bound of the first reading or gap in the line's buffers, from ``start`` on.

        FOREVER if there is none. A gap that a join looks back to counts as one at ``start``.
        """
        cursors = self.cursors(line)
        times = [t for c in cursors if (t := c.next_reading(start)) is not None]
        back = start - self._lookback_us
        times += [max(g[0], start) for c in cursors for g in c.gaps if g[1] > back]
        return min(times, default=FOREVER)

    def park(self, line: LineName, stream: int) -> None:
        """Park a cursor: drop its buffer, which a catch-up reader reads again."""
        self.cursors(line)[stream].park()
        self._excess.pop((line, stream), None)
        self.inputs.attach_parked(line, stream)

    def _lookahead_buckets(self, line: LineName) -> int:
        config = self._config
        if line is LineName.STABLE and self._line.forked:
            return config.parked_lookahead_buckets
        return config.ahead_buckets_max

    def _bound(self, stream: int) -> None:
        """Park the cursors that have read too far ahead of their line (rule-12, guarantee-5).

        Readings that are kept for a join do not count: a parked cursor would read them again.
        """
        for line in LINES:
            cursor = self.cursors(line)[stream]
            start = self._next_of(line)
            if not cursor.attached or cursor.boundary < self._config.grid.next_cut(start):
                continue
            buckets = self._lookahead_buckets(line)
            span = buckets * self._config.grid.w_us + self._config.max_skew_us(start)
            # Empty event time takes no memory: a few readings of a year are not too many.
            is_ahead = cursor.buffered_to - start > span and cursor.buckets_held > buckets
            if is_ahead or cursor.bytes_held > self._bytes_max:
                self.park(line, stream)

    @property
    def _bytes_max(self) -> int:
        """The share of H that a line has in each log (rule-12)."""
        return self._config.ahead_bytes_max // len(self._config.logs)

    def check_excess(self) -> None:
        """Raise if a cursor's unneeded bytes exceed its share of H and still grow (rule-12).

        Call once a step. An attached cursor is parked at the record that exceeds the share, and a
        parked cursor is not fed beyond it, except by the rest of a catch-up reader's batch. So an
        excess does not grow between steps, unless the cursor was parked and is read again. Growth
        means that a buffer is not released, or that a cursor is not parked.

        Raises:
            HeldTooMuchError: the session is then rebuilt from its logs.
        """
        before, self._excess = self._excess, {}
        for line in LINES:
            start = self._next_of(line)
            for log, cursor in enumerate(self.cursors(line)):
                if cursor.bytes_held + cursor.passed_bytes <= self._bytes_max:
                    continue
                excess = cursor.excess_bytes(start, self._config.grid.next_cut(start))
                if excess <= self._bytes_max:
                    continue
                if excess > before.get((line, log), excess):
                    raise HeldTooMuchError(self._config.fragment, excess, self._bytes_max)
                self._excess[line, log] = excess

    def wanted(self, *, held_back: bool) -> dict[tuple[LineName, int], int]:
        """Offsets for the catch-up readers: (line, log) -> offset, for parked cursors to be fed.

        A cursor is fed if its line's next bucket needs input, or while it is less than half the
        look-ahead limit ahead. ``held_back``: the stable line must wait, because another replica
        has the catch-up lease (dpc-12).
        """
        wanted = {}
        for line in LINES:
            if line is LineName.STABLE and held_back:
                continue
            parked = self.inputs.parked(line)
            if not parked:
                continue
            start = self._next_of(line)
            buckets = self._lookahead_buckets(line)
            span = buckets * self._config.grid.w_us // 2 + self._config.max_skew_us(start)
            held_max = self._bytes_max // 2
            for stream, cursor in parked:
                needs_input = cursor.boundary < self._config.grid.next_cut(start)
                is_near = cursor.buffered_to - start < span or cursor.buckets_held < buckets // 2
                if needs_input or (is_near and cursor.bytes_held < held_max):
                    wanted[line, stream] = cursor.offset
        return wanted

    @property
    def has_to_catch_up(self) -> bool:
        """True if the lines are forked, and the stable line can read on from parked cursors.

        Each log of the stable line must hold its next bucket, as the live line's cursor shows. The
        tentative topic of a query does not count: the stable line does not read it.
        """
        if not self._line.forked or all(cursor.attached for cursor in self.stable):
            return False
        end = self._config.grid.next_cut(self._line.stable_next)
        return all(
            live.boundary >= end
            for live, stable in zip(self.live, self.stable, strict=True)
            if not isinstance(stable, NullCursor)
        )

    def pass_all(self) -> None:
        """Drop from every cursor what its line has passed."""
        for line in LINES:
            for cursor in self.cursors(line):
                cursor.pass_to(self._next_of(line))

    def behind_the_live_line(self) -> tuple[int, ...]:
        """Logs that the live line waits for, without a pending end offset request."""
        return tuple(
            i
            for i, cursor in enumerate(self.live)
            if cursor.boundary < self._line.live_next and not self.inputs.is_probed(i)
        )

    def far_ahead(self) -> list[int]:
        """Inputs with a live cursor that is parked past the next bucket; policy ``suspend`` only.

        A suspended line does not follow, so these are not read on: that no reading of theirs
        arrives is no evidence of a failure (rule-12).
        """
        if self._config.policy.stabilization != "suspend":
            return []
        end = self._config.grid.next_cut(self._line.live_next)
        ahead = [not c.attached and c.boundary >= end for c in self.live]
        return [i for i, logs in enumerate(self._config.inputs) if any(ahead[log] for log in logs)]

    @property
    def live_offsets(self) -> list[int]:
        """Where the live consumer starts in each log."""
        return list(self.inputs.positions.values())

    @property
    def asks_positions(self) -> bool:
        """True if the end of a result topic is awaited.

        The topic may end with a transaction marker: only the consumer's position, not its last
        record, shows then that the end is reached.
        """
        return any(map(self._has_results, self.inputs.awaited))

    def adopt_stable_state(self) -> None:
        """Give the live line the records that it has skipped, once the lines have met (rule-13)."""
        for log, (live, stable) in enumerate(zip(self.live, self.stable, strict=True)):
            if isinstance(live, SourceCursor) and isinstance(stable, SourceCursor):
                live.adopt_stable_state(stable)
                self._excess.pop((LineName.LIVE, log), None)

    @property
    def ahead_bytes(self) -> int:
        """Approximate bytes buffered ahead of the lines; bounded by H (rule-12)."""
        return sum(cursor.bytes_held for line in LINES for cursor in self.cursors(line))

    @property
    def held_bytes(self) -> int:
        """Approximate bytes held by the cursors (guarantee-5).

        In addition to the bytes bounded by H these are readings kept for a join (decision 22), and
        readings stamped ahead of the watermark.
        """
        cursors = (cursor for line in LINES for cursor in self.cursors(line))
        return self.ahead_bytes + sum(c.passed_bytes + c.future_bytes for c in cursors)

    @property
    def holes(self) -> tuple[Hole, ...]:
        """Holes in the source logs: their writers send again (rule-11)."""
        return tuple(
            Hole(self._config.topics.source(log), 0, cursor.hole_inc)
            for log, cursor in zip(self._config.logs, self.stable, strict=True)
            if cursor.hole_inc is not None
        )

    def positions(self) -> tuple[StreamPositions, ...]:
        """The positions to continue from after a restart (rule-5)."""
        return tuple(
            StreamPositions(log, of.next, of.rebuild, live.rebuild)
            for log, stable, live in zip(self._config.logs, self.stable, self.live, strict=True)
            for of in [live if isinstance(stable, NullCursor) else stable]
        )
