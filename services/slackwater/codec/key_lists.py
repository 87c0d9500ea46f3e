"""A cache of key lists, so that a repeated list is neither encoded nor decoded twice."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from slackwater.codec.avro_types import (
    END,
    SMALL_LONGS,
    Buffer,
    DamageError,
    long_bytes,
    read_block,
    read_long,
)
from slackwater.primitives.caches import evict

PREFIX_BYTES: Final = 64
"""Length of the prefix by which an encoded list is found when it is read. Shorter lists are decoded
each time."""
CANDIDATES_MAX: Final = 4
"""Maximum cached key lists with the same prefix."""


class KeyLists:
    """Reads and writes lists of strings, with a cache in each direction.

    A stream's records repeat the same keys. An unchanged list is written from the cache, and when
    read it is recognised by its bytes before any string is created. ``key_lists_max`` lists and
    ``bytes_max`` of memory are kept per direction. The least recently used list is evicted first
    (of lists with one prefix, the one that was read first), and one list is kept whatever its size.
    """

    def __init__(self, key_lists_max: int = 256, bytes_max: int = 128 << 20) -> None:
        assert key_lists_max > 0
        self._max = key_lists_max
        self._bytes_max = bytes_max
        self._written_bytes = self._read_bytes = 0
        self._last: tuple[Sequence[str], bytes] = ((), END)
        self._written: OrderedDict[tuple[str, ...], bytes] = OrderedDict()
        self._read: OrderedDict[bytes, list[tuple[bytes, tuple[str, ...]]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._written) + sum(map(len, self._read.values()))

    @property
    def nbytes(self) -> int:
        """Approximate memory of both caches, in bytes."""
        return self._written_bytes + self._read_bytes

    def clear(self) -> None:
        """Remove all lists."""
        self._last = ((), END)
        self._written_bytes = self._read_bytes = 0
        self._written.clear()
        self._read.clear()

    def write(self, out: list[Buffer], keys: Sequence[str]) -> None:
        """Append the list; only a tuple is recognised by identity, since a list is mutable."""
        last, data = self._last
        if keys is not last:
            frozen = tuple(keys)
            cached = self._written.get(frozen)
            if cached is None:
                cached = _keys_bytes(frozen)
                self._written[frozen] = cached
                self._written_bytes += _kept_bytes(cached, frozen)
                self._written_bytes = evict(
                    self._written,
                    self._written_bytes,
                    lambda keys, data: _kept_bytes(data, keys),
                    entries_max=self._max,
                    bytes_max=self._bytes_max,
                )
            else:
                self._written.move_to_end(frozen)
            data = cached
            self._last = (frozen, data)
        out.append(data)

    def read(self, buf: bytes, pos: int) -> tuple[tuple[str, ...], int]:
        """Read the list at ``pos``; equal bytes give the same tuple as before."""
        prefix = buf[pos : pos + PREFIX_BYTES]
        candidates = self._read.get(prefix)
        if candidates is not None:
            for data, keys in candidates:
                if buf.startswith(data, pos):
                    self._read.move_to_end(prefix)
                    return keys, pos + len(data)
        keys, end = _read_keys(buf, pos)
        if end - pos >= PREFIX_BYTES:
            self._remember(prefix, buf[pos:end], keys)
        return keys, end

    def _remember(self, prefix: bytes, data: bytes, keys: tuple[str, ...]) -> None:
        candidates = self._read.setdefault(prefix, [])
        candidates.insert(0, (data, keys))
        self._read_bytes += _kept_bytes(data, keys)
        self._read.move_to_end(prefix)
        if len(candidates) > CANDIDATES_MAX:
            self._forget_one(prefix)
        while (kept := sum(map(len, self._read.values()))) > 1 and (
            kept > self._max or self._read_bytes > self._bytes_max
        ):
            self._forget_one(next(iter(self._read)))

    def _forget_one(self, prefix: bytes) -> None:
        """Evict the list with this prefix that was read first."""
        self._read_bytes -= _kept_bytes(*self._read[prefix].pop())
        if not self._read[prefix]:
            del self._read[prefix]


def _kept_bytes(data: bytes, keys: tuple[str, ...]) -> int:
    """Return the approximate memory of a list: its bytes and its Python strings."""
    return 2 * len(data) + 57 * len(keys)


def _keys_bytes(keys: tuple[str, ...]) -> bytes:
    if not keys:
        return END
    out: list[Buffer] = [long_bytes(len(keys))]
    for key in keys:
        data = key.encode()
        size = len(data)
        out.append(SMALL_LONGS[size << 1] if size < 64 else long_bytes(size))
        out.append(data)
    out.append(END)
    return b"".join(out)


def _read_keys(buf: bytes, pos: int) -> tuple[tuple[str, ...], int]:
    keys: list[str] = []
    end_of_buffer = len(buf)
    while True:
        count, pos = read_block(buf, pos, 1)
        if not count:
            return tuple(keys), pos
        for _ in range(count):
            size = buf[pos]
            pos += 1
            if size < 128 and not size & 1:
                size >>= 1
            else:
                size, pos = read_long(buf, pos - 1)
            end = pos + size
            if size < 0 or end > end_of_buffer:
                raise DamageError(f"a key of {size} bytes where {end_of_buffer - pos} are left")
            keys.append(str(buf[pos:end], "utf-8"))
            pos = end
