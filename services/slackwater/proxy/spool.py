"""The spool: stores readings with their ids on disk before the sensor gets an acknowledgement.

DPC's data sources log every tuple persistently before it is used (section 2.2). The log itself is
in Kafka; the spool has the records that are not in Kafka yet, so that a reading survives an outage
of Kafka and a crash of the proxy. It is one SQLite file in WAL mode.

* A batch is one encoded source record. A record that is sent again after a crash has the same ids
  and columns; only the incarnation in its header is new, since readers drop an old one (rule-10).
* ``synchronous=FULL`` for readings: an acknowledgement survives a power failure. Sensors are
  acknowledged in batches, so one fsync serves thousands of readings. NORMAL, which in WAL mode
  survives a crash of the process but may lose the last transactions in a power failure, suffices
  for state that a restart can read from the log: watermarks (ten per second), deliveries, hints.
* Bounded. When ``bytes_max`` is reached or the disk is full, ``append`` raises ``PushBackError``
  and changes nothing: the sensor keeps the reading. The spool never drops a reading.
* An identity, created once and named by START, distinguishes two spools of a stream (trace-2).

Rejected: a custom file with length prefixes. It is faster, but torn writes, deletion of prefixes
and a full disk are problems that SQLite has solved.
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from slackwater.codec import decode_source, encode_source
from slackwater.model.errors import EnvironmentProblem, SlackwaterError
from slackwater.model.limits import NEVER
from slackwater.model.records import SourceRecord
from slackwater.proxy.remembered import TABLES as REQUEST_TABLES
from slackwater.proxy.remembered import Remembered
from slackwater.runtime.security.private import FILE_MODE, make_private

BYTES_DEFAULT_MAX: Final = 1024 * 1024 * 1024
RECORDS_AT_ONCE: Final = 64
"""Records read at once, since the spool may be larger than memory."""

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS hints (log TEXT PRIMARY KEY, hint TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS inputs (name TEXT PRIMARY KEY, position INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS batches (
  first_id INTEGER PRIMARY KEY,
  last_id INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  record BLOB NOT NULL
);
"""


Also = Callable[[sqlite3.Connection], None]
"""Stores an input's own data in the transaction of its readings."""


class PushBackError(SlackwaterError):
    """No room: the sensor must keep its readings and retry later."""


@dataclass(frozen=True, slots=True)
class Spooled:
    """State of the sequence that the spool has assigned."""

    next_id: int
    watermark: int
    largest: int


class Spool:
    """The spool of one stream. Not thread-safe."""

    def __init__(self, path: Path, db: sqlite3.Connection, bytes_max: int) -> None:
        self.path = path
        self._db = db
        self._bytes_max = bytes_max
        self.remembered = Remembered(db)
        self.identity = ""
        self.bytes_held = 0

    @classmethod
    def open(cls, path: Path, bytes_max: int = BYTES_DEFAULT_MAX) -> Spool:
        """Open the spool file; create it if missing."""
        try:
            make_private(path.parent)
            # SQLite gives its auxiliary files the mode of this file.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, FILE_MODE))
            db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            db.execute("PRAGMA journal_mode=WAL")
            db.executescript(_TABLES + REQUEST_TABLES)
            db.execute(
                "INSERT OR IGNORE INTO meta VALUES ('identity', ?)", (secrets.token_hex(16),)
            )
        except (OSError, sqlite3.Error) as error:
            raise EnvironmentProblem(f"the spool {path} cannot be opened: {error}") from error
        spool = cls(path, db, bytes_max)
        spool.identity = spool._meta("identity", "")
        spool.bytes_held = spool._total()
        return spool

    def close(self) -> None:
        """Close the file; its content is kept."""
        self._db.close()

    def own(self, tables: str) -> sqlite3.Connection:
        """Create an input's own tables if missing; ``append`` writes to them through ``also``."""
        self._db.executescript(tables)
        return self._db

    # Readings.

    def spooled(self) -> Spooled:
        """Return the next id, the watermark and the largest time."""
        return Spooled(
            int(self._meta("next_id", "0")),
            int(self._meta("promise", str(NEVER))),
            int(self._meta("largest", str(NEVER))),
        )

    def append(
        self,
        records: Sequence[SourceRecord],
        largest: int,
        positions: Mapping[str, int] | None = None,
        also: Also | None = None,
    ) -> None:
        """Store records, their watermark and the inputs' positions, all or nothing.

        ``also`` runs in the same transaction. Once it returns, the sensor may be acknowledged.
        """
        rows = []
        for record in records:
            blob = encode_source(record)
            rows.append((record.first_id, record.last_id, len(blob), blob))
        size = sum(row[2] for row in rows)
        if self.bytes_held + size > self._bytes_max:
            raise PushBackError(
                f"the spool {self.path} is full ({self.bytes_held} of {self._bytes_max} bytes)"
            )
        with self._transaction(durable=True):
            self._db.executemany("INSERT INTO batches VALUES (?, ?, ?, ?)", rows)
            if records:
                self._set("next_id", records[-1].last_id + 1)
                self._set("promise", records[-1].boundary)
            self._set("largest", largest)
            self._db.executemany(
                "INSERT OR REPLACE INTO inputs VALUES (?, ?)", list((positions or {}).items())
            )
            if also is not None:
                also(self._db)
        self.bytes_held += size

    def keep_watermark(self, watermark: int) -> None:
        """Store a boundary before it is sent (rule-9)."""
        with self._transaction():
            self._set("promise", watermark)

    def unsent(self, from_id: int = 0) -> Iterator[SourceRecord]:
        """Yield unacknowledged records in the order of their ids."""
        while rows := self._db.execute(
            "SELECT last_id, record FROM batches WHERE first_id >= ? ORDER BY first_id LIMIT ?",
            (from_id, RECORDS_AT_ONCE),
        ).fetchall():
            for _, blob in rows:
                yield decode_source(blob, self.path)
            from_id = rows[-1][0] + 1

    def acknowledge(self, last_id: int) -> None:
        """Delete records up to ``last_id``, which are in the log."""
        # first_id <= last_id, and only first_id is indexed.
        which = "first_id <= ?1 AND last_id <= ?1"
        with self._transaction():
            freed = self._db.execute(
                f"SELECT coalesce(sum(bytes), 0) FROM batches WHERE {which}", (last_id,)
            ).fetchone()
            self._db.execute(f"DELETE FROM batches WHERE {which}", (last_id,))
        self.bytes_held -= int(freed[0])

    def acknowledge_refused(self, up_to: int) -> None:
        """Delete refused readings up to this sequence number, which are in the quarantine."""
        with self._transaction():
            freed = self.remembered.drop_unsent(up_to)
        self.bytes_held -= freed

    def replace_unsent(self, records: Sequence[SourceRecord], next_id: int, watermark: int) -> None:
        """Replace unsent records whose ids another spool's readings have taken.

        See trace-2.
        """
        rows = []
        for record in records:
            blob = encode_source(record)
            rows.append((record.first_id, record.last_id, len(blob), blob))
        with self._transaction(durable=True):
            self._db.execute("DELETE FROM batches")
            self._db.executemany("INSERT INTO batches VALUES (?, ?, ?, ?)", rows)
            self._set("next_id", next_id)
            self._set("promise", watermark)
        self.bytes_held = self._total()

    def position(self, name: str) -> int:
        """Return the position at which an input continues."""
        row = self._db.execute("SELECT position FROM inputs WHERE name = ?", (name,)).fetchone()
        return 0 if row is None else int(row[0])

    # Hints.

    def hints(self) -> dict[str, dict[str, Any]]:
        """Return the last known progress of each log."""
        rows = self._db.execute("SELECT log, hint FROM hints").fetchall()
        return {log: json.loads(hint) for log, hint in rows}

    def keep_hints(self, hints: Mapping[str, Mapping[str, Any]]) -> None:
        """Store hints; failing to do so only makes the next start slower."""
        rows = [(log, json.dumps(dict(hint))) for log, hint in hints.items()]
        try:
            with self._transaction():
                self._db.executemany("INSERT OR REPLACE INTO hints VALUES (?, ?)", rows)
        except PushBackError:
            return

    # SQLite.

    def _total(self) -> int:
        sizes = self._db.execute("SELECT coalesce(sum(bytes), 0) FROM batches").fetchone()
        return int(sizes[0]) + self.remembered.bytes

    def _meta(self, name: str, default: str) -> str:
        row = self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return default if row is None else str(row[0])

    def _set(self, name: str, value: int) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, str(value)))

    def _transaction(self, *, durable: bool = False) -> _Transaction:
        self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
        return _Transaction(self._db, self.path)


class _Transaction:
    """A transaction; a full disk is raised as push-back."""

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        self._db = db
        self._path = path

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if kind is None:
            try:
                self._db.execute("COMMIT")
            except sqlite3.OperationalError as full:
                self._roll_back()
                raise PushBackError(f"the spool {self._path} cannot grow: {full}") from full
            return
        self._roll_back()
        if issubclass(kind, sqlite3.OperationalError):
            raise PushBackError(f"the spool {self._path} cannot grow: {error}") from None

    def _roll_back(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")
