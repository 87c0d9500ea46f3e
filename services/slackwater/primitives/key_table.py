"""Numbers for keys, by which slices and readings refer to them.

A list of keys is compared once; afterwards it is recognised by its hash or by its object, so the
keys of a record that names the same sensors as the one before cost nothing.

Keys that never return, such as those of trips or sessions, would fill any table. So each key has
the event time up to which it is needed: the latest end of a bucket that named it. When all windows
before a time are answered the key may be forgotten, and its number is given to another one
(rule-35). Forgetting takes no turn of its own: a hand goes round the table as that of the CLOCK
algorithm (Corbato 1968), some places for each new key. Rejected: a table for each pane, because a
fold would translate its numbers; and a count of references, which each slice would have to change.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from sys import getsizeof
from typing import Final

import numpy as np
import numpy.typing as npt

from slackwater.model.errors import SlackwaterError
from slackwater.primitives.caches import evict
from slackwater.primitives.keyparts import xxhash64

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]

FOREVER: Final = int(np.iinfo(np.int64).max)
"""The event time up to which a key is needed that is never forgotten."""
_FREE: Final = int(np.iinfo(np.int64).min)
"""The event time of a number without a key."""
KEPT_KEYS_MIN: Final = 1 << 17
"""Keys that are kept although nobody needs them: about 30 MB. Most of them return."""
KEPT_SHARE: Final = 2
"""As many times fewer keys are kept beyond those that are needed."""
ORDERER_KEPT_KEYS_MIN: Final = 1 << 20
"""Of an orderer, which needs a key for one bucket: a key that returns in a later one takes a third
of the time that a new one takes. About 150 MB."""
LONG_LIST_KEYS_MIN: Final = 1_000
"""A list of more keys is remembered with the table's own strings, not with those that were read: a
million keys with a reading each ten seconds have forty lists, or never the same list twice. To
recognise it costs a comparison of strings."""
SWEPT_KEYS_PER_NEW: Final = 4
"""Places that the hand passes for each new key."""
SORT_FACTOR: Final = 4
"""All keys are sorted if there are at most as many times more of them than are asked for."""


class KeyTableFull(SlackwaterError):
    """Raised when the key table exceeds its bound, as with keys that never repeat."""


@dataclass(slots=True)
class _KeyList:
    """A list of keys, their numbers, and the approximate memory of both.

    ``needed_to``: none of the keys has been forgotten while it is after ``needed_from``.
    """

    keys: Sequence[str]
    numbers: I64
    nbytes: int
    needed_to: int


class KeyTable:
    """Numbers the keys of one root or one orderer, from 0 on.

    The numbers are valid within this table only; another copy may read keys in another order. A
    number may be used as long as its key is needed (``forget_before``); then another key may get
    it. ``keys_max`` and ``keys_bytes_max`` bound the memory (about 120 bytes per key plus its text,
    and 8 to 16 once hashes are asked for). ``lists_max`` bounds each of the two caches of key
    lists, ``lists_bytes_max`` that by hash, and ``shared_bytes_max`` that by identity, which is
    small: where each record has other keys, none of its lists comes again, and they are all that
    keeps these strings. Both evict the least recently used list, and keep one of any length.
    Nothing is forgotten of ``kept_keys_min`` keys.
    """

    def __init__(
        self,
        keys_max: int = 5_000_000,
        lists_max: int = 1_024,
        *,
        keys_bytes_max: int = 1 << 30,
        lists_bytes_max: int = 128 << 20,
        shared_bytes_max: int = 32 << 20,
        kept_keys_min: int = KEPT_KEYS_MIN,
    ) -> None:
        assert keys_max > 0
        assert lists_max > 0
        self._keys_max = keys_max
        self._keys_bytes_max = keys_bytes_max
        self._keys_bytes = 0
        self._lists_max = lists_max
        self._lists_bytes_max = lists_bytes_max
        self._shared_bytes_max = shared_bytes_max
        self._lists_bytes = self._shared_bytes = 0
        self._names: list[str] = []
        self._number: dict[str, int] = {}
        self._lists: OrderedDict[tuple[int, int], _KeyList] = OrderedDict()
        self._shared: OrderedDict[int, _KeyList] = OrderedDict()
        self._folded: list[I64] = []
        self._order_of: tuple[I64, I64 | None, list[str]] | None = None
        self._order = _Order(self._names)
        # By number, longer than there are numbers.
        self._needed_to: I64 = np.zeros(0, np.int64)
        self._hashes: U64 = np.zeros(0, np.uint64)
        self._is_hashed: Bools = np.zeros(0, np.bool_)
        # What is forgotten.
        self._kept_min = self._kept_max = kept_keys_min
        self._needed_from = _FREE
        self._free: list[int] = []
        self._hand = 0

    def __len__(self) -> int:
        """Number of numbers, also of those that are free."""
        return len(self._names)

    @property
    def kept_keys(self) -> int:
        """Number of keys that have a number."""
        return len(self._number)

    def indices(self, keys: Sequence[str], keys_hash: int = 0, needed_to: int = FOREVER) -> I64:
        """Return the numbers of ``keys``, which must be distinct; new keys are interned.

        For an equal list with its ``keys_hash`` the same array object is returned, by which a fold
        recognises an unchanged list. A hash of 0 means that it is unknown. Lists with one hash are
        compared: Spark's hash has no secret, so keys could be chosen to collide. For a decoder that
        returns the same object for equal lists the comparison costs nothing. The numbers are valid
        at least until ``forget_before`` is called with ``needed_to`` or a later time.

        Raises:
            KeyTableFull: the table would exceed its bounds.
            ValueError: a key occurs twice.
        """
        needed_to = max(needed_to, self._needed_from + 1)
        at = (keys_hash, len(keys))
        known = self._lists.get(at) if keys_hash else None
        if known is not None and known.needed_to > self._needed_from:
            if known.keys is not keys and tuple(known.keys) != tuple(keys):
                return self._intern(keys, needed_to)
            self._lists.move_to_end(at)
            if len(keys) <= LONG_LIST_KEYS_MIN:
                known.keys = keys
            self._need(known, needed_to)
            return known.numbers
        if known is not None:
            self._lists_bytes -= self._lists.pop(at).nbytes
        index = self._intern(keys, needed_to)
        if keys_hash:
            is_long = len(keys) > LONG_LIST_KEYS_MIN
            size = index.nbytes + (8 * len(keys) if is_long else _text_bytes(keys))
            kept = self.names(index) if is_long else keys
            self._lists[at] = _KeyList(kept, index, size, needed_to)
            self._lists_bytes += size
            self._lists_bytes = evict(
                self._lists,
                self._lists_bytes,
                lambda _, remembered: remembered.nbytes,
                entries_max=self._lists_max,
                bytes_max=self._lists_bytes_max,
            )
        return index

    def numbers(self, keys: Sequence[str], needed_to: int = FOREVER) -> I64:
        """Return ``indices`` of a key list, cached by identity: codecs reuse the list object."""
        needed_to = max(needed_to, self._needed_from + 1)
        known = self._shared.get(id(keys))
        if known is not None and known.keys is keys and known.needed_to > self._needed_from:
            self._shared.move_to_end(id(keys))
            self._need(known, needed_to)
            return known.numbers
        if known is not None:
            self._shared_bytes -= self._shared.pop(id(keys)).nbytes
        numbers = self.indices(keys, needed_to=needed_to)
        size = numbers.nbytes + _text_bytes(keys)  # this may be the last reference to these strings
        self._shared[id(keys)] = _KeyList(keys, numbers, size, needed_to)
        self._shared_bytes = evict(
            self._shared,
            self._shared_bytes + size,
            lambda _, remembered: remembered.nbytes,
            entries_max=self._lists_max,
            bytes_max=self._shared_bytes_max,
        )
        return numbers

    def forget_before(self, e: int) -> None:
        """Allow that keys are forgotten whose ``needed_to`` is at most ``e``.

        Half as many again are kept as were needed since the call before, as most keys return.
        """
        if e <= self._needed_from or len(self._number) <= self._kept_min:
            return
        needed = int(np.count_nonzero(self._needed_to[: len(self._names)] > self._needed_from))
        self._kept_max = max(self._kept_min, needed + needed // KEPT_SHARE)
        self._needed_from = e
        while self._lists and next(iter(self._lists.values())).needed_to <= e:
            self._lists_bytes -= self._lists.popitem(last=False)[1].nbytes
        for at in [at for at, known in self._shared.items() if known.needed_to <= e]:
            self._shared_bytes -= self._shared.pop(at).nbytes

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

    def ranked(self, index: I64) -> tuple[I64, list[str]]:
        """Return keys in key order, and of each number the place of its key among them.

        The keys are those of ``index`` at least.
        """
        return self._order.ranked(index, len(self._number), self._needed_to)

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

    def hashes(self, index: I64) -> U64:
        """Return the hash of each key's text; a key is hashed once while it is kept."""
        fresh = index[~self._is_hashed[index]]
        if len(fresh):
            fresh = np.unique(fresh)
            self._hashes[fresh] = xxhash64(self.names(fresh)).view(np.uint64)
            self._is_hashed[fresh] = True
        return self._hashes[index]

    @property
    def remembered_bytes(self) -> int:
        """Approximate size of both caches of key lists (guarantee-5)."""
        return self._lists_bytes + self._shared_bytes

    @property
    def known(self) -> Sequence[str]:
        """All keys, indexed by number; a free number has an empty text."""
        return self._names

    def _put_in_order(self, index: I64) -> tuple[I64 | None, list[str]]:
        ranks, by_rank = self.ranked(index)
        assert not len(ranks) or ranks.max() < len(by_rank), "a key was forgotten that is needed"
        if bool((ranks[1:] > ranks[:-1]).all()):
            return None, self.names(index)
        order = np.argsort(ranks)
        return order, [by_rank[rank] for rank in ranks[order].tolist()]

    def _need(self, known: _KeyList, needed_to: int) -> None:
        if needed_to > known.needed_to:
            known.needed_to = needed_to
            self._need_numbers(known.numbers, needed_to)

    def _need_numbers(self, numbers: I64, needed_to: int) -> None:
        self._needed_to[numbers] = np.maximum(self._needed_to[numbers], needed_to)

    def _intern(self, keys: Sequence[str], needed_to: int) -> I64:
        number = self._number
        index = np.fromiter((number.get(key, -1) for key in keys), np.int64, len(keys))
        if index.size and int(index.min()) < 0:
            self._need_numbers(index[index >= 0], needed_to)  # first: else they may be forgotten
            self._add([key for key in keys if key not in number], needed_to)
            index = np.fromiter((number[key] for key in keys), np.int64, len(keys))
        else:
            self._need_numbers(index, needed_to)
        if len(set(index.tolist())) != len(index):
            raise ValueError("a key list contains a key twice")
        index.setflags(write=False)
        return index

    def _add(self, fresh: Sequence[str], needed_to: int) -> None:
        number, names, free = self._number, self._names, self._free
        if len(number) + len(fresh) > self._kept_max:
            self._sweep(SWEPT_KEYS_PER_NEW * len(fresh))
        if len(number) + len(fresh) > self._keys_max:
            self._sweep(len(names))
        self._keys_bytes += _text_bytes(fresh)
        if len(number) + len(fresh) > self._keys_max or self._keys_bytes > self._keys_bytes_max:
            raise KeyTableFull(
                f"more than {self._keys_max} different keys, or {self._keys_bytes_max} bytes "
                "of keys, in one part of a query: use more parts, or a key with fewer values"
            )
        added: list[int] = []
        for key in fresh:
            at = free[-1] if free else len(names)
            if number.setdefault(key, at) == at:
                if free:
                    names[free.pop()] = key
                else:
                    names.append(key)
                added.append(at)
        self._grow(len(names))
        at_numbers = np.array(added, np.int64)
        self._needed_to[at_numbers] = needed_to
        self._is_hashed[at_numbers] = False
        self._order.lacks(at_numbers)

    def _grow(self, count: int) -> None:
        if count > len(self._needed_to):  # it doubles, so each is copied once on average
            room = max(count, 2 * len(self._needed_to)) - len(self._needed_to)
            self._needed_to = np.concatenate((self._needed_to, np.full(room, _FREE)))
            self._hashes = np.concatenate((self._hashes, np.zeros(room, np.uint64)))
            self._is_hashed = np.concatenate((self._is_hashed, np.zeros(room, np.bool_)))

    def _sweep(self, places: int) -> None:
        """Move the hand on by as many places, and forget what is not needed there."""
        count = len(self._names)
        passed = (self._hand + np.arange(min(places, count))) % max(count, 1)
        self._hand = (self._hand + len(passed)) % max(count, 1)
        needed_to = self._needed_to[passed]
        gone = passed[(needed_to > _FREE) & (needed_to <= self._needed_from)]
        if not len(gone):
            return
        texts = self.names(gone)
        self._keys_bytes -= _text_bytes(texts)
        for text in texts:
            del self._number[text]
        for at in gone.tolist():
            self._names[at] = ""
        self._free.extend(gone.tolist())
        self._needed_to[gone] = _FREE
        self._order.lacks(gone)
        # Equal numbers may be those of other keys from now on.
        self._order_of, self._folded = None, []


class _Order:
    """The keys of a table in key order, as far as it is worth while.

    All keys are sorted if that costs no more than sorting those which are asked for, now or since a
    key was last added or forgotten.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._sorted: I64 = np.zeros(0, np.int64)
        self._rank: I64 = np.zeros(0, np.int64)
        self._in_order: list[str] = []
        self._is_sorted: Bools = np.zeros(0, np.bool_)
        self._is_complete = True
        self._asked = 0

    def lacks(self, numbers: I64) -> None:
        """Record that these numbers have other keys, or none."""
        if len(numbers):
            of_known = numbers[numbers < len(self._is_sorted)]
            self._is_sorted[of_known] = False
            self._is_complete, self._asked, self._in_order = False, 0, []

    def ranked(self, index: I64, kept: int, needed_to: I64) -> tuple[I64, list[str]]:
        """Return the place of each number, and keys in order; ``kept`` is the number of keys."""
        if not self._is_complete:
            self._asked += len(index)
            if kept > SORT_FACTOR * self._asked:
                return self._of_these(index)
            self._sort(needed_to)
        return self._rank[index], self._in_order

    def _of_these(self, index: I64) -> tuple[I64, list[str]]:
        distinct, places = np.unique(index, return_inverse=True)
        names = self._names
        in_order = sorted(distinct.tolist(), key=names.__getitem__)
        rank = np.empty(len(in_order), np.int64)
        rank[np.searchsorted(distinct, in_order)] = np.arange(len(in_order))
        return rank[places], [names[i] for i in in_order]

    def _sort(self, needed_to: I64) -> None:
        count = len(self._names)
        is_sorted = np.zeros(count, np.bool_)
        is_sorted[: len(self._is_sorted)] = self._is_sorted
        fresh = np.flatnonzero((needed_to[:count] > _FREE) & ~is_sorted)
        # Nearly sorted already, which is fast with Python's sort.
        numbers = [*self._sorted[is_sorted[self._sorted]].tolist(), *fresh.tolist()]
        numbers.sort(key=self._names.__getitem__)
        self._sorted = np.array(numbers, np.int64)
        self._is_sorted = needed_to[:count] > _FREE
        self._rank = np.empty(count, np.int64)
        self._rank[self._sorted] = np.arange(len(numbers))
        self._in_order = [self._names[i] for i in numbers]
        self._is_complete = True


def _text_bytes(keys: Iterable[str]) -> int:
    return sum(map(getsizeof, keys))
