"""Contiguous ids: tracks the end of the contiguous prefix of a log.

Every stable stream numbers its readings without gaps (rule-4). A log may also hold repeats after a
restart, records of a zombie, and records beyond a hole. The resuming writer and all readers apply
one rule: a run of ids belongs to the sequence exactly if its first id is the next one (rule-7 and
rule-10). The writer does not resume after the last record of the log: that could leave a hole that
no reader can pass (trace-1).

Rejected: keeping runs that arrive too early, and joining them when the hole is filled. The writer
sends them again anyway, and the memory would have no bound.
"""

from __future__ import annotations

from typing import Final

ANY: Final = -1
"""Next id of a sequence that may begin anywhere: the first run determines its ids."""


class Contiguous:
    """The end of a contiguous sequence of ids."""

    __slots__ = ("next_id",)

    def __init__(self, next_id: int = ANY) -> None:
        assert next_id >= ANY
        self.next_id = next_id

    def is_next(self, first_id: int) -> bool:
        """True if a run that begins at ``first_id`` continues the sequence."""
        return self.next_id in (ANY, first_id)

    def accept(self, first_id: int, last_id: int) -> bool:
        """Accept the run [first_id, last_id] (empty: last_id = first_id - 1) if it is next."""
        assert last_id >= first_id - 1, "a run of ids cannot end before it begins"
        if not self.is_next(first_id):
            return False
        self.next_id = last_id + 1
        return True
