"""Detects readings that a broker or a device has sent before, by the device's own counter.

A device is a (topic, key); its counter increases from reading to reading. The largest counter and
the largest time of each device are stored in the transaction that stores its readings, so a message
received again after a crash is detected, at whatever step the crash occurred.

A reading is a duplicate if neither its counter nor its time exceeds the largest. A device whose
counter starts again, after a restart or an overflow, differs from a duplicate by its time, which
increases. The largest counter and time before that are kept, so that readings from before the
restart are also detected.

At most ``DEVICES_MAX`` devices are kept: those with the most recent readings.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from slackwater.model.limits import NEVER
from slackwater.model.records import type_i64

DEVICES_MAX: Final = 200_000
TABLES: Final = """
CREATE TABLE IF NOT EXISTS mqtt_sequences (
  row INTEGER PRIMARY KEY,
  device BLOB NOT NULL UNIQUE,
  sequence INTEGER NOT NULL,
  stime INTEGER NOT NULL,
  before_sequence INTEGER NOT NULL,
  before_stime INTEGER NOT NULL
);
"""

_COLUMNS: Final = "sequence, stime, before_sequence, before_stime"


def device_of(topic: str, key: str) -> bytes:
    """Return the identity of a device, of fixed size."""
    text = f"{len(topic)}:{topic}{key}"
    return blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()


class _Largest(NamedTuple):
    """Largest counter and time of a device, and those before its counter was last reset."""

    sequence: int
    stime: int
    before_sequence: int = NEVER
    before_stime: int = NEVER

    def after(self, sequence: int, stime: int) -> _Largest | None:
        """Return the largest values after this reading; None if it is a duplicate."""
        if sequence <= self.before_sequence and stime <= self.before_stime:
            return None
        if sequence > self.sequence:
            return self._replace(sequence=sequence, stime=max(stime, self.stime))
        if stime > self.stime:
            return _Largest(sequence, stime, max(self.sequence, self.before_sequence), self.stime)
        return None


_NONE: Final = _Largest(NEVER, NEVER)


class Sequences:
    """Largest counter and time of each device; changes are stored with the readings."""

    def __init__(self, db: sqlite3.Connection, devices_max: int = DEVICES_MAX) -> None:
        self._devices_max = devices_max
        rows = db.execute(f"SELECT device, {_COLUMNS} FROM mqtt_sequences ORDER BY row")
        self._largest = {device: _Largest(*largest) for device, *largest in rows}
        """Devices in the order of their last readings, oldest first."""
        self._changed: dict[bytes, None] = {}
        self._forgotten: list[bytes] = []

    def fresh(
        self,
        messages: Sequence[int],
        devices: Sequence[bytes],
        sequences: type_i64,
        stimes: type_i64,
    ) -> npt.NDArray[np.bool_]:
        """Return a mask of the readings that are not duplicates, and record them.

        ``messages`` has the number of each reading's message. Readings of a message may share one
        counter.
        """
        is_fresh = np.zeros(len(devices), np.bool_)
        numbers, times = sequences.tolist(), stimes.tolist()
        message, before = -1, dict[bytes, _Largest]()
        for i, device in enumerate(devices):
            if messages[i] != message:
                message, before = messages[i], {}
            known = self._largest.pop(device, _NONE)
            now = known.after(numbers[i], times[i])
            self._largest[device] = now or known
            began = before.setdefault(device, known)
            if now is not None or began.after(numbers[i], times[i]) is not None:
                is_fresh[i] = True
                self._changed[device] = None
        self._forget()
        return is_fresh

    def store(self, db: sqlite3.Connection) -> None:
        """Store all changes, in the caller's transaction; the caller then calls ``stored``."""
        rows = [(device, *self._largest[device]) for device in self._changed]
        db.executemany(
            "DELETE FROM mqtt_sequences WHERE device = ?", [(d,) for d in self._forgotten]
        )
        db.executemany(
            f"INSERT OR REPLACE INTO mqtt_sequences (device, {_COLUMNS}) VALUES (?, ?, ?, ?, ?)",
            rows,
        )

    def stored(self) -> None:
        """Record that the transaction of ``store`` is durable."""
        self._changed.clear()
        self._forgotten.clear()

    def _forget(self) -> None:
        while len(self._largest) > self._devices_max:
            oldest = next(iter(self._largest))
            del self._largest[oldest]
            self._changed.pop(oldest, None)
            self._forgotten.append(oldest)
