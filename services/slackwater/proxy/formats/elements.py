"""The elements of messages that hold many readings: their numbering and their bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from slackwater.model.records import type_i64
from slackwater.proxy.messages import Bad, Elements, Parsed, joined, nothing, with_refused
from slackwater.proxy.positions import ELEMENTS_MAX

VALUES_MAX: Final = 4_194_304
"""Maximum values of a message, over all declared fields (32 MiB); absent fields count too."""
BATCH_VALUES_MAX: Final = 524_288
"""Values that the messages of a slice may hold, estimated by their commas (4 MiB)."""


def elements_max(fields: int) -> int:
    """Return the maximum elements of one message of a stream with so many fields."""
    return min(ELEMENTS_MAX, VALUES_MAX // max(1, fields))


def numbered(counts: type_i64, first: int = 0) -> Elements:
    """Return the elements of messages with these numbers of elements, numbered from ``first``."""
    n = int(counts.sum())
    ends = np.cumsum(counts)
    messages = np.repeat(np.arange(first, first + len(counts), dtype=np.int64), counts)
    indices = np.arange(n, dtype=np.int64) - np.repeat(ends - counts, counts)
    lasts = np.zeros(n, np.bool_)
    lasts[ends[counts > 0] - 1] = True
    return Elements(messages, indices, lasts)


def no_elements(fields: int) -> Parsed:
    """Return a batch without elements."""
    return replace(nothing(fields), elements=numbered(np.empty(0, np.int64)))


def undivided(bad: Bad, fields: int) -> Parsed:
    """Return a message that is malformed as one; ``bad`` has its index."""
    return with_refused(no_elements(fields), [bad])


def parse_dividing(
    messages: Sequence[bytes],
    fields: int,
    quick: Callable[[Sequence[bytes], int], Parsed | list[tuple[int, int]]],
    slow: Callable[[bytes, int], Parsed],
) -> Parsed:
    """Parse a batch by the fast path, and by the definition what that leaves.

    ``quick`` takes messages and the index of the first. It returns them parsed, or the runs
    [start, end) of the batch to try instead, in order; of one message it returns them in vain.
    ``slow`` takes one message and its index.
    """
    done: list[Parsed] = []
    waiting = [(0, len(messages))] if len(messages) else []
    while waiting:
        start, end = waiting.pop()
        found = quick(messages[start:end], start)
        if isinstance(found, Parsed):
            done.append(found)
        elif end - start == 1:
            done.append(slow(messages[start], start))
        else:
            waiting += reversed(found)
    return joined(done, fields) if done else no_elements(fields)


def halves(start: int, end: int) -> list[tuple[int, int]]:
    """Divide [start, end) into two runs."""
    middle = (start + end) // 2
    return [(start, middle), (middle, end)]


def without_first(parsed: Parsed, taken: int) -> Parsed:
    """Return ``parsed`` without so many elements of its first message.

    What stands for the message as one is kept, and so are boundaries.
    """
    elements = parsed.elements
    if not taken or elements is None:
        return parsed
    gone = (elements.messages == 0) & (elements.indices >= 0) & (elements.indices < taken)
    kept = ~gone[parsed.indices]
    return replace(
        parsed,
        indices=parsed.indices[kept],
        stimes=parsed.stimes[kept],
        key_index=parsed.key_index[kept],
        values=tuple(column[kept] for column in parsed.values),
        bad=tuple(bad for bad in parsed.bad if not gone[bad.index]),
    )


def slices(messages: Sequence[bytes], fields: int) -> Iterator[tuple[int, int]]:
    """Divide a batch so that the values of each slice are bounded, whatever its bytes are.

    A message has at most one reading more than commas, and each takes a value of every field.
    """
    start, estimate = 0, 0
    for i, message in enumerate(messages):
        values = (message.count(b",") + 1) * max(1, fields)
        if i > start and estimate + values > BATCH_VALUES_MAX:
            yield start, i
            start, estimate = i, 0
        estimate += values
    yield start, len(messages)
