"""Checks a history of results against the guarantees, from what a consumer can observe.

The input is the committed sequence of a query's records as plain JSON objects (the lines of
``results.jsonl``), the deployment's parameters (window, bound, lateness) and the batch result. The
checker uses nothing of the pipeline, since shared code would repeat the pipeline's errors (of an
aggregate it takes what may differ by rounding, and its least number of values). The
rules are stated in terms of observable records:

* every window of the grid has exactly one stable answer per part, in window order, and at most one
  tentative answer before it;
* the unrevoked tentative answers are always the windows [S, T): S the first without a stable
  answer, T the first without any (rule-22); UNDO revokes them from S on, the stable ones follow
  immediately (no ``seq`` between), and REC_DONE states that S has reached T;
* rows of a window precede its boundary, which counts them;
* a tentative answer lacks at most the readings of the streams in ``missing``;
* no tentative answer is emitted before its normal time;
* no stable answer is emitted before its window has ended, unless all inputs have (guarantee-1);
* a ``skipped`` run is tentative, has no rows, and each of its windows was overdue.

Violations are counted in four classes: *lost* (no stable answer), *doubled* (more than one),
*uncorrected* (a tentative answer never replaced), *wrong* (figures other than the batch's, or a
malformed history). The first findings are kept as sentences that explain a failed rehearsal.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from slackwater.judge.batch import BatchResult, Cell, ExactAggregates
from slackwater.judge.calendars import JudgedWindows, judged_windows
from slackwater.judge.rounding import outside
from slackwater.model.deployment import WindowSpec
from slackwater.primitives.aggregates import AGGREGATES
from slackwater.primitives.exact import ROUNDED

Record = Mapping[str, Any]
FINDINGS_MAX: Final = 50
"""Maximum sentences kept; all findings are counted."""
EARLY_US: Final = 1_000
"""Tolerance for normal times, which two computations round to whole microseconds."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def to_us(text: str) -> int:
    """Parse an ISO time to whole microseconds since the epoch."""
    return (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Expectations:
    """Parameters of one query; times in us.

    ``anchor_wall`` is the wall time of ``anchor_event`` (E0), ``end`` the end of the last window.
    ``last_reading`` is the event time of the last reading of all inputs: windows that end later may
    be answered as soon as the inputs have ended (trace-24). ``early`` is how long before its end a
    window may be stable: the inputs' ``disorder``, and in a chain a slide of each query below.
    """

    query: str
    window: WindowSpec
    """Its windows, or for a query without any the buckets that it answers."""
    parts: int
    aggregate: tuple[str, ...]
    bound: int
    lateness: int
    speed: float
    anchor_wall: int
    anchor_event: int
    end: int
    last_reading: int
    early: int
    bound_of: str = ""
    """The query whose bound applies: in a chain the smallest."""
    steps: tuple[tuple[int, int], ...] = ()
    """Learned steps: the minimum lateness from an event time on."""
    chained: bool = False
    """The query reads other queries, whose tentative rows may differ from the exact ones."""

    @property
    def first(self) -> int:
        """Start of the first window that contains the anchor's event time."""
        return self.each.first_holding(self.anchor_event)

    @property
    def windows(self) -> int:
        """Number of windows that end at or before ``end``."""
        return self.each.ending_by(self.first, self.end)

    @property
    def each(self) -> JudgedWindows:
        """The windows themselves."""
        return judged_windows(self.window)

    def due(self, event: float) -> float:
        """Return the normal time of an event time (rule-15), as wall time."""
        return float(self.dues(np.array([event]))[0])

    def dues(self, events: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the normal times of many event times."""
        lateness = np.full(len(events), self.lateness, np.float64)
        for from_, at_least in self.steps:
            lateness[events >= from_] = np.maximum(lateness[events >= from_], at_least)
        return self.anchor_wall + (events + lateness - self.anchor_event) / self.speed

    def stable_from(self, end: int) -> float:
        """Return the earliest wall time of a stable answer up to an end of a window."""
        ended = min(end, self.last_reading) - self.early
        return self.anchor_wall + (ended - self.anchor_event) / self.speed


@dataclass(frozen=True, slots=True)
class Disturbance:
    """A fault that affected a process (or a stream's proxy), in wall time us."""

    start: int
    end: int
    process: str = ""
    silent: bool = False
    """The process was up, without readings."""


@dataclass(slots=True)
class Verdict:
    """Findings; ``ok`` if there are none."""

    lost: int = 0
    doubled: int = 0
    uncorrected: int = 0
    wrong: int = 0
    windows: int = 0
    n_tentative: int = 0
    undone: int = 0
    rows: int = 0
    """Stable rows: of keys in windows, or of readings."""
    findings: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is lost, doubled, uncorrected or wrong."""
        return not (self.lost or self.doubled or self.uncorrected or self.wrong)

    def add(self, kind: str, sentence: str, count: int = 1) -> None:
        """Count a finding; keep its sentence up to the maximum."""
        setattr(self, kind, getattr(self, kind) + count)
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(f"{kind}: {sentence}")


class AnsweredRun(NamedTuple):
    """The windows [start, behind), answered at once; ``seen`` is the reader's wall time.

    ``offset`` is the boundary's offset in the topic of its label; None where it is not needed.
    """

    label: str
    start: int
    end: int
    seen: int
    offset: int | None


@dataclass(slots=True)
class Part:
    """One part's history so far: S, T and the expected next record."""

    part: int
    stable: int
    answered: int
    seq: int | None = None
    epoch: int = 0
    undo_to: int | None = None
    rec_done_due: bool = False
    rows: list[Record] = field(default_factory=list)
    answers: list[AnsweredRun] = field(default_factory=list)
    tentative: dict[int, int] = field(default_factory=dict)
    """Unrevoked tentative windows (only those with an epoch of interest): start -> epoch."""


class Checker:
    """Checks one query's records in order and returns a verdict."""

    def __init__(self, expectations: Expectations, batch: BatchResult) -> None:
        self.expectations = expectations
        self.batch = batch
        self.verdict = Verdict()
        self.parts = [
            Part(p, expectations.first, expectations.first) for p in range(expectations.parts)
        ]
        self.seen: dict[Cell, int] = {}
        self._tentative_windows: set[int] = set()

    def feed(self, record: Record, offset: int | None = None) -> None:
        """Check one record, in the order read; ``offset`` is its offset in its topic."""
        part = self.parts[record["part"]]
        self._seq(part, record)
        kind = record["kind"]
        if kind in {"stable", "tentative"}:
            part.rows.append(record)
        elif kind == "boundary":
            self._rows(part, record)
            if record["label"] == "stable":
                self._stable(part, record, offset)
            else:
                self._tentative(part, record, offset)
            part.rows = []
        elif kind == "undo":
            self._undo(part, record)
        elif kind == "rec_done":
            self._rec_done(part, record)

    def finish(self) -> Verdict:
        """Return the verdict on the whole history."""
        expectations, verdict = self.expectations, self.verdict
        for part in self.parts:
            if part.answered > part.stable:
                n = expectations.each.between(part.stable, part.answered)
                verdict.add("uncorrected", f"{self.at(part, part.stable)} and {n - 1} more", n)
            if part.rec_done_due:
                verdict.add("wrong", f"part {part.part}: REC_DONE({part.epoch}) is missing")
            if part.rows:
                verdict.add("wrong", f"part {part.part}: rows without a boundary at the end")
            lacking = expectations.each.ending_by(part.stable, expectations.end)
            if lacking > 0:
                verdict.add("lost", f"no stable answer from {self.at(part, part.stable)}", lacking)
        answered_to = min(part.stable for part in self.parts)
        for start, key in self.cells():
            # Unanswered windows are counted above, once each and not per key.
            if (start, key) not in self.seen and start < answered_to:
                verdict.add("lost", f"window {start} key {key!r} has no stable row")
        verdict.windows = expectations.windows
        verdict.n_tentative = len(self._tentative_windows)
        return verdict

    def cells(self) -> Iterable[Cell]:
        """Yield each (window start, key) that must have a stable row."""
        return self.batch

    def in_order(self, rows: Sequence[Record]) -> bool:
        """Whether the rows of a window are in the guaranteed order."""
        keys = [row["key"] for row in rows]
        return keys == sorted(set(keys))

    def at(self, part: Part, start: int) -> str:
        """Describe a window of a part in words."""
        when = (_EPOCH + timedelta(microseconds=start)).isoformat()
        return f"{self.expectations.query} part {part.part} window {when}"

    def _seq(self, part: Part, record: Record) -> None:
        seq = record["seq"]
        if part.seq is not None and seq < part.seq:
            self.verdict.add("doubled", f"part {part.part}: seq {seq} after {part.seq - 1}")
            return
        if seq > (part.seq or 0):
            self.verdict.add("lost", f"part {part.part}: seq {part.seq or 0} to {seq - 1} missing")
        part.seq = seq + 1

    def _rows(self, part: Part, boundary: Record) -> None:
        """Check that a boundary's rows have its window and label, in key order and complete."""
        start, label, where = to_us(boundary["window_start"]), boundary["label"], None
        rows = len(part.rows)
        if any(row["kind"] != label or to_us(row["window_start"]) != start for row in part.rows):
            where = "is closed by a boundary of another window or label"
        elif not self.in_order(part.rows):
            where = "has rows out of order"
        elif rows != boundary["keys"]:
            where = f"has {rows} rows, its boundary has {boundary['keys']}"
        elif any(row["missing"] != boundary["missing"] for row in part.rows):
            where = "has rows whose missing differs from its boundary's"
        elif rows and boundary["windows"] != 1:
            where = "has rows and stands for a run of empty windows"
        if where is not None:
            self.verdict.add("wrong", f"{self.at(part, start)} {where}")

    def _run(self, part: Part, boundary: Record) -> tuple[int, int]:
        """Return the starts of the first window of a boundary and of the one after its last."""
        start = to_us(boundary["window_start"])
        each = self.expectations.each
        last = each.later(start, boundary["windows"] - 1)
        end = each.later(last, 1)
        if to_us(boundary["window_end"]) != each.end(last) or each.last_holding(start) != start:
            self.verdict.add("wrong", f"{self.at(part, start)}: window_end does not fit")
        return start, end

    def _windows(self, start: int, end: int) -> list[int]:
        """Return the starts of the windows in [start, end)."""
        each, found = self.expectations.each, []
        while start < end:
            found.append(start)
            start = each.later(start, 1)
        return found

    def _tentative(self, part: Part, boundary: Record, offset: int | None) -> None:
        start, end = self._run(part, boundary)
        add = self.verdict.add
        if start < part.stable:
            add("wrong", f"{self.at(part, start)} is answered tentatively after its stable answer")
            return
        if start < part.answered:
            add("doubled", f"{self.at(part, start)} has a second tentative answer")
            return
        if start > part.answered:
            add("wrong", f"{self.at(part, start)} is answered before {part.answered}")
        if part.undo_to is not None or part.rec_done_due:
            add("wrong", f"{self.at(part, start)}: tentative between UNDO and REC_DONE's place")
            part.undo_to, part.rec_done_due = None, False
        expected = part.epoch + (part.stable == part.answered)
        if boundary["epoch"] != expected:
            add("wrong", f"{self.at(part, start)}: epoch {boundary['epoch']}, not {expected}")
        part.epoch = boundary["epoch"]
        windows = self._windows(start, end)
        self._tentative_windows.update(windows)
        part.tentative.update(dict.fromkeys(windows, part.epoch))
        part.answered = end
        seen = to_us(boundary["seen_at"])
        part.answers.append(AnsweredRun("tentative", start, end, seen, offset))
        self._early(part, boundary, start)
        if boundary.get("skipped"):
            self._skipped(part, boundary, start, self.expectations.each.later(end, -1))
        else:
            self.check_missing(part, boundary, start)

    def _early(self, part: Part, boundary: Record, start: int) -> None:
        """Check that a tentative answer is not early (trace-36), and ``due_at``."""
        due = self.expectations.due(self.expectations.each.end(start))
        if to_us(boundary["emitted_at"]) < due - EARLY_US:
            self.verdict.add("wrong", f"{self.at(part, start)} is tentative before its time")

    def _skipped(self, part: Part, boundary: Record, start: int, last: int) -> None:
        """Check that all windows of a skipped run are overdue (rule-20)."""
        late = to_us(boundary["emitted_at"]) - self.expectations.due(
            self.expectations.each.end(last)
        )
        if late < self.expectations.bound - EARLY_US:
            where = f"{self.at(part, last)} is skipped {late / 1e6:.3f} s after its normal time"
            self.verdict.add("wrong", f"{where}, which is in time")
        if boundary["keys"]:
            self.verdict.add("wrong", f"{self.at(part, start)} is skipped and has rows")

    def check_missing(self, part: Part, boundary: Record, start: int) -> None:
        """Check that a tentative row lacks only readings of the streams in ``missing``."""
        excused = set(boundary["missing"])
        rows = {row["key"]: row for row in part.rows}
        for _, key in self.batch_keys(start):
            if key in rows or self.expectations.parts == 1:
                given = rows[key]["fields"] if key in rows else {}
                self.check_counts(part, (start, key), given, excused)

    def check_counts(self, part: Part, cell: Cell, given: Record, excused: set[str]) -> None:
        """Check that a tentative row lacks no more values than the ``excused`` streams have."""
        where = f"{self.at(part, cell[0])} key {cell[1]!r}"
        for name, figures in self.batch[cell].items():
            away = sum(n for stream, n in figures.by_stream.items() if stream in excused)
            count = given.get(name, {}).get("count")
            if count is None and (given or "count" not in figures.numbers):
                continue
            high = math.inf if self.expectations.chained and excused else figures.count
            if not figures.count - away <= (count or 0) <= high:
                found = f"{where} {name}: tentative count {count or 0} of {figures.count}"
                self.verdict.add("wrong", f"{found}, but the missing streams account for {away}")

    def batch_keys(self, start: int) -> Sequence[Cell]:
        """Return the batch's cells of a window."""
        if not hasattr(self, "_by_window"):
            self._by_window: dict[int, list[Cell]] = {}
            for cell in self.batch:
                self._by_window.setdefault(cell[0], []).append(cell)
        return self._by_window.get(start, [])

    def _stable(self, part: Part, boundary: Record, offset: int | None) -> None:
        start, end = self._run(part, boundary)
        add = self.verdict.add
        if start < part.stable:
            add("doubled", f"{self.at(part, start)} has a second stable answer")
            return
        if start > part.stable:
            add("lost", f"windows before {self.at(part, start)} were skipped")
        if start < part.answered:
            last = self.expectations.each.later(min(end, part.answered), -1)
            if part.undo_to is None or last > part.undo_to:
                add("uncorrected", f"{self.at(part, start)} is stable without an UNDO before it")
            if end > part.answered:
                add("wrong", f"{self.at(part, start)}: a run of windows spans T")
        replaced = part.tentative.get(start, 0)
        if boundary["missing"] or boundary["epoch"] != replaced:
            add("wrong", f"{self.at(part, start)}: stable with missing or epoch not {replaced}")
        if boundary.get("skipped"):
            add("wrong", f"{self.at(part, start)} is stable and skipped")
        for window in self._windows(start, min(end, part.answered)):
            part.tentative.pop(window, None)
        ahead = self.expectations.stable_from(to_us(boundary["window_end"])) - EARLY_US
        if (lead := ahead - to_us(boundary["emitted_at"])) > 0:
            add("wrong", f"{self.at(part, start)} is stable {lead / 1e6:.3f} s before its end")
        part.stable, part.answered = end, max(end, part.answered)
        seen = to_us(boundary["seen_at"])
        part.answers.append(AnsweredRun("stable", start, end, seen, offset))
        if part.undo_to is not None and part.stable > part.undo_to:
            part.undo_to = None
            part.rec_done_due = part.stable == part.answered
        self.verdict.rows += len(part.rows)
        self.exact(part)

    def exact(self, part: Part) -> None:
        """Check that the rows of a stable answer equal the batch's."""
        for row in part.rows:
            cell = (to_us(row["window_start"]), row["key"])
            if cell in self.seen:
                self.verdict.add("doubled", f"{self.at(part, cell[0])} key {row['key']!r}")
                continue
            self.seen[cell] = part.part
            expected = self.batch.get(cell)
            if expected is None:
                self.verdict.add("wrong", f"{self.at(part, cell[0])} key {row['key']!r} is unknown")
                continue
            found = compare(
                expected, row["fields"], self.expectations.aggregate, row.get("overflow", ())
            )
            if found is not None:
                self.verdict.add("wrong", f"{self.at(part, cell[0])} key {row['key']!r}: {found}")

    def _undo(self, part: Part, record: Record) -> None:
        first, last = to_us(record["undo_from"]), to_us(record["undo_to"])
        if part.undo_to is not None or part.rec_done_due or part.rows:
            self.verdict.add("wrong", f"part {part.part}: UNDO inside other answers")
        if first != part.stable or not first <= last < part.answered:
            self.verdict.add(
                "wrong",
                f"part {part.part}: UNDO {record['undo_from']} to {record['undo_to']} is not a "
                "range of unrevoked tentative answers",
            )
        self.verdict.undone += self.expectations.each.between(first, last) + 1
        part.undo_to = last

    def _rec_done(self, part: Part, record: Record) -> None:
        if part.stable != part.answered or not part.rec_done_due or record["epoch"] != part.epoch:
            self.verdict.add("wrong", f"part {part.part}: REC_DONE({record['epoch']}) out of place")
        part.rec_done_due = False


def compare(
    expected: Mapping[str, ExactAggregates],
    fields: Mapping[str, Any],
    aggregate: Collection[str],
    overflow: Collection[str] = (),
) -> str | None:
    """Return the first figure that differs by more than rounding, as a phrase.

    ``overflow`` are the fields with figures that are null, although they have values.
    """
    if not set(overflow) <= set(expected):
        return f"overflow of {sorted(overflow)}, fields {sorted(expected)}"
    if set(expected) != set(fields):
        return f"fields {sorted(fields)}, not {sorted(expected)}"
    for name, figures in expected.items():
        given = fields[name]
        names = [figure for figure in aggregate if figure in figures.numbers]
        if set(given) != set(names):
            return f"{name} has {sorted(given)}, not {sorted(names)}"
        for figure in names:
            want, got = figures.numbers[figure], given[figure]
            if want is None or got is None:
                if want is not got and not (got is None and _may_overflow(figure, figures)):
                    return f"{name}.{figure} is {got}, not {want}"
            elif not _close(figure, figures, got, want):
                return f"{name}.{figure} is {got!r}, not {want!r}"
        nulls = [f for f in names if given[f] is None and _has_values(f, figures)]
        if bool(nulls) != (name in overflow):
            return f"{name} has nulls for values in {nulls}, overflow names {sorted(overflow)}"
        if found := outside(given):
            return f"{name}.{found}"
    return None


def _has_values(name: str, figures: ExactAggregates) -> bool:
    return figures.count >= max(1, AGGREGATES[name].count_min)


def _may_overflow(name: str, figures: ExactAggregates) -> bool:
    return AGGREGATES[name].rounding.may_overflow(figures.count, figures.scale)


def _close(name: str, figures: ExactAggregates, got: float, want: float) -> bool:
    """Whether two doubles differ by no more than summation order can cause at this scale."""
    rounding = AGGREGATES[name].rounding
    slack = rounding.slack(ROUNDED * figures.scale, figures.count, figures.spread)
    return math.isclose(got, want, rel_tol=rounding.relative, abs_tol=slack)


def kinds(records: Iterable[Record]) -> Counter[str]:
    """Count the records of each kind."""
    return Counter(
        f"{r['kind']} {r['label']}" if r["kind"] == "boundary" else r["kind"] for r in records
    )
