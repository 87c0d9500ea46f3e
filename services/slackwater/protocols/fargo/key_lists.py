"""The keys of merged panes on the link of a site: a list is sent once, and named after that.

The keys of a pane are as long as its figures, and most panes of a query have the same. So an uplink
leaves out a list that is in an earlier record of the centre's log, and names it by its hash. Which
record that is must hold whatever becomes of both ends:

* An uplink names only lists that it has sent itself in this life, in records before this one.
  Records of one writer are in the log in order and without a hole, so the list is there too.
* It names a list for a limited event time (``lists_us``) after the pane that brought it, then sends
  it again. A reader that starts at S therefore needs no record from longer before S than that, and
  the offset from which it reads includes them (``carries``).
* A list is *carried*, for others to name, when it is the same in a second pane. A query whose keys
  never repeat has no list that anybody remembers.

What both ends remember is bounded: by the event time, and at the uplink in keys. Rejected: a
compacted topic of key lists by their hash, as it is a second log that must not be behind the first
one, whose entries end when nothing names them. And differences from the list before, which are
smaller while keys come and go: each is worth what the one before it is.

Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Final

from slackwater.model.heads import PaneColumns
from slackwater.model.limits import NEVER
from slackwater.model.merged import MergedRecord
from slackwater.model.windows import WindowSpec

PANES: Final = 256
"""Panes for which a list is named before it is sent again."""
LISTS_US_MAX: Final = 3_600_000_000
"""The same as a time, which may be less."""
CARRIED_KEYS_MAX: Final = 1 << 17
"""Keys of all lists that an uplink may name, some 8 MiB; other panes have theirs."""


def lists_us(window: WindowSpec) -> int:
    """Return for how long a list is named after the pane that brought it."""
    return min(PANES * math.gcd(window.size_us, window.slide_us), LISTS_US_MAX)


def hash_of(keys: Sequence[str]) -> int:
    """Return the hash of a list, which is never 0."""
    digest = blake2b(digest_size=8)
    for key in keys:
        data = key.encode()
        digest.update(len(data).to_bytes(4, "little"))
        digest.update(data)
    return int.from_bytes(digest.digest(), "little", signed=True) or 1


def carries(record: MergedRecord) -> bool:
    """Return whether later records may name the list of this one."""
    return bool(record.keys_hash) and bool(len(record.pane.columns.keys))


class SentLists:
    """The lists that an uplink has sent."""

    def __init__(self, lists_us: int) -> None:
        self._lists_us = lists_us
        self._carried: dict[int, tuple[int, int]] = {}
        """Of each list, by its hash, the start of the pane that brought it, and its keys."""
        self._before: dict[int, int] = {}
        """The hash of the list of each piece of the last panes."""

    def sent(self, record: MergedRecord) -> MergedRecord:
        """Return the record as it is sent next: with its keys, or with their hash."""
        keys, piece = record.pane.columns.keys, record.pane.piece
        if not len(keys) or not self._lists_us:
            return record
        self._carried = {
            of: (start, size)
            for of, (start, size) in self._carried.items()
            if record.start < start + self._lists_us
        }
        found = hash_of(keys)
        if found in self._carried:
            columns = replace(record.pane.columns, keys=())
            pane = replace(record.pane, columns=columns)
            return replace(record, pane=pane, keys_hash=found)
        if piece == 0:
            pieces = record.pane.ref.pieces
            self._before = {at: of for at, of in self._before.items() if at < pieces}
        is_repeated, self._before[piece] = self._before.get(piece) == found, found
        carried = sum(size for _, size in self._carried.values()) + len(keys)
        if not is_repeated or carried > CARRIED_KEYS_MAX:
            return record
        self._carried[found] = record.start, len(keys)
        return replace(record, keys_hash=found)


class KnownLists:
    """The lists that a reader of the centre's log has read."""

    def __init__(self, lists_us: int) -> None:
        self.lists_us = lists_us
        self._carried: dict[int, tuple[int, Sequence[str]]] = {}
        self._start = NEVER

    def __len__(self) -> int:
        return len(self._carried)

    def completed(self, record: MergedRecord) -> MergedRecord | None:
        """Return the record with its keys; None if the list that it names is not known."""
        keys = record.pane.columns.keys
        if not record.keys_hash:
            return record
        if record.start > self._start:
            self._start = record.start
            self._carried = {
                of: (start, keys)
                for of, (start, keys) in self._carried.items()
                if record.start < start + self.lists_us
            }
        if len(keys):
            self._carried[record.keys_hash] = max(record.start, self._start), keys
            return record
        known: Sequence[str] = self._carried.get(record.keys_hash, (0, ()))[1]
        if len(known) != record.pane.columns.figures.shape[2]:
            return None
        columns: PaneColumns = replace(record.pane.columns, keys=known)
        return replace(record, pane=replace(record.pane, columns=columns))
