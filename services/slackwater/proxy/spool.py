"""The spool: readings are on disk, with their ids, before the sensor is told that we have them.

DPC's data source logs every tuple persistently before it is used (section 2.2). The log proper is
Kafka; the spool holds what is on its way there, so that a reading survives Kafka's absence and our
own death. It is one SQLite file in WAL mode.

* A batch is one encoded source record. Sent again after a crash it has the same ids and the same
  columns; only the incarnation in its header is the new one, without which readers would drop it
  (rule-10).
* ``synchronous=FULL`` for readings: an acknowledgement is a promise that outlives a power cut, and
  sensors are acknowledged in batches, so one fsync serves thousands of readings. NORMAL, which in
  WAL mode outlives the process but may lose the last transactions with the power, is enough for
  all that the log says again at a restart: promises (ten a second), what was delivered, hints.
* Bounded. When ``bytes_max`` is reached, or the disk is full, ``append`` raises ``PushBackError``
  and changes nothing: the sensor keeps the reading. Nothing is ever dropped here.
* An identity, made once, that START names: two spools on one stream are told apart by it (trace-2).

Rejected: a file of our own with length prefixes. It is faster, and every question about torn
writes, prefixes to delete and a full disk is one that SQLite has answered.
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from slackwater.codec import decode_source, encode_source
from slackwater.model.errors import EnvironmentProblem, SlackwaterError
from slackwater.model.limits import NEVER
from slackwater.model.records import SourceRecord
from slackwater.runtime.security.private import FILE_MODE, make_private

BYTES_DEFAULT_MAX: Final = 1024 * 1024 * 1024

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


class PushBackError(SlackwaterError):
    """No room: the sensor must keep its readings and try again later."""


@dataclass(frozen=True, slots=True)
class Spooled:
    """What the spool knows of the sequence it has given out."""

    next_id: int
    watermark: int
    largest: int


class Spool:
    """One stream's spool. For one thread."""

    def __init__(self, path: Path, db: sqlite3.Connection, bytes_max: int) -> None:
        self.path = path
        self._db = db
        self._bytes_max = bytes_max
        self.identity = ""
        self.bytes_held = 0

    @classmethod
    def open(cls, path: Path, bytes_max: int = BYTES_DEFAULT_MAX) -> Spool:
        """The spool in this file, which is made if it is not there."""
        try:
            make_private(path.parent)
            # SQLite gives the files beside it the mode of this one.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, FILE_MODE))
            db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            db.execute("PRAGMA journal_mode=WAL")
            db.executescript(_TABLES)
            db.execute(
                "INSERT OR IGNORE INTO meta VALUES ('identity', ?)", (secrets.token_hex(16),)
            )
        except (OSError, sqlite3.Error) as error:
            raise EnvironmentProblem(f"the spool {path} cannot be opened: {error}") from error
        spool = cls(path, db, bytes_max)
        spool.identity = spool._meta("identity", "")
        total = db.execute("SELECT coalesce(sum(bytes), 0) FROM batches").fetchone()
        spool.bytes_held = total[0]
        return spool

    def close(self) -> None:
        """Close the file; what is in it stays."""
        self._db.close()

    # Readings.

    def spooled(self) -> Spooled:
        """How far the ids, the promise and the largest time have come."""
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
    ) -> None:
        """Keep records, the promise they carry and the inputs' positions: all or nothing.

        After it returns, the sensor may be told.
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
        self.bytes_held += size

    def keep_watermark(self, watermark: int) -> None:
        """Store a boundary before it is sent (rule-9)."""
        with self._transaction():
            self._set("promise", watermark)

    def unsent(self, from_id: int = 0) -> Iterator[SourceRecord]:
        """Records that are not acknowledged, in the order of their ids."""
        rows = self._db.execute(
            "SELECT record FROM batches WHERE first_id >= ? ORDER BY first_id", (from_id,)
        )
        for (blob,) in rows.fetchall():
            yield decode_source(blob, self.path)

    def acknowledge(self, last_id: int) -> None:
        """The log holds everything up to here."""
        with self._transaction():
            self._db.execute("DELETE FROM batches WHERE last_id <= ?", (last_id,))
        total = self._db.execute("SELECT coalesce(sum(bytes), 0) FROM batches").fetchone()
        self.bytes_held = total[0]

    def replace_unsent(self, records: Sequence[SourceRecord], next_id: int, watermark: int) -> None:
        """Other ids for what was not accepted, since another spool's readings won them.

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
        self.bytes_held = sum(row[2] for row in rows)

    def position(self, name: str) -> int:
        """Where an input goes on."""
        row = self._db.execute("SELECT position FROM inputs WHERE name = ?", (name,)).fetchone()
        return 0 if row is None else int(row[0])

    # Hints.

    def hints(self) -> dict[str, dict[str, Any]]:
        """How far each log had come, as was last known."""
        rows = self._db.execute("SELECT log, hint FROM hints").fetchall()
        return {log: json.loads(hint) for log, hint in rows}

    def keep_hints(self, hints: Mapping[str, Mapping[str, Any]]) -> None:
        """Remember; a hint that cannot be kept costs time at the next start, and nothing else."""
        rows = [(log, json.dumps(dict(hint))) for log, hint in hints.items()]
        try:
            with self._transaction():
                self._db.executemany("INSERT OR REPLACE INTO hints VALUES (?, ?)", rows)
        except PushBackError:
            return

    # SQLite.

    def _meta(self, name: str, default: str) -> str:
        row = self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return default if row is None else str(row[0])

    def _set(self, name: str, value: int) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, str(value)))

    def _transaction(self, *, durable: bool = False) -> _Transaction:
        self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
        return _Transaction(self._db, self.path)


class _Transaction:
    """All or nothing; a disk that is full is push-back, not an end."""

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
