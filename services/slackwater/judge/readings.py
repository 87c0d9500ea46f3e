"""Readings as the judge has them: what a stream's input contains, in its order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from slackwater.model.deployment import StreamSpec

MALFORMED_SHOWN_MAX: Final = 20
"""How many malformed rows are kept with their reasons; all are counted."""


@dataclass(frozen=True, slots=True)
class FileReading:
    """One valid reading of an input; ``stime`` in us since the epoch, None for a missing value."""

    stime: int
    key: str
    values: tuple[float | None, ...]


@dataclass(slots=True)
class StreamInput:
    """Readings of one input, in order; ``late`` holds indices into ``readings``.

    ``examples`` are the first malformed rows: their line numbers and reasons.
    """

    spec: StreamSpec
    readings: list[FileReading] = field(default_factory=list)
    late: set[int] = field(default_factory=set)
    malformed: int = 0
    blank: int = 0
    examples: list[tuple[int, str]] = field(default_factory=list)
    largest: int | None = None
    """The largest time of the readings so far, us."""

    def add(self, reading: FileReading) -> None:
        """Append a reading; it is late if it is more than ``disorder`` below the largest time."""
        if self.largest is not None and reading.stime < self.largest - self.spec.disorder_us:
            self.late.add(len(self.readings))
        is_largest = self.largest is None or reading.stime > self.largest
        self.largest = reading.stime if is_largest else self.largest
        self.readings.append(reading)

    def refuse(self, line: int, reason: str) -> None:
        """Count a malformed row."""
        self.malformed += 1
        if len(self.examples) < MALFORMED_SHOWN_MAX:
            self.examples.append((line, reason))

    def until(self, limit: int) -> StreamInput:
        """Return what was sent when the replay ended at event time ``limit``.

        A reading is sent when the largest time up to it is reached, so the readings sent are a
        prefix of the file. (``malformed`` remains that of the whole file.)
        """
        sent = StreamInput(
            self.spec, malformed=self.malformed, blank=self.blank, examples=self.examples
        )
        largest = None
        for reading in self.readings:
            largest = reading.stime if largest is None else max(largest, reading.stime)
            if largest > limit:
                break
            sent.add(reading)
        return sent

    @property
    def accepted(self) -> Iterator[FileReading]:
        """Yield the readings that are not late."""
        return (r for i, r in enumerate(self.readings) if i not in self.late)
