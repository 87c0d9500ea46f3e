"""Cache of buckets that several orderers of one process compute from the same readings.

A bucket's content is a pure function of its readings (``operators.py``), and the same for all
queries over the same streams with the same ``where`` and ``select``. With twenty such queries in a
host, computing buckets was a third of the host's work. The first orderer that needs a bucket
computes it, and the others reuse it.

*The same readings* means the same objects, since a host decodes each record once and passes it to
all readers of its log. So the key of an entry is the identity of its input columns, their previous
watermarks, and the bucket's edges. The entry references the columns, so that no identity is reused.
Orderers at different positions, or with different missing streams, do not share entries.

An entry is dropped when all orderers have used it. An orderer that is held back does not use its
entries, so the oldest entry is dropped, too, when there are more than ``ENTRIES_MAX``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeAlias, TypeVar

from slackwater.model.records import SourceColumns

T = TypeVar("T")
Given: TypeAlias = Sequence[Sequence[tuple[SourceColumns, int]]]
"""For each stream its columns, in id order, each with its previous watermark."""
_Key: TypeAlias = tuple[int, int, tuple[tuple[tuple[int, int], ...], ...]]

ENTRIES_MAX: Final = 4


@dataclass(slots=True)
class _Entry(Generic[T]):
    content: T
    given: Given
    takers: int
    """Number of orderers that have not used the entry yet."""


class SharedBuckets(Generic[T]):
    """The buckets of orderers that have the same operators and read the same logs."""

    def __init__(self) -> None:
        self.users = 0
        """Number of registered orderers."""
        self._entries: OrderedDict[_Key, _Entry[T]] = OrderedDict()

    def join(self) -> None:
        """Register an orderer."""
        self.users += 1

    def leave(self) -> None:
        """Unregister an orderer; entries that it has not used are dropped as the oldest ones."""
        self.users -= 1
        if self.users < 2:
            self._entries.clear()

    def content(self, start: int, end: int, given: Given, make: Callable[[], T]) -> T:
        """The content of the bucket [start, end) of these readings, cached or computed now."""
        if self.users < 2:
            return make()
        key = (
            start,
            end,
            tuple(tuple((id(c), prev_watermark) for c, prev_watermark in of) for of in given),
        )
        entry = self._entries.get(key)
        if entry is None:
            content = make()
            self._entries[key] = _Entry(content, given, self.users - 1)
            while len(self._entries) > ENTRIES_MAX:
                self._entries.popitem(last=False)
            return content
        entry.takers -= 1
        if entry.takers <= 0:
            del self._entries[key]
        return entry.content
