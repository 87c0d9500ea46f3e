"""Checks the history of a query without a window, reading by reading and in order.

The form of a history is that of windows (``check.py``): a bucket is answered as a unit. The
required content differs. Stable: exactly the batch's readings of the bucket, in the order (stime,
stream, id), without duplicates. Tentative: readings that the batch also has, in the same order, and
all of those from streams not named in ``missing``.

The assignment of keys to parts is internal to the system. So each part is compared with the
readings of the keys it answered, and at the end every key must have exactly one part.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from slackwater.judge.batch import Result, RowsResult
from slackwater.judge.check import Checker, Expectations, Part, Record, to_us


class RowChecker(Checker):
    """``Checker`` for rows. ``computed``: the fields are expressions, subject to rounding."""

    def __init__(
        self, expectations: Expectations, expected: RowsResult, *, computed: bool = False
    ) -> None:
        super().__init__(expectations, {})
        self._expected = expected
        self._slack = 1e-12 if computed else 0.0

    def cells(self) -> Iterable[tuple[int, str]]:
        """Yield each (bucket, key) that has readings."""
        return ((start, row.key) for start, rows in self._expected.items() for row in rows)

    def in_order(self, rows: Sequence[Record]) -> bool:
        """Whether rows are ordered by time; the order of equal times is compared with the batch."""
        stimes = [to_us(row["stime"]) for row in rows]
        return stimes == sorted(stimes)

    def exact(self, part: Part) -> None:
        """Check that the rows of a stable answer equal the batch's one by one."""
        if not part.rows:
            return
        start = to_us(part.rows[0]["window_start"])
        for key in sorted({row["key"] for row in part.rows}):
            if (start, key) in self.seen:
                self.verdict.add("doubled", f"{self.at(part, start)} key {key!r}")
            self.seen[start, key] = part.part
        expected = self._of_part(part, start)
        for given, row in zip(part.rows, expected, strict=False):
            if not self._same(given, row):
                emit = f"{self.at(part, start)}: {_short(given)} where {row} is next"
                self.verdict.add("wrong", emit)
                return
        if len(part.rows) != len(expected):
            more = len(expected) - len(part.rows)
            what = "few" if more > 0 else "many"
            emit = f"{self.at(part, start)}: {abs(more)} readings too {what}"
            self.verdict.add("lost" if more > 0 else "doubled", emit, abs(more))

    def check_missing(self, part: Part, boundary: Record, start: int) -> None:
        """Check that a tentative answer adds no rows and lacks only rows of ``missing`` streams."""
        excused = set(boundary["missing"])
        expected = self._of_part(part, start) if self.expectations.parts > 1 else self._all(start)
        unknown = self._not_found(part.rows, expected)
        if self.expectations.chained and excused:
            unknown = None  # a tentative row of another query need not be in the batch
        if unknown is not None:
            emit = f"{self.at(part, start)}: {_short(unknown)} is unexpected or out of order"
            self.verdict.add("wrong", f"tentative {emit}")
        required = [row for row in expected if not excused.intersection(row.streams)]
        at = 0
        for given in part.rows:
            at += at < len(required) and self._same(given, required[at])
        if at < len(required):
            emit = (
                f"{self.at(part, start)}: {required[at]} is absent, but its stream is not missing"
            )
            self.verdict.add("wrong", emit)

    def _all(self, start: int) -> Sequence[Result]:
        return self._expected.get(start, [])

    def _of_part(self, part: Part, start: int) -> list[Result]:
        """Return the batch's readings of the keys that the part has answered."""
        keys = {row["key"] for row in part.rows}
        return [row for row in self._all(start) if row.key in keys]

    def _not_found(self, rows: Sequence[Record], expected: Sequence[Result]) -> Record | None:
        """Return the first row that does not follow its predecessor in the batch."""
        rest = iter(expected)
        for given in rows:
            if not any(self._same(given, row) for row in rest):
                return given
        return None

    def _same(self, given: Record, row: Result) -> bool:
        if given["key"] != row.key or to_us(given["stime"]) != row.stime:
            return False
        fields: Mapping[str, Any] = given["fields"]
        return fields.keys() == row.fields.keys() and all(
            self._equal(fields[name], value, row.scale) for name, value in row.fields.items()
        )

    def _equal(self, given: float | None, value: float | None, scale: float) -> bool:
        if given is None or value is None:
            return given is value
        return math.isclose(given, value, rel_tol=self._slack, abs_tol=1e-12 * scale)


def _short(given: Record) -> str:
    return f"({given['stime']}, {given['key']!r}, {dict(given['fields'])})"
