"""Judges the history of a query without a window: its readings, one by one and in their order.

The form of a history is the same as of windows (``check.py``): a bucket is answered as one. What
differs is what an answer must contain. Stable: exactly the batch's readings of the bucket, in the
order (stime, stream, id), and none twice. Tentative: readings that the batch has too, in the same
order, and all of those that came from streams which ``missing`` does not name.

Which part a key belongs to is the system's own affair; so each part is compared with the readings
of the keys that it answered for, and at the end no key may be left over, nor have two parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from slackwater.judge.batch import Result, RowsResult
from slackwater.judge.check import Checker, Expectations, Part, Record, to_us


class RowChecker(Checker):
    """As ``Checker``. ``computed``: the fields are expressions, and rounded as such."""

    def __init__(
        self, expectations: Expectations, expected: RowsResult, *, computed: bool = False
    ) -> None:
        super().__init__(expectations, {})
        self._expected = expected
        self._slack = 1e-12 if computed else 0.0

    def cells(self) -> Iterable[tuple[int, str]]:
        """Each (bucket, key) that has readings."""
        return ((start, row.key) for start, rows in self._expected.items() for row in rows)

    def in_order(self, rows: Sequence[Record]) -> bool:
        """By time; what stands among equal times is compared with the batch."""
        stimes = [to_us(row["stime"]) for row in rows]
        return stimes == sorted(stimes)

    def exact(self, part: Part) -> None:
        """The rows of a stable answer are the batch's, one for one."""
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
        """A tentative answer invents nothing, and lacks only what its ``missing`` excuses."""
        excused = set(boundary["missing"])
        expected = self._of_part(part, start) if self.expectations.parts > 1 else self._all(start)
        unknown = self._not_found(part.rows, expected)
        if self.expectations.chained and excused:
            unknown = None  # a tentative row of another query is no reading of the batch
        if unknown is not None:
            emit = f"{self.at(part, start)}: {_short(unknown)} is no reading, or out of order"
            self.verdict.add("wrong", f"tentative {emit}")
        required = [row for row in expected if not excused.intersection(row.streams)]
        at = 0
        for given in part.rows:
            at += at < len(required) and self._same(given, required[at])
        if at < len(required):
            emit = f"{self.at(part, start)}: {required[at]} is lacking, its stream is not missing"
            self.verdict.add("wrong", emit)

    def _all(self, start: int) -> Sequence[Result]:
        return self._expected.get(start, [])

    def _of_part(self, part: Part, start: int) -> list[Result]:
        """The batch's readings of the keys that the part has answered for."""
        keys = {row["key"] for row in part.rows}
        return [row for row in self._all(start) if row.key in keys]

    def _not_found(self, rows: Sequence[Record], expected: Sequence[Result]) -> Record | None:
        """The first row that does not stand behind the one before it in the batch."""
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
