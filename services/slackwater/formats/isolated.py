"""Parses suspect items in a child process, to isolate the item that crashes the parser.

Items are parsed in a child in runs of a thousand, and results are returned run by run. A run that
ends the child is repeated item by item in further children. An item that ends its child alone is
lost; all others are parsed, in the child, so the caller never parses a suspect item itself.
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
"""Maximum lost items per batch; more indicate a fault of the parser, not of the input."""
CRASH: Final = "it crashes the parser"
"""Why a lost item is in quarantine."""
_DETAIL_CHARS_MAX: Final = 200
_END_SIGNALS: Final = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

R = TypeVar("R")


@dataclass(slots=True)
class Tried(Generic[R]):
    """Results of runs of items [start, end), in order, and the items that could not be parsed."""

    read: list[tuple[int, int, R]] = field(default_factory=list)
    lost: list[tuple[int, str]] = field(default_factory=list)


def tried(work: Callable[[Any, Sequence[Any]], R], argument: Any, items: Sequence[Any]) -> Tried[R]:
    """Apply ``work(argument, items)`` to all items; arguments and results must be picklable."""
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
                f"more than {LOST_MAX} items of one batch crash the parser: {how}"
            )
    found.read.sort(key=lambda run: run[0])
    return found


def _in_child(
    work: Callable[[Any, Sequence[Any]], R], argument: Any, runs: Sequence[Sequence[Any]]
) -> tuple[list[R], str]:
    """Return the results received before the child's end, and the cause of that end."""
    context = multiprocessing.get_context("spawn")  # a fork would copy locks held by threads
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
            raise SlackwaterError("parsing in a child process was interrupted")
        how = signal.Signals(-code).name
    return results, f"the parser ended with {how or f'exit code {code}'}"


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
