"""Merges the parts of a query into one order: (window, part, seq).

Within a part the order is that of ``seq`` (``delivery.merge``). Between parts there is none: a part
answers when its own root does. Flux (section 4.1) merges partitions by sequence numbers; a result
that has several inputs keeps the *largest* of their numbers. Here the number is the end of a
window, and each record of a part has the largest one that its part has answered:

1. The first answer of a window (its rows and their boundary) is at this window. A run of empty
   windows is at its last one.
2. What follows in the part, up to the boundary of a later window, is *after* that window: an UNDO,
   the stable answers in its place, REC_DONE, a gap. So an UNDO stays behind the answers that it
   revokes and before those that replace them, although these are of earlier windows.

Hence the order: for each window the first answers of all parts, by part; then what follows them, by
part. It depends on the logs alone, not on the pace at which they are read.

A window is given when every part has answered it, all parts at once. What follows the window in a
part is given when all parts before this one have answered a later window. Who needs corrections
sooner reads the parts without this order.

While a part is behind, the others are held, up to ``HELD_ANSWERED_RECORDS_MAX`` records each; then
they are not read on. So the buffer is Kafka, as everywhere, and no order is given up. A part for
which others wait holds at most the rows of one window, which has no boundary yet.

Rejected: to hand out early, or to fail, when too much is held. A part is behind while its root is
away, and the order is wanted then, too. Rejected: corrections at the window that they correct; a
window could not be given before the query ends.

Pure: records in, records out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, TypeVar

from slackwater.codec.results import parse_time

R = TypeVar("R")

HELD_ANSWERED_RECORDS_MAX: Final = 10_000
"""Records held of a part, of windows that it has answered, from which it is not read on."""
_ROWS: Final = frozenset({"stable", "tentative"})
_BEFORE_ALL: Final = -(2**63)


class _Position(NamedTuple):
    """``window_end`` in us; ``follows`` is True for what comes after the first answers."""

    window_end: int
    follows: bool


class Awaited(NamedTuple):
    """A window that some parts have answered, by its end in us, and the parts that have not."""

    window_end: int
    parts: tuple[int, ...]


@dataclass(slots=True)
class _Part(Generic[R]):
    answered_to: int = _BEFORE_ALL
    """End of the last window that it has answered, us."""
    rows: list[R] = field(default_factory=list)
    """Rows whose boundary has not been offered."""
    answered: deque[tuple[_Position, R]] = field(default_factory=deque)
    has_ended: bool = False


class WindowOrder(Generic[R]):
    """One order over the records of these parts, which are offered in the order of ``seq``."""

    def __init__(self, parts: Iterable[int]) -> None:
        self._parts: Mapping[int, _Part[R]] = {part: _Part() for part in sorted(parts)}

    def offer(self, part: int, item: R, record: Mapping[str, Any] | None) -> None:
        """Accept the next item of a part; ``record`` is its JSON object, None if it is a cut."""
        of, kind = self._parts[part], None if record is None else record["kind"]
        if kind in _ROWS:
            of.rows.append(item)  # its place is that of its boundary
            return
        follows = True
        if record is not None and kind == "boundary":
            window_end = parse_time(record["window_end"])
            follows = window_end <= of.answered_to
            of.answered_to = max(of.answered_to, window_end)
        self._place(of, [*of.rows, item], follows=follows)
        of.rows.clear()

    def end(self, part: int) -> None:
        """Accept that nothing more is to be read of a part: no other one waits for it."""
        of = self._parts[part]
        self._place(of, of.rows, follows=True)
        of.rows, of.has_ended = [], True

    def has_ended(self, part: int) -> bool:
        """Whether ``end`` was called for it."""
        return self._parts[part].has_ended

    def full(self, part: int) -> bool:
        """Whether so much of a part is held that it should not be read on.

        Never true of a part for which others wait.
        """
        return len(self._parts[part].answered) >= HELD_ANSWERED_RECORDS_MAX

    @property
    def held(self) -> int:
        """Number of records held."""
        return sum(len(of.rows) + len(of.answered) for of in self._parts.values())

    @property
    def awaited(self) -> Awaited | None:
        """The first window that a part has answered and others have not; None without one.

        What follows a window waits for the next one of other parts. That is no delay.
        """
        first = self._first()
        if first is None or first[0].follows:
            return None
        parts = self._awaited(*first)
        return Awaited(first[0].window_end, parts) if parts else None

    def take(self) -> list[R]:
        """Return all records whose place in the order is certain."""
        out: list[R] = []
        while (first := self._first()) is not None and not self._awaited(*first):
            place, part = first
            answered = self._parts[part].answered
            while answered and answered[0][0] == place:
                out.append(answered.popleft()[1])
        return out

    @staticmethod
    def _place(of: _Part[R], records: Iterable[R], *, follows: bool) -> None:
        place = _Position(of.answered_to, follows)
        of.answered.extend((place, record) for record in records)

    def _first(self) -> tuple[_Position, int] | None:
        """Return the place of the first record that is held, and its part."""
        heads = [(of.answered[0][0], part) for part, of in self._parts.items() if of.answered]
        return min(heads, default=None)

    def _awaited(self, place: _Position, part: int) -> tuple[int, ...]:
        """Return the other parts that may still have a record before the first one of ``part``.

        Such a part holds no record of an answered window: it would be before the first one.
        """
        return tuple(
            number
            for number, of in self._parts.items()
            if number != part
            and not of.has_ended
            and (
                of.answered_to <= place.window_end
                if place.follows and number < part
                else of.answered_to < place.window_end
            )
        )
