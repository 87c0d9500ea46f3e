"""What a process remembers of a stream's topic while its input is opened anew."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, NamedTuple

UNKNOWN_OFFSET: Final = -1


class LostEnd(NamedTuple):
    """Where a log was truncated, as the client told of a position with this leader epoch.

    ``offset``: ``UNKNOWN_OFFSET`` if the client cannot tell.
    """

    offset: int
    epoch: int


@dataclass(slots=True)
class TopicMemory:
    """``ends``: by the identity of an input, the last end offset that was seen.

    ``truncated``: likewise, where the log was truncated, until the next record has been appended.
    ``changes``: how many partitions have been found to be changed, by the kind of change.
    """

    ends: dict[str, int] = field(default_factory=dict)
    truncated: dict[str, LostEnd] = field(default_factory=dict)
    changes: Counter[str] = field(default_factory=Counter)

    def note_truncation(self, identity: str, offset: int, epoch: int) -> bool:
        """Note where a log was truncated; False if no record came since it was noted."""
        known, self.truncated[identity] = self.truncated.get(identity), LostEnd(offset, epoch)
        return known != self.truncated[identity]
