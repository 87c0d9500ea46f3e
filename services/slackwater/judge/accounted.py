"""Accounts for each reading of an input: it is in the stream's log, in quarantine, or lost.

The log may have readings of other inputs, so only those of this one are looked for, as often as the
input has them. A reading is found by its time, key and values, which are compared exactly. One that
is not in the log must be in quarantine with the same time, and quarantine must have at least as
many malformed readings as the input has malformed rows.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from slackwater.judge.readings import FileReading, StreamInput

SHOWN_MAX: Final = 5
_UNREADABLE: Final = ("malformed", "crash")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class InputAccount:
    """What became of an input's readings; ``examples`` describe the first lost ones."""

    readings: int
    logged: int
    quarantined: int
    lost: int
    others: int
    malformed: int
    malformed_quarantined: int
    examples: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether each reading and each malformed row is accounted for."""
        return not self.lost and self.malformed_quarantined >= self.malformed


class InputAccounting:
    """Takes a stream's log and quarantine, and compares them with an input."""

    def __init__(self, sent: StreamInput, complete_from_us: int | None = None) -> None:
        """``complete_from_us``: earlier readings may be deleted from the log, and are left out."""
        kept = [r for r in sent.readings if complete_from_us is None or r.stime >= complete_from_us]
        self._sent = sent
        self._readings = len(kept)
        self._left = Counter(kept)
        self._logged = self._others = 0
        self._unreadable: set[str] = set()
        self._refused: dict[tuple[str, str], int | None] = {}

    def logged(self, reading: FileReading) -> None:
        """Take a reading of the log."""
        if self._left[reading] > 0:
            self._left[reading] -= 1
            self._logged += 1
        else:
            self._others += 1

    def quarantined(self, position: str, reason: str, stime: int | None) -> None:
        """Take an entry of quarantine; one that is written twice counts once."""
        if reason in _UNREADABLE:
            self._unreadable.add(position)
        else:
            self._refused[position, reason] = stime

    def account(self) -> InputAccount:
        """Return the account, when all of both has been taken."""
        refused = Counter(self._refused.values())
        quarantined, lost = 0, []
        for reading, times in self._left.items():
            found = min(times, refused[reading.stime])
            refused[reading.stime] -= found
            quarantined += found
            lost += [reading] * (times - found)
        return InputAccount(
            self._readings,
            self._logged,
            quarantined,
            len(lost),
            self._others,
            self._sent.malformed,
            len(self._unreadable),
            tuple(map(_shown, lost[:SHOWN_MAX])),
        )


def _shown(reading: FileReading) -> str:
    time = (_EPOCH + timedelta(microseconds=reading.stime)).isoformat().replace("+00:00", "Z")
    values = ", ".join("null" if value is None else f"{value:g}" for value in reading.values)
    return f"{time} {reading.key}: {values}"
