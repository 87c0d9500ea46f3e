"""Progress of a backfill: a bar on a terminal, and a line every few seconds in a pipe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from slackwater.cli.common import emit
from slackwater.cli.tables import short_time
from slackwater.cli.terminals import repaints
from slackwater.codec.results import format_time
from slackwater.formats.parquettext import is_parquet, parquet_rows
from slackwater.runtime.service.clock import SystemClock

LINE_EVERY_S: Final = 2.5
HEAD_BYTES: Final = 65_536


@dataclass(slots=True)
class Backfilled:
    """What has been read and answered."""

    readings: dict[str, int] = field(default_factory=dict)
    last_us: dict[str, int] = field(default_factory=dict)
    """By stream, the largest time of a reading; 0 for none."""
    begin_us: int | None = None
    answered_us: dict[int, int] = field(default_factory=dict)
    """By part, the end of the last answered window."""
    windows: dict[int, int] = field(default_factory=dict)
    rows: int = 0
    lost: Counter[str] = field(default_factory=Counter)

    def begin(self, begin_us: int, parts: Iterable[int]) -> None:
        """Set the start of the query's event time, and its parts."""
        self.begin_us = begin_us
        self.answered_us = dict.fromkeys(parts, begin_us)
        self.windows = dict.fromkeys(self.answered_us, 0)

    @property
    def has_answers(self) -> bool:
        """Whether each part has answered."""
        begin_us = self.begin_us
        return begin_us is not None and all(at > begin_us for at in self.answered_us.values())

    def fraction(self, readings_all: int | None) -> float | None:
        """Return how much of the history is answered, 0 to 1; None while it cannot be known.

        ``readings_all``: readings of all files, approximately.
        """
        read, last_us = sum(self.readings.values()), max(self.last_us.values(), default=0)
        if readings_all is None or not read or self.begin_us is None or last_us <= self.begin_us:
            return None
        answered_us = min(self.answered_us.values()) - self.begin_us
        of_read = min(max(answered_us, 0) / (last_us - self.begin_us), 1.0)
        return min(read / readings_all, 1.0) * of_read


def lines_in(path: Path) -> int | None:
    """Return the number of lines of a file, approximately; None for a packed file."""
    if is_parquet(path):
        return parquet_rows(path)
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    if path.suffix == ".gz" or b"\n" not in head:
        return None
    cut = head[: head.rindex(b"\n") + 1]
    return round(path.stat().st_size * cut.count(b"\n") / len(cut))


class BackfillBar:
    """Shows the progress of one query.

    ``readings_all`` as in ``Backfilled.fraction``; ``printed_s``: when a line was last printed, by
    the same clock.
    """

    def __init__(
        self,
        query: str,
        readings_all: int | None,
        clock: SystemClock,
        printed_s: float | None = None,
    ) -> None:
        self._readings_all, self._clock = readings_all, clock
        self._console = Console()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[counted]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
        )
        self._task = self._progress.add_task(query, total=None, counted="")
        self._began_s = clock.now_us() / 1e6
        self._printed_s = self._began_s if printed_s is None else printed_s

    def __enter__(self) -> Self:
        """Begin to show it."""
        if repaints(self._console):
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the last state on the screen."""
        if repaints(self._console):
            self._progress.stop()

    def reached(self, line: str) -> None:
        """Print the line of a stage that is ready; on a terminal it stays above the bar."""
        self._printed_s = self._clock.now_us() / 1e6
        if repaints(self._console):
            self._console.print(line, markup=False, highlight=False)
        else:
            emit(line)

    def show(self, seen: Backfilled, awaited: str = "") -> None:
        """Show the present state, if it is time; ``awaited``: stages that are not ready."""
        now_s, fraction = self._clock.now_us() / 1e6, seen.fraction(self._readings_all)
        windows = max(seen.windows.values(), default=0)
        starting = f"no answer yet, waiting for {awaited}" if awaited else "no answer yet"
        answers = f"{windows:,} windows" if windows else starting
        counted = f"{sum(seen.readings.values()):,} readings, {answers}"
        if repaints(self._console):
            total = None if fraction is None else 1.0
            self._progress.update(
                self._task, total=total, completed=fraction or 0.0, counted=counted
            )
            return
        if now_s - self._printed_s < LINE_EVERY_S:
            return
        self._printed_s = now_s
        parts = [f"... {now_s - self._began_s:6.1f} s  {counted}"]
        if windows:
            answered = min(seen.answered_us.values())
            parts.append(f"answered to {short_time(format_time(answered))}")
        if fraction:
            left = (now_s - self._began_s) * (1 / fraction - 1)
            parts.append(f"{100 * fraction:.0f} %, about {left:.0f} s left")
        emit(", ".join(parts))
