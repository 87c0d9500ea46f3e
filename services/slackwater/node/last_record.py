"""The record that a node has carried out last, in a file of its data directory.

A node that starts while no controller can be reached runs what this record places on it. Results do
not depend on controllers, so neither does a machine that was restarted. What has been placed on
another node meanwhile has a greater placement number there, and the older copy stays down
(trace-17).
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from slackwater.control.control_state import ControlState
from slackwater.controller.wire import WireError, from_bytes, to_bytes
from slackwater.runtime.security.private import write_atomically

_log = logging.getLogger(__name__)

FILE: Final = "node-record.json"


class LastRecord:
    """The file in a node's data directory."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / FILE
        self._written: ControlState | None = None

    def write(self, record: ControlState) -> None:
        """Replace the record, unless it is the one that was written last.

        Raises:
            OSError: the file cannot be written.
        """
        if record != self._written:
            write_atomically(self._path, to_bytes(ControlState, record).decode() + "\n")
            self._written = record

    def read(self) -> ControlState | None:
        """Return the record; None without a file. One that cannot be read is reported, and None."""
        try:
            found: ControlState = from_bytes(ControlState, self._path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, WireError) as error:
            _log.warning("%s cannot be read, so nothing runs without controllers: %s", FILE, error)
            return None
        return found
