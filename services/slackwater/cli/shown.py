"""Which undos concern something that was shown: a reader may begin in the middle.

A reader that begins at the end of the results gets the UNDO of tentative answers from before, and
the end of their correction. So does one that shows rows only, of windows that are empty. Neither
has anything to withdraw. Programs get every record (``--format jsonl``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

WINDOWS_MAX: Final = 100_000
"""Tentative windows that are kept for each part; with more every UNDO is shown."""


class ShownAnswers:
    """The windows of which tentative rows were shown and not withdrawn, by part."""

    def __init__(self) -> None:
        self._tentative: dict[int, set[str]] = {}
        self._correcting: set[int] = set()

    def concerns(self, record: Mapping[str, Any]) -> bool:
        """Take the next record; return whether it is one to be shown.

        All are, but an UNDO that withdraws nothing that was shown, and the end of a correction
        (REC_DONE) in which nothing shown was withdrawn.
        """
        part = record["part"]
        if record["kind"] == "tentative":
            shown = self._tentative.setdefault(part, set())
            if len(shown) < WINDOWS_MAX:
                shown.add(record["window_start"])
        elif record["kind"] == "undo":
            return self._withdraw(part, record["undo_from"], record["undo_to"])
        elif record["kind"] == "rec_done":
            was_correcting = part in self._correcting
            self._correcting.discard(part)
            return was_correcting
        return True

    def _withdraw(self, part: int, first: str, last: str) -> bool:
        shown = self._tentative.get(part, set())
        is_full = len(shown) >= WINDOWS_MAX
        withdrawn = {start for start in shown if first <= start <= last}
        shown -= withdrawn
        if withdrawn or is_full:
            self._correcting.add(part)
        return bool(withdrawn) or is_full
