"""Which part of a query's results a key belongs to: a hash of the key, modulo the number of parts.

The hash is that of Spark's function ``xxhash64``: XXH64 with seed 42 over the key's UTF-8 bytes, as
a signed number, and the remainder is not negative (Spark's ``pmod``). So Spark, which divides the
keys of a query with a window, and Python, which divides those of a query without one, agree on
every machine, and a client in any language can compute it (decision 202).

Keys are hashed in columns: those of one length are a matrix of bytes, over which each step of the
algorithm is one operation of numpy. Rejected: a package for one function, and a loop over keys.

Queries without a window that were registered before have CRC-32, for their whole life: each part
has a first window without an answer of its own, so a key that changed its part with a new
generation would have windows twice, or none (trace-56).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, get_args
from zlib import crc32

import numpy as np
import numpy.typing as npt

KeyHash = Literal["xxhash64", "crc32"]
KEY_HASHES: Final[tuple[KeyHash, ...]] = get_args(KeyHash)
XXHASH64: Final = "xxhash64"
CRC32: Final = "crc32"
"""Only of queries without a window that were registered before decision 202."""

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]

_SEED: Final = 42
"""Spark's."""
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
"""The constants of XXH64 (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md)."""
_STRIPE: Final = 32


def part_of(key: str, parts: int, key_hash: KeyHash = XXHASH64) -> int:
    """Return the part of a query's results, from 0, to which a key belongs.

    ``key_hash``: that of the query's definition.
    """
    return int(parts_of([key], parts, key_hash)[0])


def parts_of(keys: Sequence[str], parts: int, key_hash: KeyHash = XXHASH64) -> I64:
    """Return the part of each key, (n,)."""
    assert parts > 0
    if key_hash == CRC32:
        return np.fromiter((crc32(key.encode()) % parts for key in keys), np.int64, len(keys))
    return xxhash64(keys) % parts  # not negative, as the remainder of Python's integers


def xxhash64(keys: Sequence[str]) -> I64:
    """Return Spark's ``xxhash64`` of each key, (n,)."""
    texts = [key.encode() for key in keys]
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    hashes = np.empty(len(texts), np.uint64)
    for length in np.unique(lengths).tolist():
        which = np.flatnonzero(lengths == length)
        column = b"".join([texts[at] for at in which])
        of_one_length = np.frombuffer(column, np.uint8).reshape(len(which), length)
        hashes[which] = _hashes(of_one_length)
    return hashes.view(np.int64)


def _hashes(texts: Bytes) -> U64:
    """Return XXH64 of texts of one length: (n, bytes) to (n,)."""
    count, length = texts.shape
    with np.errstate(over="ignore"):  # all arithmetic is modulo 2**64
        at = length - length % _STRIPE
        hashes = _of_stripes(texts[:, :at]) if at else np.full(count, np.uint64(_SEED) + _P5)
        hashes = hashes + np.uint64(length)
        while at + 8 <= length:
            hashes = _rotated(hashes ^ _round(_integers(texts, at, "<u8")), 27) * _P1 + _P4
            at += 8
        if at + 4 <= length:
            hashes = _rotated(hashes ^ (_integers(texts, at, "<u4") * _P1), 23) * _P2 + _P3
            at += 4
        while at < length:
            hashes = _rotated(hashes ^ (_integers(texts, at, "u1") * _P5), 11) * _P1
            at += 1
        hashes = (hashes ^ (hashes >> np.uint64(33))) * _P2
        hashes = (hashes ^ (hashes >> np.uint64(29))) * _P3
        return hashes ^ (hashes >> np.uint64(32))


def _of_stripes(texts: Bytes) -> U64:
    """Return the accumulated hash of texts whose length is a multiple of a stripe's."""
    count, length = texts.shape
    seed = np.uint64(_SEED)
    lanes = [np.full(count, each) for each in (seed + _P1 + _P2, seed + _P2, seed, seed - _P1)]
    for stripe in range(0, length, _STRIPE):
        for lane, of_lane in enumerate(lanes):
            integer = _integers(texts, stripe + 8 * lane, "<u8")
            lanes[lane] = _rotated(of_lane + integer * _P2, 31) * _P1
    first, second, third, fourth = lanes
    hashes = _rotated(first, 1) + _rotated(second, 7) + _rotated(third, 12) + _rotated(fourth, 18)
    for of_lane in lanes:
        hashes = (hashes ^ _round(of_lane)) * _P1 + _P4
    return hashes


def _round(values: U64) -> U64:
    return _rotated(values * _P2, 31) * _P1


def _rotated(values: U64, bits: int) -> U64:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def _integers(texts: Bytes, at: int, kind: str) -> U64:
    """Return one little-endian integer of each text, (n,)."""
    integer = np.dtype(kind)
    columns = np.ascontiguousarray(texts[:, at : at + integer.itemsize])
    return columns.view(integer)[:, 0].astype(np.uint64)
