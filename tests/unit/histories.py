"""Writes histories of results as a correct root would, for tests of checkers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from slackwater.codec.results import format_time
from slackwater.judge.batch import BatchResult, ExactAggregates, exact_aggregates
from slackwater.judge.check import Expectations
from slackwater.model.deployment import WindowSpec
from slackwater.primitives.aggregates import AGGREGATES


class Root:
    """One part's records; ``records`` are the lines of results.jsonl."""

    def __init__(
        self,
        expectations: Expectations,
        batch: BatchResult,
        part: int = 0,
        owns: Iterable[str] | None = None,
    ) -> None:
        self.expectations = expectations
        self.part = part
        self.seq = 0
        self.epoch = 0
        self.stable_from = self.answered_to = expectations.first
        self.now = expectations.anchor_wall
        self.records: list[dict[str, Any]] = []
        self._epochs: dict[int, int] = {}
        owned = None if owns is None else set(owns)
        self._cells: dict[int, dict[str, dict[str, ExactAggregates]]] = {}
        for (start, key), fields in sorted(batch.items()):
            if owned is None or key in owned:
                self._cells.setdefault(start, {})[key] = fields

    def tentative(self, windows: int = 1, lacking: Sequence[str] = ()) -> None:
        """Answer the next windows without the readings of these streams."""
        for _ in range(windows):
            start = self.answered_to
            if self.stable_from == self.answered_to:
                self.epoch += 1
            self._epochs[start] = self.epoch
            self.now = max(
                self.now, int(self.expectations.due(start + self.expectations.window.size_us)) + 1
            )
            self._window(start, "tentative", self.epoch, lacking)
            self.answered_to += self.expectations.window.slide_us

    def stable(self, windows: int = 1) -> None:
        """Answer the next windows as stable, in one transaction."""
        behind = self.stable_from + windows * self.expectations.window.slide_us
        if undone := self.stable_from < self.answered_to:
            last = min(behind, self.answered_to) - self.expectations.window.slide_us
            self._put(
                kind="undo",
                undo_from=format_time(self.stable_from),
                undo_to=format_time(last),
            )
        while self.stable_from < behind:
            start = self.stable_from
            self.now = max(
                self.now, int(self.expectations.due(start + self.expectations.window.size_us)) + 1
            )
            self._window(start, "stable", self._epochs.pop(start, 0), ())
            self.stable_from += self.expectations.window.slide_us
        self.answered_to = max(self.answered_to, self.stable_from)
        if undone and self.stable_from == self.answered_to:
            self._put(kind="rec_done")

    def empty_run(self, windows: int) -> None:
        """One stable boundary for several windows without rows."""
        window = self.expectations.window
        last = self.stable_from + (windows - 1) * window.slide_us
        self.now = max(self.now, int(self.expectations.due(last + window.size_us)) + 1)
        self._boundary(self.stable_from, "stable", 0, (), 0, windows)
        self.stable_from += windows * self.expectations.window.slide_us
        self.answered_to = self.stable_from

    def skip(self, windows: int, lacking: Sequence[str] = (), *, late_us: int = 0) -> None:
        """Write one line for the next windows, all overdue.

        The last by ``late_us`` more than its X.
        """
        start, expectations = self.answered_to, self.expectations
        self.epoch += self.stable_from == self.answered_to
        self.answered_to += windows * expectations.window.slide_us
        self._epochs |= dict.fromkeys(
            range(start, self.answered_to, expectations.window.slide_us), self.epoch
        )
        due = int(
            expectations.due(
                self.answered_to - expectations.window.slide_us + expectations.window.size_us
            )
        )
        self.now = max(self.now, due + expectations.bound + late_us)
        self._boundary(start, "tentative", self.epoch, lacking, 0, windows)
        self.records[-1]["skipped"] = True

    def _window(self, start: int, label: str, epoch: int, lacking: Sequence[str]) -> None:
        rows = 0
        for key, fields in self._cells.get(start, {}).items():
            given = {name: self._given(figures, lacking) for name, figures in fields.items()}
            if lacking and not any(f["count"] for f in given.values()):
                continue
            rows += 1
            self._put(
                kind=label,
                epoch=epoch,
                window_start=format_time(start),
                window_end=format_time(start + self.expectations.window.size_us),
                key=key,
                fields=given,
                missing=sorted(lacking),
                due_at=format_time(
                    int(self.expectations.due(start + self.expectations.window.size_us))
                ),
            )
        self._boundary(start, label, epoch, lacking, rows, 1)

    def _given(self, figures: ExactAggregates, lacking: Sequence[str]) -> dict[str, Any]:
        given: dict[str, Any] = {
            name: figures.numbers[name] for name in self.expectations.aggregate
        }
        if "count" in given:
            given["count"] -= sum(figures.by_stream.get(s, 0) for s in lacking)
        return given

    def _boundary(
        self,
        start: int,
        label: str,
        epoch: int,
        lacking: Sequence[str],
        rows: int,
        windows: int,
    ) -> None:
        end = (
            start
            + (windows - 1) * self.expectations.window.slide_us
            + self.expectations.window.size_us
        )
        self._put(
            kind="boundary",
            label=label,
            epoch=epoch,
            window_start=format_time(start),
            window_end=format_time(end),
            windows=windows,
            keys=rows,
            missing=sorted(lacking),
            due_at=format_time(int(self.expectations.due(end))),
        )

    def _put(self, **values: Any) -> None:
        self.records.append(
            {
                "query": self.expectations.query,
                "part": self.part,
                "seq": self.seq,
                "epoch": self.epoch,
                "emitted_at": format_time(self.now),
                "seen_at": format_time(self.now + 2_000),
            }
            | values
        )
        self.seq += 1


def expectations(**changes: Any) -> Expectations:
    """Windows of 1 s from event time 1000 s on, twenty times as fast, ten windows."""
    second = 1_000_000
    values: dict[str, Any] = {
        "query": "climate",
        "window": WindowSpec(second, second),
        "parts": 1,
        "aggregate": ("count", "sum", "min", "max"),
        "bound": second // 2,
        "lateness": 0,
        "speed": 1.0,
        "anchor_wall": 5_000 * second,
        "anchor_event": 1_000 * second,
        "end": 1_010 * second,
        "last_reading": 1_010 * second - 1,
        "early": 0,
    }
    return Expectations(**(values | changes))


def batch(cells: Mapping[tuple[int, str], Mapping[str, int]]) -> BatchResult:
    """Return (window second, key) -> stream -> number of readings of the value 2."""
    return {
        (start * 1_000_000, key): {
            "x": exact_aggregates(
                [((stream,), 2.0) for stream, n in counts.items() for _ in range(n)],
                0.0,
                AGGREGATES,
            )
        }
        for (start, key), counts in cells.items()
    }
