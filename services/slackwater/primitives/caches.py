"""Caches that are bounded in entries and in bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def evict(
    cache: OrderedDict[K, V],
    nbytes: int,
    size_of: Callable[[K, V], int],
    *,
    entries_max: int,
    bytes_max: int,
) -> int:
    """Drop the first entries until ``cache``, of ``nbytes``, is within the bounds.

    One entry is kept, however large it is. If hits are moved to the end, this evicts the least
    recently used entries. Returns the remaining bytes.
    """
    while len(cache) > 1 and (len(cache) > entries_max or nbytes > bytes_max):
        nbytes -= size_of(*cache.popitem(last=False))
    return nbytes
