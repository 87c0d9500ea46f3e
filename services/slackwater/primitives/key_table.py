"""Numbers for keys, by which slices and readings refer to them.

A list of keys is compared once; afterwards it is recognised by its hash or by its object, so the
keys of a record that names the same sensors as the one before cost nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from sys import getsizeof

import numpy as np
import numpy.typing as npt

from slackwater.model.errors import SlackwaterError
from slackwater.primitives.caches import evict
from slackwater.primitives.keyparts import xxhash64

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]


class KeyTableFull(SlackwaterError):
    """Raised when the key table exceeds its bound, as with keys that never repeat."""


@dataclass(slots=True)
class _KeyList:
    """A list of keys, their numbers, and the approximate memory of both."""

    keys: Sequence[str]
    numbers: I64
    nbytes: int


class KeyTable:
    """Numbers the keys of one root or one orderer, from 0 on, in order of first occurrence.

    The numbers are valid within this table only; another copy may read keys in another order. Keys
    are never removed, so ``keys_max`` and ``keys_bytes_max`` bound the memory (about 100 bytes per
    key plus its text, and 8 to 16 once hashes are asked for). ``lists_max`` and ``lists_bytes_max``
    bound each of the two caches of key lists. The cache by hash evicts the least recently used
    list, and keeps one list of any length; the cache by identity is cleared when it is full.
    """

    def __init__(
        self,
        keys_max: int = 5_000_000,
        lists_max: int = 1_024,
        *,
        keys_bytes_max: int = 1 << 30,
        lists_bytes_max: int = 128 << 20,
    ) -> None:
        assert keys_max > 0
        assert lists_max > 0
        self._keys_max = keys_max
        self._keys_bytes_max = keys_bytes_max
        self._keys_bytes = 0
        self._lists_max = lists_max
        self._lists_bytes_max = lists_bytes_max
        self._lists_bytes = self._shared_bytes = 0
        self._names: list[str] = []
        self._number: dict[str, int] = {}
        self._lists: OrderedDict[tuple[int, int], _KeyList] = OrderedDict()
        self._sorted: list[int] = []
        self._in_order: list[str] = []
        self._rank: I64 = np.zeros(0, np.int64)
        self._order_of: tuple[I64, I64 | None, list[str]] | None = None
        self._folded: list[I64] = []
        self._hashes: U64 = np.zeros(0, np.uint64)
        self._hashed = 0
        self._shared: dict[int, tuple[Sequence[str], I64]] = {}

    def __len__(self) -> int:
        return len(self._names)

    def indices(self, keys: Sequence[str], keys_hash: int = 0) -> I64:
        """Return the numbers of ``keys``, which must be distinct; new keys are interned.

        For an equal list with its ``keys_hash`` the same array object is returned, by which a fold
        recognises an unchanged list. A hash of 0 means that it is unknown. Lists with one hash are
        compared: Spark's hash has no secret, so keys could be chosen to collide. For a decoder that
        returns the same object for equal lists the comparison costs nothing.

        Raises:
            KeyTableFull: the table would exceed its bounds.
            ValueError: a key occurs twice.
        """
        at = (keys_hash, len(keys))
        known = self._lists.get(at) if keys_hash else None
        if known is None:
            index = self._intern(keys)
        elif known.keys is keys or tuple(known.keys) == tuple(keys):
            self._lists.move_to_end(at)
            known.keys = keys
            return known.numbers
        else:
            return self._intern(keys)
        if keys_hash:
            size = index.nbytes + _text_bytes(keys)
            self._lists[at] = _KeyList(keys, index, size)
            self._lists_bytes += size
            self._lists_bytes = evict(
                self._lists,
                self._lists_bytes,
                lambda _, remembered: remembered.nbytes,
                entries_max=self._lists_max,
                bytes_max=self._lists_bytes_max,
            )
        return index

    def names(self, index: I64) -> list[str]:
        """Return the keys of these numbers."""
        names = self._names
        return [names[i] for i in index.tolist()]

    def in_key_order(self, index: I64) -> tuple[I64 | None, list[str]]:
        """Return the permutation that sorts ``index`` by key (None: sorted), and the sorted keys.

        The order is that of the UTF-8 bytes, which equals Python's order of strings. The last
        result is cached, because the keys seldom change from one window to the next.
        """
        if self._order_of is None or self._order_of[0] is not index:
            self._order_of = (index, *self._put_in_order(index))
        _, order, names = self._order_of
        return order, names

    def shared(self, index: I64) -> I64:
        """Return an equal array that an earlier call returned, or else ``index``.

        Folds of the same keys then have the same ``index`` object, by which later folds recognise
        an unchanged list. The last eight arrays are kept.
        """
        for known in self._folded:
            if np.array_equal(known, index):
                return known
        index.setflags(write=False)
        self._folded = [index, *self._folded[:7]]
        return index

    def ranks(self) -> tuple[I64, list[str]]:
        """Return the rank of each number in key order, and all keys in key order."""
        self._sort()
        return self._rank, self._in_order

    def hashes(self) -> U64:
        """Return the hash of each key's text, by number; a key is hashed once."""
        hashed, count = self._hashed, len(self._names)
        if hashed < count:
            if count > len(self._hashes):  # it doubles, so each hash is copied once on average
                grown = np.empty(max(count, 2 * len(self._hashes)), np.uint64)
                grown[:hashed] = self._hashes[:hashed]
                self._hashes = grown
            self._hashes[hashed:count] = xxhash64(self._names[hashed:]).view(np.uint64)
            self._hashed = count
        return self._hashes[:count]

    def numbers(self, keys: Sequence[str]) -> I64:
        """Return ``indices`` of a key list, cached by identity: codecs reuse the list object."""
        known = self._shared.get(id(keys))
        if known is not None and known[0] is keys:
            return known[1]
        numbers = self.indices(keys)
        size = numbers.nbytes + _text_bytes(keys)  # this may be the last reference to these strings
        full = self._shared_bytes + size > self._lists_bytes_max
        if full or len(self._shared) >= self._lists_max:
            self._shared.clear()
            self._shared_bytes = 0
        self._shared[id(keys)] = (keys, numbers)
        self._shared_bytes += size
        return numbers

    @property
    def remembered_bytes(self) -> int:
        """Approximate size of both caches of key lists (guarantee-5)."""
        return self._lists_bytes + self._shared_bytes

    @property
    def known(self) -> Sequence[str]:
        """All keys, indexed by number."""
        return self._names

    def _sort(self) -> None:
        if len(self._sorted) < len(self._names):
            # Nearly sorted already, which is fast with Python's sort.
            self._sorted.extend(range(len(self._sorted), len(self._names)))
            self._sorted.sort(key=self._names.__getitem__)
            self._rank = np.empty(len(self._sorted), np.int64)
            self._rank[self._sorted] = np.arange(len(self._sorted))
            self._in_order = [self._names[i] for i in self._sorted]

    def _put_in_order(self, index: I64) -> tuple[I64 | None, list[str]]:
        self._sort()
        ranks = self._rank[index]
        if bool((ranks[1:] > ranks[:-1]).all()):
            return None, self.names(index)
        order = np.argsort(ranks)
        return order, self.names(index[order])

    def _intern(self, keys: Sequence[str]) -> I64:
        number, names = self._number, self._names
        index = np.fromiter((number.get(key, -1) for key in keys), np.int64, len(keys))
        if index.size and int(index.min()) < 0:
            fresh = [key for key in keys if key not in number]
            self._keys_bytes += _text_bytes(fresh)
            if len(names) + len(fresh) > self._keys_max or self._keys_bytes > self._keys_bytes_max:
                raise KeyTableFull(
                    f"more than {self._keys_max} different keys, or {self._keys_bytes_max} bytes "
                    "of keys, in one part of a query: use more parts, or a key with fewer values"
                )
            for key in fresh:
                if number.setdefault(key, len(names)) == len(names):
                    names.append(key)
            index = np.fromiter((number[key] for key in keys), np.int64, len(keys))
        if len(set(index.tolist())) != len(index):
            raise ValueError("a key list contains a key twice")
        index.setflags(write=False)
        return index


def _text_bytes(keys: Iterable[str]) -> int:
    return sum(map(getsizeof, keys))
