"""What the answers of a query consist of, as panes and windows are made of it.

There are two kinds: figures that are merged (``slackwater.primitives.deltas``), and, without a
window, rows that are concatenated (``slackwater.primitives.rows``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from slackwater.model.records import BucketRecord


class Content(Protocol):
    """The contents of an interval of event time; its length is the number of rows."""

    def __len__(self) -> int: ...

    @property
    def nbytes(self) -> int:
        """Approximate size in memory."""
        ...


V = TypeVar("V", bound=Content)


class Folding(Protocol[V]):
    """A left fold of contents in the order of event time."""

    def add(self, value: V) -> None:
        """Add contents to the right of all earlier ones."""
        ...

    def result(self) -> V:
        """Return the fold so far; later additions do not change the returned value."""
        ...


class Contents(Protocol[V]):
    """Makes a query's contents from records, and combines them."""

    @property
    def empty(self) -> V:
        """The contents without rows: the neutral element."""
        ...

    def of(self, record: BucketRecord) -> V:
        """Return the contents of one piece of a bucket."""
        ...

    def folding(self) -> Folding[V]:
        """Return an empty fold."""
        ...

    def merge(self, shares: Iterable[V]) -> V:
        """Combine the children's shares of one interval, given in index order."""
        ...

    def kept(self, value: V) -> V:
        """Return the rows of a window that its answer has, without those that ``having`` drops."""
        ...

    def digest(self, value: V) -> int:
        """Return a number of 64 bits, the same for all copies that hold this value."""
        ...


def folded(contents: Contents[V], values: Iterable[V]) -> V:
    """Return the left fold of the values in their order."""
    folding = contents.folding()
    for value in values:
        folding.add(value)
    return folding.result()
