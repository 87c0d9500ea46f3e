"""The current best answer of every window, derived from the stream of results.

A consumer that needs only the current state needs no protocol: the best answer of a window is the
stable one if there is one, else the tentative one unless revoked, else none. UNDO revokes tentative
answers, stable ones replace them (section 4.1 of the DPC paper: a client's handling of UNDO and
REC_DONE). Memory is bounded, since a failure of hours must not exhaust a consumer's memory: the
oldest answers are dropped first, and ``dropped`` counts them. Rows dominate memory, at about 1 kB
each; windows without rows are bounded by number. An answer is discarded and counted if retention
deleted some of its rows before they were read (trace-5).

The module also computes DPC's measures (section 2.3 of the paper): N_tentative, the number of
tentative answers since the last stable one; Proc_new, the largest latency of a *new* answer
(corrections excluded); Delay_new, Proc_new less its value in normal operation.

Pure: records in, values out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from slackwater.codec.results import Label, parse_time
from slackwater.model.limits import CLOCK_SKEW_US_MAX

Record = Mapping[str, Any]
TENTATIVE_WINDOWS_DEFAULT_MAX = 10_000
STABLE_WINDOWS_DEFAULT_MAX = 10_000
ROWS_DEFAULT_MAX = 100_000
"""Maximum rows per part, tentative and stable each; one window is kept whatever its size."""


class ResultReading(NamedTuple):
    """A row of a query without a window; ``stime`` in us since the epoch."""

    stime: int
    key: str
    fields: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class WindowAnswer:
    """One part's answer of one window; ``windows`` > 1 for a run of empty ones.

    The content of ``skipped`` windows is unknown: they were overdue, and their stable answers
    follow. ``rows`` maps key to fields; ``window_start`` and ``window_end`` are us since the epoch.
    For a query without a window the answer is ``readings``, in order, and a window is a bucket.
    """

    part: int
    label: Label
    window_start: int
    window_end: int
    windows: int
    epoch: int
    missing: tuple[str, ...]
    rows: Mapping[str, Mapping[str, Mapping[str, float | int | None]]]
    due_at: int
    seen_at: int
    readings: tuple[ResultReading, ...] = ()
    skipped: bool = False

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return len(self.rows) + len(self.readings)


@dataclass(frozen=True, slots=True)
class Undone:
    """The tentative answers of these window starts (inclusive) are revoked in ``part``."""

    part: int
    undo_from: int
    undo_to: int


@dataclass(frozen=True, slots=True)
class CorrectionsDone:
    """All answers of ``part`` undone up to ``epoch`` have been replaced."""

    part: int
    epoch: int


Change = WindowAnswer | Undone | CorrectionsDone


@dataclass(slots=True)
class Measures:
    """DPC's measures; latencies in us, None before the first answer.

    ``n_tentative`` counts windows answered tentatively since the last stable answer,
    ``n_tentative_all`` all tentative ones. See dpc-18. ``n_early`` counts stable answers that were
    seen before their (last) window had ended by the reader's clock. It stays 0, unless that clock
    is behind, or files are read that end before a window does (trace-24).
    """

    n_tentative: int = 0
    n_tentative_all: int = 0
    n_early: int = 0
    proc_new: int | None = None
    normal_sum: int = 0
    normal_count: int = 0

    @property
    def delay_new(self) -> int | None:
        """Proc_new less the average latency of new answers that were stable at once."""
        if self.proc_new is None or not self.normal_count:
            return None
        return self.proc_new - self.normal_sum // self.normal_count


class _Kept:
    """Answers of one label by window start, oldest first."""

    def __init__(self, windows_max: int, rows_max: int) -> None:
        self._windows_max = windows_max
        self._rows_max = rows_max
        self._rows = 0
        self.by_start: dict[int, WindowAnswer] = {}

    def put(self, answer: WindowAnswer) -> int:
        """Store the answer; return the number of answers dropped for it."""
        self.drop(answer.window_start)
        self.by_start[answer.window_start] = answer
        self._rows += answer.row_count
        dropped = 0
        while len(self.by_start) > 1 and (
            len(self.by_start) > self._windows_max or self._rows > self._rows_max
        ):
            self.drop(next(iter(self.by_start)))
            dropped += 1
        return dropped

    def drop(self, window_start: int) -> None:
        """Remove the answer if it is stored."""
        answer = self.by_start.pop(window_start, None)
        self._rows -= 0 if answer is None else answer.row_count

    def revoke(self, last: int, size: int | None) -> None:
        """Remove answers up to window ``last``; windows have length ``size`` (None: unknown)."""
        standing = (_following(last, answer, size) for answer in self.by_start.values())
        self.by_start = {answer.window_start: answer for answer in standing if answer is not None}
        self._rows = sum(answer.row_count for answer in self.by_start.values())


@dataclass(slots=True)
class _PartAnswers:
    stable: _Kept
    tentative: _Kept
    rows: dict[str, Any] = field(default_factory=dict)
    readings: list[ResultReading] = field(default_factory=list)
    stable_end: int | None = None
    due_to: int | None = None
    """When the last window with a first answer was due."""


class BestAnswers:
    """Applies a query's records in order; ``parts`` grows as parts appear."""

    def __init__(
        self,
        tentative_windows_max: int = TENTATIVE_WINDOWS_DEFAULT_MAX,
        stable_windows_max: int = STABLE_WINDOWS_DEFAULT_MAX,
        rows_max: int = ROWS_DEFAULT_MAX,
    ) -> None:
        assert tentative_windows_max > 0
        assert stable_windows_max > 0
        self.tentative_windows_max = tentative_windows_max
        self.stable_windows_max = stable_windows_max
        self.rows_max = rows_max
        self.tentative_dropped = 0
        self.incomplete = 0
        self.measures = Measures()
        self._parts: dict[int, _PartAnswers] = {}
        self._size: int | None = None

    def apply(self, record: Record, seen_at: int) -> Change | None:
        """Apply a record; return the change if it completes one (rows wait for their boundary)."""
        part = self._part(record["part"])
        match record["kind"]:
            case "stable" | "tentative" if "stime" in record:
                stime = parse_time(record["stime"])
                part.readings.append(ResultReading(stime, record["key"], record["fields"]))
            case "stable" | "tentative":
                part.rows[record["key"]] = record["fields"]
            case "boundary":
                return self._answer(part, record, seen_at)
            case "undo":
                return self._undo(part, record)
            case "rec_done":
                return CorrectionsDone(record["part"], record["epoch"])
        return None

    def cut(self, part: int) -> None:
        """Discard rows without a boundary: the part's next records were deleted by retention.

        The rows would otherwise be assigned to the window of the next boundary.
        """
        rest = self._part(part)
        rest.rows, rest.readings = {}, []

    def best(self, window_start: int) -> dict[int, WindowAnswer]:
        """Return the window's best answer in each part that has one."""
        found = {}
        for number, part in self._parts.items():
            answer = part.stable.by_start.get(window_start) or part.tentative.by_start.get(
                window_start
            )
            if answer is not None:
                found[number] = answer
        return found

    def windows(self) -> list[WindowAnswer]:
        """Return all stored best answers, ordered by window and part."""
        answers = [answer for part in self._parts.values() for answer in _all(part).values()]
        return sorted(answers, key=lambda answer: (answer.window_start, answer.part))

    def _part(self, number: int) -> _PartAnswers:
        if number not in self._parts:
            self._parts[number] = _PartAnswers(
                _Kept(self.stable_windows_max, self.rows_max),
                _Kept(self.tentative_windows_max, self.rows_max),
            )
        return self._parts[number]

    def _answer(self, part: _PartAnswers, record: Record, seen_at: int) -> WindowAnswer | None:
        rows, part.rows = part.rows, {}
        readings, part.readings = tuple(part.readings), []
        label: Literal["stable", "tentative"] = record["label"]
        answer = WindowAnswer(
            record["part"],
            label,
            parse_time(record["window_start"]),
            parse_time(record["window_end"]),
            record["windows"],
            record["epoch"],
            tuple(record["missing"]),
            rows,
            parse_time(record["due_at"]),
            seen_at,
            readings,
            record.get("skipped") is True,
        )
        if answer.windows == 1:
            self._size = answer.window_end - answer.window_start
        self._measure(part, answer)
        if len(rows) + len(readings) != record["keys"]:
            self.incomplete += 1
            return None
        if label == "stable":
            part.tentative.drop(answer.window_start)
            part.stable.put(answer)
        else:
            self.tentative_dropped += part.tentative.put(answer)
        return answer

    def _measure(self, part: _PartAnswers, answer: WindowAnswer) -> None:
        measures = self.measures
        # A stable answer of a non-zero epoch replaces a tentative one, so it is not new.
        new = answer.label == "tentative" or answer.epoch == 0
        latency = answer.seen_at - answer.due_at
        if new:
            worst = answer.seen_at - _first_due(answer, part.due_to)
            measures.proc_new = max(
                worst, worst if measures.proc_new is None else measures.proc_new
            )
            part.due_to = answer.due_at
        if answer.label == "tentative":
            measures.n_tentative += answer.windows
            measures.n_tentative_all += answer.windows
            return
        measures.n_tentative = 0
        # ``disorder`` is part of the normal time; clocks of two machines differ.
        tolerated = max(answer.due_at - answer.window_end, 0) + CLOCK_SKEW_US_MAX
        measures.n_early += answer.window_end > answer.seen_at + tolerated
        part.stable_end = answer.window_end
        if new:
            measures.normal_sum += latency
            measures.normal_count += 1

    def _undo(self, part: _PartAnswers, record: Record) -> Undone:
        first, last = parse_time(record["undo_from"]), parse_time(record["undo_to"])
        part.tentative.revoke(last, self._size)
        return Undone(record["part"], first, last)


def _first_due(answer: WindowAnswer, due_to: int | None) -> int:
    """Return when an answer's first window was due, the most overdue one of a skipped run.

    ``due_at`` is that of the last window. Due times are evenly spaced from the window before.
    """
    if not answer.skipped or due_to is None:
        return answer.due_at
    return due_to + (answer.due_at - due_to) // answer.windows


def _following(last: int, answer: WindowAnswer, size: int | None) -> WindowAnswer | None:
    """Return what an UNDO from the answer's first window up to ``last`` leaves of the answer.

    The slide of a run follows from the window size. While no single window has been seen, windows
    are assumed to be adjacent; the next UNDO begins at the run's true continuation. Days of a zone
    differ by an hour, so the number of windows is rounded.
    """
    span, gaps = answer.window_end - answer.window_start, answer.windows - 1
    slide = span // answer.windows if size is None or not gaps else (span - size) // gaps
    undone = max((last - answer.window_start + slide // 2) // slide + 1, 0)
    if undone >= answer.windows:
        return None
    start = answer.window_start + undone * slide
    return replace(answer, window_start=start, windows=answer.windows - undone)


def _all(part: _PartAnswers) -> dict[int, WindowAnswer]:
    """Return the stored answers by window start; the stable one where both exist."""
    return part.tentative.by_start | part.stable.by_start
