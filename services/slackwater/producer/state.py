"""The state of a sender, in a small file: its identity, and the number of readings acknowledged.

Before a batch is sent, its number of readings is recorded. After a restart, a sender sends its
readings again from ``position`` on. The first batch then has as many readings as before, and so the
same key and content as the batch that may have arrived already.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from pathlib import Path
from typing import Any

from slackwater.producer.sink import ProducerError
from slackwater.runtime.security.private import make_private, write_atomically


class SenderState:
    """The state of one sender. ``path`` None: kept in memory, so a restart is a new sender."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = -1
        self.producer = secrets.token_hex(8)
        self.position = 0
        """Number of readings acknowledged."""
        self.sending = 0
        """Number of readings of the batch that may have arrived; 0 if there is none."""
        if path is not None:
            make_private(path.parent)
            self._hold(path)
            self._load(path)

    def begin(self, readings: int) -> None:
        """Record the size of the batch that is about to be sent."""
        if self.sending != readings:
            self.sending = readings
            self._save()

    def acknowledge(self, position: int) -> None:
        """Record that the batch was acknowledged."""
        self.position, self.sending = position, 0
        self._save()

    def close(self) -> None:
        """Release the file's lock."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _hold(self, path: Path) -> None:
        self._lock = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise ProducerError(f"{path} is used by another producer") from None

    def _load(self, path: Path) -> None:
        try:
            found: Any = json.loads(path.read_text())
            producer, position, sending = (
                str(found["producer"]),
                int(found["position"]),
                int(found["sending"]),
            )
        except FileNotFoundError:
            self._save()
            return
        except (OSError, ValueError, TypeError, KeyError) as error:
            self.close()
            raise ProducerError(f"{path} is not a producer's state: {error!r}") from error
        self.producer, self.position, self.sending = producer, position, sending

    def _save(self) -> None:
        if self._path is not None:
            state = {
                "producer": self.producer,
                "position": self.position,
                "sending": self.sending,
            }
            write_atomically(self._path, json.dumps(state))
