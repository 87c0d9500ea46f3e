"""Numbers keys with codes: a hash table with open addressing.

Codes are assigned in the order of first occurrence, so a list of keys decodes them. The table is in
arrays allocated by Python, because the compiled code allocates no memory: if a key does not fit,
the function reports this, and its caller enlarges the arrays and continues.

Hashes depend on two secrets of the process, so that senders cannot choose keys that collide: each
word is multiplied by a secret, and both halves of the product are used.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from slackwater.formats.scan.compiled import entry, inner
from slackwater.formats.scan.memory import (
    I32,
    I64,
    U64,
    high_product,
    load_i32,
    load_i64,
    load_u8,
    load_u64,
    store_i32,
    store_i64,
    store_u8,
    store_u64,
)

KEYS_MAX: Final = 1_000_000
KEY_BYTES_MAX: Final = 64 * 1024 * 1024
"""Beyond either limit all keys are dropped before the next batch."""
NO_ROOM: Final = -1
_PLACES_MIN: Final = 4_096
_BYTES_MIN: Final = 64 * 1024
# Of the table's description, in words of eight bytes: addresses, sizes, and what is in use.
_TABLE, _MASK, _HASHES, _STARTS, _BYTES, _BYTES_SIZE, _SEED, _COUNT, _USED, _FACTOR = range(
    0, 80, 8
)


@inner
def _load_tail(at: int, size: int, end: int) -> int:
    """Return fewer than eight bytes as a word; reads none at or beyond ``end``."""
    if size == 0:
        return U64(0)
    if at + 8 <= end:
        return load_u64(at) & (~U64(0) >> U64(64 - 8 * size))
    word = U64(0)
    for i in range(size):
        word |= U64(load_u8(at + i)) << U64(8 * i)
    return word


@inner
def _mixed(word: int, factor: int) -> int:
    return (word * factor) ^ high_product(word, factor)


@inner
def _hash(at: int, size: int, end: int, keys: int) -> int:
    seed, factor = load_u64(keys + _SEED), load_u64(keys + _FACTOR)
    hashed = seed ^ U64(size)
    while size >= 8:
        hashed = _mixed(hashed ^ load_u64(at), factor)
        at += 8
        size -= 8
    hashed = _mixed(hashed ^ _load_tail(at, size, end), factor)
    return _mixed(hashed ^ seed, factor)


@inner
def _is_same(at: int, known: int, size: int, end: int) -> bool:
    while size >= 8:
        if load_u64(at) != load_u64(known):
            return False
        at += 8
        known += 8
        size -= 8
    return bool(_load_tail(at, size, end) == _load_tail(known, size, known + 8))


@inner
def code_of(at: int, size: int, end: int, keys: int) -> int:
    """Return the code of the key of ``size`` bytes; ``NO_ROOM`` if it is new and does not fit."""
    table, mask = load_i64(keys + _TABLE), load_i64(keys + _MASK)
    hashes, starts = load_i64(keys + _HASHES), load_i64(keys + _STARTS)
    stored = load_i64(keys + _BYTES)
    hashed = _hash(at, size, end, keys)
    place = I64(hashed & U64(mask))
    while True:
        code = I64(load_i32(table + 4 * place)) - 1
        if code < 0:
            break
        if load_u64(hashes + 8 * code) == hashed:
            start = load_i64(starts + 8 * code)
            known = load_i64(starts + 8 * code + 8) - start
            if known == size and _is_same(at, stored + start, size, end):
                return code
        place = (place + 1) & mask
    code, used = load_i64(keys + _COUNT), load_i64(keys + _USED)
    # The byte array has room for a complete word after the last key.
    if 2 * (code + 2) > mask or used + size + 8 > load_i64(keys + _BYTES_SIZE):
        return NO_ROOM
    for i in range(size):
        store_u8(stored + used + i, load_u8(at + i))
    store_u64(hashes + 8 * code, hashed)
    store_i64(starts + 8 * code + 8, used + size)
    store_i32(table + 4 * place, I32(code + 1))
    store_i64(keys + _USED, used + size)
    store_i64(keys + _COUNT, code + 1)
    return code


@entry("int64(int64, int64, int64)")
def _code(at: int, size: int, keys: int) -> int:
    return code_of(at, size, at + size, keys)


@entry("void(int64)")
def _place_all(keys: int) -> None:
    """Enter all keys into an empty table."""
    table, mask = load_i64(keys + _TABLE), load_i64(keys + _MASK)
    for code in range(load_i64(keys + _COUNT)):
        place = I64(load_u64(load_i64(keys + _HASHES) + 8 * code) & U64(mask))
        while load_i32(table + 4 * place) != 0:
            place = (place + 1) & mask
        store_i32(table + 4 * place, I32(code + 1))


class Keys:
    """The keys of a stream and their codes."""

    def __init__(self) -> None:
        # Of Python's own hash seed, which is random per process.
        self._seed, self._factor = (
            np.uint64(hash(text) & (2**64 - 1)) for text in ("slackwater", "keys")
        )
        self.forget()

    def forget(self) -> None:
        """Drop all keys; a list returned earlier does not change."""
        self.texts: list[str] = []
        """Keys by code."""
        self._table = np.zeros(_PLACES_MIN, np.int32)
        self._hashes = np.zeros(_PLACES_MIN // 2, np.uint64)
        self._starts = np.zeros(_PLACES_MIN // 2 + 1, np.int64)
        self._bytes = np.zeros(_BYTES_MIN, np.uint8)
        self._description = np.zeros(10, np.int64)
        self._describe()

    @property
    def is_large(self) -> bool:
        """Whether the keys exceed a limit."""
        return len(self.texts) > KEYS_MAX or self._in_use(_USED) > KEY_BYTES_MAX

    @property
    def address(self) -> int:
        """Address of the table's description, for ``code_of``."""
        return int(self._description.ctypes.data)

    def code(self, key: str) -> int:
        """Return the code of a key."""
        data = np.frombuffer(key.encode() + bytes(8), np.uint8)
        while (code := int(_code(data.ctypes.data, len(data) - 8, self.address))) == NO_ROOM:
            self.grow(len(data))
        self.decode()
        return code

    def grow(self, size: int) -> None:
        """Enlarge the arrays if they lack room for one more key of at most ``size`` bytes."""
        count, used = self._in_use(_COUNT), self._in_use(_USED)
        if used + size + 8 > len(self._bytes):
            self._bytes = _longer(self._bytes, max(2 * len(self._bytes), used + size + 8))
        places = len(self._table)
        if 2 * (count + 2) >= places:
            places *= 4
            self._hashes = _longer(self._hashes, places // 2)
            self._starts = _longer(self._starts, places // 2 + 1)
            self._table = np.zeros(places, np.int32)
        self._describe()
        if not self._table.any():
            _place_all(self.address)

    def decode(self) -> None:
        """Extend ``texts`` by the new keys."""
        known, count = len(self.texts), self._in_use(_COUNT)
        if known == count:
            return
        first, last = int(self._starts[known]), int(self._starts[count])
        data = self._bytes[first:last].tobytes()
        ends = (self._starts[known + 1 : count + 1] - first).tolist()
        start = 0
        for end in ends:
            self.texts.append(data[start:end].decode())
            start = end

    def _in_use(self, which: int) -> int:
        return int(self._description[which // 8])

    def _describe(self) -> None:
        arrays = (self._table, self._hashes, self._starts, self._bytes)
        table, hashes, starts, stored = (array.ctypes.data for array in arrays)
        words = (table, len(self._table) - 1, hashes, starts, stored, len(self._bytes))
        self._description[: len(words)] = words
        self._description.view(np.uint64)[_SEED // 8] = self._seed
        self._description.view(np.uint64)[_FACTOR // 8] = self._factor | np.uint64(1)


def _longer(array: Any, size: int) -> Any:
    return np.concatenate([array, np.zeros(size - len(array), array.dtype)])
