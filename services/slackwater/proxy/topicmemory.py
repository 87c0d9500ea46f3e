"""What a process remembers of a stream's topic while its input is opened anew."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

UNKNOWN_OFFSET: Final = -1


@dataclass(slots=True)
class TopicMemory:
    """``ends``: by the identity of an input, the last end offset that was seen.

    ``truncated_at``: likewise, the offset at which the log was truncated, until the next record has
    been appended; ``UNKNOWN_OFFSET``: the client cannot tell. ``changes``: how many partitions have
    been found to be changed, by the kind of change.
    """

    ends: dict[str, int] = field(default_factory=dict)
    truncated_at: dict[str, int] = field(default_factory=dict)
    changes: Counter[str] = field(default_factory=Counter)

    def note_truncation(self, identity: str, offset: int) -> bool:
        """Note where a log was truncated; False if no record came since it was noted."""
        known = self.truncated_at.get(identity)
        self.truncated_at[identity] = offset
        return known != offset
