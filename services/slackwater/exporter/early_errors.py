"""How wrong the tentative answers of a query were. Pure: records in, judged rows out.

A tentative row is kept until its window is exact, and is compared with the exact row of its key. A
failure may last for any time, so what is kept is bounded. To drop the oldest rows, or the newest,
would leave out the longest failures, whose answers are the most wrong. A uniform sample does not:
a row is kept if the hash of its part, window and key is below a limit, and the limit is halved
whenever too many are kept. It is as at the begin once no row is kept.

Sampling by hash, and not by chance, makes the same records give the same figures.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from slackwater.codec.results import parse_time

ROWS_MAX: Final = 20_000
"""Tentative rows that are kept of a query."""
HASH_BYTES: Final = 8
HASHES: Final = 1 << 8 * HASH_BYTES
Verdict = Literal["right", "off", "gone"]
"""All figures were those of the exact row; some were not; there is no exact row."""


@dataclass(frozen=True, slots=True)
class JudgedRow:
    """A tentative row whose window is exact now.

    ``errors``: by figure (``temperature_avg``), how far its value was off, in its own unit; without
    those of which one of the two values is no number.
    """

    verdict: Verdict
    errors: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class _Early:
    """The last tentative answer of a window, of one part."""

    end: int
    rows: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    is_complete: bool = False
    """Its boundary has come: a later tentative row is of another answer."""


class EarlyErrors:
    """Judges the tentative rows of one query with windows; each part in the order of ``seq``."""

    def __init__(self, rows_max: int = ROWS_MAX) -> None:
        self._rows_max = rows_max
        self._early: dict[tuple[int, int], _Early] = {}
        self._kept = 0
        self._limit = HASHES
        self._exact: Counter[int] = Counter()
        """By part, the exact rows since its last boundary."""

    @property
    def kept(self) -> int:
        """Number of rows that are kept."""
        return self._kept

    def take(self, record: Mapping[str, Any]) -> Iterator[JudgedRow]:
        """Accept the next record; yield the rows that it judges."""
        match record["kind"]:
            case "tentative":
                self._keep(record)
            case "stable":
                self._exact[record["part"]] += 1
                if self._kept:
                    yield from self._compare(record)
            case "boundary":
                yield from self._close(record)

    def _keep(self, record: Mapping[str, Any]) -> None:
        part, start = record["part"], parse_time(record["window_start"])
        early = self._early.get((part, start))
        if early is None or early.is_complete:
            self._forget(part, start)
            early = self._early[part, start] = _Early(parse_time(record["window_end"]))
        if _hash(part, start, record["key"]) < self._limit and record["key"] not in early.rows:
            early.rows[record["key"]] = record["fields"]
            self._kept += 1
            while self._kept > self._rows_max:
                self._thin()

    def _thin(self) -> None:
        self._limit //= 2
        self._kept = 0
        for (part, start), early in self._early.items():
            rows = early.rows.items()
            early.rows = {k: of for k, of in rows if _hash(part, start, k) < self._limit}
            self._kept += len(early.rows)

    def _forget(self, part: int, start: int) -> _Early | None:
        early = self._early.pop((part, start), None)
        if early is not None:
            self._kept -= len(early.rows)
        if not self._early:
            self._limit = HASHES
        return early

    def _compare(self, record: Mapping[str, Any]) -> Iterator[JudgedRow]:
        early = self._early.get((record["part"], parse_time(record["window_start"])))
        was = None if early is None else early.rows.pop(record["key"], None)
        if was is not None:
            self._kept -= 1
            yield judged(was, record["fields"])

    def _close(self, boundary: Mapping[str, Any]) -> Iterator[JudgedRow]:
        """End a window. Exact answers come in order, so all up to an exact one are exact."""
        part, end = boundary["part"], parse_time(boundary["window_end"])
        if boundary["label"] != "stable":
            early = self._early.get((part, parse_time(boundary["window_start"])))
            if early is not None:
                early.is_complete = True
            return
        rows = self._exact.pop(part, 0)
        is_complete = rows == boundary.get("keys", rows)  # else retention has deleted some
        for of, start in [at for at, early in self._early.items() if early.end <= end]:
            if of == part and (early := self._forget(of, start)) is not None and is_complete:
                yield from (JudgedRow("gone") for _ in early.rows)


def judged(early: Mapping[str, Any], exact: Mapping[str, Any]) -> JudgedRow:
    """Compare the fields of a tentative row with those of the exact one."""
    was, now = _figures(early), _figures(exact)
    errors = {
        name: abs(value - before)
        for name, value in now.items()
        if _is_number(value) and _is_number(before := was.get(name))
    }
    return JudgedRow("right" if was == now else "off", errors)


def _figures(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"{name}_{figure}": value
        for name, figures in fields.items()
        if isinstance(figures, Mapping)
        for figure, value in figures.items()
    }


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _hash(part: int, start: int, key: str) -> int:
    digest = hashlib.blake2b(f"{part}/{start}/{key}".encode(), digest_size=HASH_BYTES).digest()
    return int.from_bytes(digest)
