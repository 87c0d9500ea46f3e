"""The elements of messages with many readings: their numbers and their bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from slackwater.formats.messages import Bad, Elements, Parsed, joined, nothing, with_refused
from slackwater.formats.positions import ELEMENTS_MAX
from slackwater.model.records import type_i64

VALUES_MAX: Final = 4_194_304
"""Maximum values of a message over all declared fields (32 MiB); absent fields are counted."""
BATCH_VALUES_MAX: Final = 524_288
"""Maximum values of the messages of a slice, estimated by their commas (4 MiB)."""


def elements_max(fields: int) -> int:
    """Return the maximum elements per message of a stream with this number of fields."""
    return min(ELEMENTS_MAX, VALUES_MAX // max(1, fields))


def numbered(counts: type_i64, first: int = 0) -> Elements:
    """Return the elements of messages numbered from ``first``; ``counts``: elements per message."""
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
    """Return a message that is malformed as a unit; ``bad`` has its index."""
    return with_refused(no_elements(fields), [bad])


def parse_dividing(
    messages: Sequence[bytes],
    fields: int,
    quick: Callable[[Sequence[bytes], int], Parsed | list[tuple[int, int]]],
    slow: Callable[[bytes, int], Parsed],
) -> Parsed:
    """Parse a batch by the fast path, and the messages that it leaves by the definition.

    ``quick`` takes messages and the index of the first. It returns the parsed messages, or the runs
    [start, end) of the batch to try instead, in order; runs for a single message mean that it must
    be parsed by ``slow``, which takes one message and its index.
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


def in_order(parsed: Parsed) -> Parsed:
    """Return the same with elements and readings in the order of the messages."""
    elements = parsed.elements
    assert elements is not None, "without elements a batch is in order already"
    order = np.argsort(elements.messages, kind="stable")
    to = np.empty(len(order), np.int64)
    to[order] = np.arange(len(order))
    indices = to[parsed.indices]
    by_index = np.argsort(indices)
    return replace(
        parsed,
        indices=indices[by_index],
        stimes=parsed.stimes[by_index],
        key_index=parsed.key_index[by_index],
        values=tuple(column[by_index] for column in parsed.values),
        bad=tuple(replace(bad, index=int(to[bad.index])) for bad in parsed.bad),
        boundaries=tuple(sorted((int(to[at]), watermark) for at, watermark in parsed.boundaries)),
        elements=Elements(elements.messages[order], elements.indices[order], elements.lasts[order]),
    )


def halves(start: int, end: int) -> list[tuple[int, int]]:
    """Divide [start, end) into two runs."""
    middle = (start + end) // 2
    return [(start, middle), (middle, end)]


def without_first(parsed: Parsed, taken: int) -> Parsed:
    """Return ``parsed`` without the first ``taken`` elements of its first message.

    The element that represents the message as a unit is kept, and so are boundaries.
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
    """Divide a batch so that the number of values per slice is bounded for any bytes.

    A message has at most one reading more than commas, and each has a value for every field.
    """
    start, estimate = 0, 0
    for i, message in enumerate(messages):
        values = (message.count(b",") + 1) * max(1, fields)
        if i > start and estimate + values > BATCH_VALUES_MAX:
            yield start, i
            start, estimate = i, 0
        estimate += values
    yield start, len(messages)
