"""Tables of the spool for requests: answered idempotency keys, and quarantine entries not yet sent.

Both are written in the transaction that stores a request's readings. When a request is repeated,
because its response was lost, either its key and all its data are stored, or nothing is. The
refused readings of a request are as durable as the accepted ones, also while Kafka is unavailable:
they are kept here until the quarantine topic has them.

Keys are kept for ``KEYS_US_MAX``, and at most ``KEYS_MAX`` per stream; the oldest are deleted
first. A key of the maximum length takes about 500 bytes on disk.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

KEYS_MAX: Final = 500_000
KEYS_US_MAX: Final = 24 * 3_600_000_000
KEY_CHARS_MAX: Final = 255
_FORGOTTEN_AT_ONCE_MAX: Final = 1_000
"""Maximum keys deleted by one transaction, so that none of them takes long."""

TABLES: Final = """
CREATE TABLE IF NOT EXISTS request_keys (
  seq INTEGER PRIMARY KEY,
  key TEXT NOT NULL UNIQUE,
  at_us INTEGER NOT NULL,
  digest BLOB NOT NULL,
  counts BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS refused_readings (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  position TEXT NOT NULL,
  value BLOB NOT NULL
);
"""


@dataclass(frozen=True, slots=True)
class RequestKey:
    """An answered request: its key, a digest of its body, and the counts in its answer."""

    key: str
    digest: bytes
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Brought:
    """The data of requests besides readings, stored together with these."""

    at_us: int
    keys: Sequence[RequestKey] = ()
    refused: Sequence[tuple[str, bytes]] = ()
    """Position and encoded quarantine entry."""

    @property
    def bytes(self) -> int:
        """Size of the quarantine entries."""
        return sum(len(value) for _, value in self.refused)


class Remembered:
    """The two tables. The caller holds the transaction; not thread-safe."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def find(self, key: str) -> RequestKey | None:
        """Return the answered request with this key."""
        row = self._db.execute(
            "SELECT digest, counts FROM request_keys WHERE key = ?", (key,)
        ).fetchone()
        return None if row is None else RequestKey(key, row[0], orjson.loads(row[1]))

    def add(self, brought: Brought) -> None:
        """Store keys and refused readings; delete keys that are old or too many."""
        self._db.executemany(
            "INSERT INTO request_keys (key, at_us, digest, counts) VALUES (?, ?, ?, ?)",
            [(k.key, brought.at_us, k.digest, orjson.dumps(dict(k.counts))) for k in brought.keys],
        )
        self._db.executemany(
            "INSERT INTO refused_readings (position, value) VALUES (?, ?)", brought.refused
        )
        if brought.keys:
            self._forget(brought.at_us)

    def unsent(self, after: int, at_most: int) -> list[tuple[int, str, bytes]]:
        """Return refused readings in order: sequence number, position, encoded entry."""
        return self._db.execute(
            "SELECT seq, position, value FROM refused_readings WHERE seq > ? ORDER BY seq LIMIT ?",
            (after, at_most),
        ).fetchall()

    def drop_unsent(self, up_to: int) -> int:
        """Delete refused readings that are in the quarantine topic; return their size."""
        size = self._db.execute(
            "SELECT coalesce(sum(length(value)), 0) FROM refused_readings WHERE seq <= ?", (up_to,)
        ).fetchone()
        self._db.execute("DELETE FROM refused_readings WHERE seq <= ?", (up_to,))
        return int(size[0])

    @property
    def bytes(self) -> int:
        """Size of the refused readings that are not yet sent."""
        sizes = self._db.execute("SELECT coalesce(sum(length(value)), 0) FROM refused_readings")
        return int(sizes.fetchone()[0])

    def _forget(self, now_us: int) -> None:
        # Keys are deleted from the oldest on, so their numbers are contiguous.
        self._db.execute(
            "DELETE FROM request_keys WHERE seq <= (SELECT max(seq) FROM request_keys) - ?",
            (KEYS_MAX,),
        )
        self._db.execute(
            "DELETE FROM request_keys WHERE at_us < ?"
            " AND seq < (SELECT min(seq) FROM request_keys) + ?",
            (now_us - KEYS_US_MAX, _FORGOTTEN_AT_ONCE_MAX),
        )
