"""Reading in a process of its own what has ended its reader, to find the one item that did it.

The items go through a child in runs of a thousand, whose results it hands back one by one. A run
that ends the child goes item by item through others. An item that ends its child by itself is lost;
all others are read, in the child, so that the caller never reads the suspects itself.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Final, Generic, TypeVar

from slackwater.model.errors import SlackwaterError

ITEMS_AT_ONCE: Final = 1_000
LOST_MAX: Final = 100
"""More in one batch is a fault of the reader, and no longer one of its input."""
_DETAIL_CHARS_MAX: Final = 200
_END_SIGNALS: Final = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

R = TypeVar("R")


@dataclass(slots=True)
class Tried(Generic[R]):
    """Runs of items [start, end) that were read, in their order, and the items that cannot be."""

    read: list[tuple[int, int, R]] = field(default_factory=list)
    lost: list[tuple[int, str]] = field(default_factory=list)


def tried(work: Callable[[Any, Sequence[Any]], R], argument: Any, items: Sequence[Any]) -> Tried[R]:
    """``work(argument, some items)`` over all of them; what it takes and gives can be pickled."""
    found: Tried[R] = Tried()
    waiting = [(0, len(items), ITEMS_AT_ONCE)] if items else []
    while waiting:
        start, end, step = waiting.pop()
        runs = [(at, min(at + step, end)) for at in range(start, end, step)]
        results, how = _in_child(work, argument, [items[a:b] for a, b in runs])
        found.read += [(a, b, result) for (a, b), result in zip(runs, results, strict=False)]
        if len(results) == len(runs):
            continue
        first, behind = runs[len(results)]
        if behind < end:
            waiting.append((behind, end, step))
        if step > 1:
            waiting.append((first, behind, 1))
            continue
        found.lost.append((first, how))
        if len(found.lost) > LOST_MAX:
            raise SlackwaterError(
                f"more than {LOST_MAX} items of one batch end their reader: {how}"
            )
    found.read.sort(key=lambda run: run[0])
    return found


def _in_child(
    work: Callable[[Any, Sequence[Any]], R], argument: Any, runs: Sequence[Sequence[Any]]
) -> tuple[list[R], str]:
    """The results before its end, and how it ended."""
    context = multiprocessing.get_context("spawn")  # a fork would take threads' locks along
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_work, args=(theirs, work, argument, runs), daemon=True)
    child.start()
    theirs.close()
    results: list[R] = []
    how = ""
    try:
        while True:
            result, how = ours.recv()
            if how:
                break
            results.append(result)
    except (EOFError, OSError):
        pass
    child.join()
    code = child.exitcode or 0
    if code < 0:
        if -code in _END_SIGNALS:
            raise SlackwaterError("reading apart was interrupted")
        how = signal.Signals(-code).name
    return results, f"its reader ends with {how or f'code {code}'}"


def _work(
    results: Connection,
    work: Callable[[Any, Sequence[Any]], Any],
    argument: Any,
    runs: Sequence[Sequence[Any]],
) -> None:
    for items in runs:
        try:
            result = work(argument, items)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
            results.send((None, repr(error)[:_DETAIL_CHARS_MAX]))
            return
        results.send((result, ""))
