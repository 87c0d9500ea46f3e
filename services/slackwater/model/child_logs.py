"""The logs of each child: how a definition divides the source logs of a query.

A child is a group of logs, not of streams: a topic of 64 partitions has 64 source logs, and one
orderer for all of them would use one core. The file has a number of children, or names the logs of
each (``north: [room-1, lab/0-15]``). When the query is registered, the logs are counted once, and
the definition has the child of each log and those that take partitions which are added later
(``ChildLogs``). Fragments read this, and count nothing: replicas that counted at their own starts
would write different buckets (rule-30).

A child reads the same streams for ever. A log that is added goes to a child that has another log of
its stream, so ``missing`` of a child that is silent follows from the definition, and no bucket of
the child ends above the log's first watermark (rule-30).

The logs of a number of children are dealt out in runs, in the order of ``from`` and of the
partitions: rows without a window, ``first`` and ``last`` have equal times in this order, and roots
merge children by number. Such a query has an added log in the child of its stream's last log. In
others the children of the stream take them in turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

LogGroups = tuple[tuple[str, tuple[str, ...]], ...]
"""The children that a file names, each with its logs: ``lab``, ``lab/3``, ``lab/0-15``, ``lab/16-``
of a stream, or of a query, whose parts are its logs."""

_RANGE: Final = re.compile(r"([^/]+)(?:/(\d{1,6})(-(\d{1,6})?)?)?", re.ASCII)


class ChildrenError(ValueError):
    """Logs that cannot be divided as written; ``place``: inside ``children`` of the file."""

    def __init__(self, reason: str, place: Sequence[str | int] = ()) -> None:
        super().__init__(reason)
        self.place = tuple(place)


@dataclass(frozen=True, slots=True)
class LogRange:
    """Logs of a source from ``first`` on, to ``last``; None: to the end, with those added later."""

    source: str
    first: int
    last: int | None

    @classmethod
    def parse(cls, text: str) -> LogRange:
        """Return what a text of ``LogGroups`` means.

        Raises:
            ChildrenError: it is no such text.
        """
        match = _RANGE.fullmatch(text)
        if match is None:
            raise ChildrenError(
                f"{text!r} is not a stream or its logs, as in lab/3, lab/0-15, lab/16-"
            )
        source, first, rest, last = match.groups()
        if first is None:
            return cls(source, 0, None)
        if rest is None:
            return cls(source, int(first), int(first))
        if last is not None and int(last) < int(first):
            raise ChildrenError(f"{text!r} ends before it begins")
        return cls(source, int(first), None if last is None else int(last))

    def __contains__(self, log: int) -> bool:
        return self.first <= log and (self.last is None or log <= self.last)

    def __str__(self) -> str:
        if (self.first, self.last) == (0, None):
            return self.source
        return f"{self.source}/{self.first}" if self.first == self.last else self._span

    @property
    def _span(self) -> str:
        return f"{self.source}/{self.first}-{'' if self.last is None else self.last}"


LogsOfSources = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class ChildLogs:
    """The child of each log, as registered. Sources are in the order of ``from``.

    ``logs`` has, by source, the children of the logs that were there, in order. ``added`` has the
    children that take the later ones in turn; a source without an entry takes none in.
    """

    logs: LogsOfSources
    added: LogsOfSources = ()

    @classmethod
    def of(
        cls, logs: Mapping[str, Iterable[int]], added: Mapping[str, Iterable[int]] | None = None
    ) -> ChildLogs:
        """Return the assignment in these mappings."""
        return cls(_pairs(logs.items()), _pairs((added or {}).items()))

    def there(self, source: str) -> tuple[int, ...]:
        """Return the children of the logs that a source had."""
        return dict(self.logs)[source]

    def _later(self, source: str) -> tuple[int, ...]:
        return dict(self.added).get(source, self.there(source)[-1:])

    def child_of(self, source: str, log: int) -> int:
        """Return the child of a log; of one that is not taken in, the child of the last log."""
        there, later = self.there(source), self._later(source)
        return there[log] if log < len(there) else later[(log - len(there)) % len(later)]

    def takes_in(self, source: str, log: int) -> bool:
        """Whether a log is read at all; its child otherwise waits as for a silent stream."""
        return log < len(self.there(source)) or source in dict(self.added)

    def of_child(self, child: int, source: str, logs: int) -> list[int]:
        """Return which of this number of a source's logs are the child's."""
        return [log for log in range(logs) if self.child_of(source, log) == child]

    def next_of(self, child: int, source: str, logs: int) -> int | None:
        """Return the first log of the child that a source does not have yet; None: never one.

        The child then has to be built again, and no other one (rule-30).
        """
        coming = range(logs, max(logs, len(self.there(source))) + len(self._later(source)))
        return next((log for log in coming if self.child_of(source, log) == child), None)

    def streams_of(self, child: int) -> tuple[str, ...]:
        """Return the sources of which the child has logs, now and later, in order."""
        return tuple(source for source, of in self.logs if child in of)

    def share_of(self, child: int, source: str) -> float:
        """Return the child's share of a source's logs."""
        there = self.there(source)
        return there.count(child) / len(there)

    def to_json(self) -> dict[str, Any]:
        """The assignment as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ChildLogs:
        """The inverse of ``to_json``; ``TypeError`` or ``ValueError`` if it is none."""
        return cls(**{name: _pairs(of) for name, of in data.items()})

    def check(self, sources: Sequence[str], children: int) -> None:
        """Check that it is one of these sources to so many children; else ``ValueError``."""
        used = {child for _, of in self.logs for child in of}
        if [source for source, _ in self.logs] != [*sources] or used != {*range(children)}:
            raise ValueError("the logs of the children are not those of the query")
        if not all(of for _, of in (*self.logs, *self.added)):
            raise ValueError("a source has no log")
        for source, of in self.added:
            if source not in sources or not {*of} <= {*self.there(source)}:
                raise ValueError(f"an added log of {source} goes to a child without another one")


def _pairs(items: Iterable[tuple[str, Iterable[int]]]) -> LogsOfSources:
    return tuple((source, tuple(of)) for source, of in items)


def of_sources(sources: Sequence[str], children: int) -> ChildLogs:
    """Return the assignment of definitions without one: each source has one child, with all logs.

    The sources are dealt out in runs; the first ones are longer.
    """
    of = dict(zip(sources, _runs(len(sources), children), strict=True))
    each = {source: (child,) for source, child in of.items()}
    return ChildLogs.of(each, each)


def dealt(counts: Mapping[str, int], children: int, *, in_order: bool) -> ChildLogs:
    """Return the assignment of all logs to a number of children.

    Args:
        counts: the number of logs of each source, in the order of ``from``.
        children: their number.
        in_order: equal times keep the order of the logs, also of those that are added.

    Raises:
        ChildrenError: there are more children than logs.
    """
    total = sum(counts.values())
    if children > total:
        there = ", ".join(f"{source} has {count}" for source, count in counts.items())
        raise ChildrenError(f"{children} children, but only {total} logs for them: {there}")
    runs = iter(_runs(total, children))
    logs = {source: tuple(next(runs) for _ in range(count)) for source, count in counts.items()}
    added = {s: of[-1:] if in_order else tuple(dict.fromkeys(of)) for s, of in logs.items()}
    return ChildLogs.of(logs, added)


def _runs(items: int, groups: int) -> Iterator[int]:
    """Yield the group of each item: groups are runs, and the first ones are longer."""
    base, longer = divmod(items, groups)
    for group in range(groups):
        yield from [group] * (base + (group < longer))


def named(groups: LogGroups, counts: Mapping[str, int], *, in_order: bool) -> ChildLogs:
    """Return the assignment to named children; arguments and errors as of ``dealt``.

    Raises:
        ChildrenError: also if a log is in two children or in none, or is not there.
    """
    check_groups(groups, counts, in_order=in_order)
    ranges = list(_ranges(groups))
    logs: dict[str, tuple[int, ...]] = {}
    added: dict[str, tuple[int, ...]] = {}
    for source, count in counts.items():
        of = [(child, each) for child, _, each in ranges if each.source == source]
        found = [next((c for c, r in of if log in r), None) for log in range(count)]
        if None in found:
            raise ChildrenError(
                f"{source}/{found.index(None)} is in no child: {source} has {count} logs"
            )
        logs[source] = tuple(child for child in found if child is not None)
        added.update((source, (child,)) for child, each in of if each.last is None)
    return ChildLogs.of(logs, added)


def check_groups(groups: LogGroups, counts: Mapping[str, int | None], *, in_order: bool) -> None:
    """Check what can be checked of named children; ``counts``: None where it is not known yet.

    Raises:
        ChildrenError: the first error.
    """
    by_source: dict[str, list[tuple[LogRange, str, tuple[str | int, ...]]]] = {}
    for name, of in groups:
        if not of:
            raise ChildrenError("must have at least one log", (name,))
    for child, i, each in _ranges(groups):
        name = groups[child][0]
        if each.source not in counts:
            raise ChildrenError(f"{each.source!r} is not in from", (name, i))
        others = by_source.setdefault(each.source, [])
        for other, known_as, _ in others:
            low = max(other.first, each.first)
            if low in other and low in each:
                place = "twice in it" if known_as == name else f"also in {known_as}"
                log = f"{each.source}/{low}" if counts[each.source] != 1 else each.source
                raise ChildrenError(f"{log} is {place}", (name, i))
        count = counts[each.source]
        if count is not None:
            _check_there(each, count, (name, i))
        others.append((each, name, (name, i)))
    for source in counts:
        if source not in by_source:
            raise ChildrenError(f"{source} is in no child")
        _check_gaps(source, by_source[source])
    if in_order:
        _check_order(groups, list(counts))


def _ranges(groups: LogGroups) -> Iterator[tuple[int, int, LogRange]]:
    """Yield (child, index in it, logs)."""
    for child, (name, of) in enumerate(groups):
        for i, text in enumerate(of):
            try:
                yield child, i, LogRange.parse(text)
            except ChildrenError as error:
                raise ChildrenError(str(error), (name, i)) from error


def _check_there(each: LogRange, count: int, place: Sequence[str | int]) -> None:
    """A range without a log that is there is refused: its child would get a stream only later."""
    last = each.first if each.last is None else each.last
    if last >= count:
        has = "1 log" if count == 1 else f"{count} logs, 0 to {count - 1}"
        raise ChildrenError(f"there is no {each.source}/{last}: {each.source} has {has}", place)


def _check_gaps(source: str, of: Iterable[tuple[LogRange, str, tuple[str | int, ...]]]) -> None:
    expected = 0
    for each, _, place in sorted(of, key=lambda found: found[0].first):
        if each.first > expected:
            raise ChildrenError(f"{source}/{expected} is in no child", place)
        expected = each.first + 1 if each.last is None else each.last + 1


def _check_order(groups: LogGroups, sources: Sequence[str]) -> None:
    at = [(sources.index(each.source), each.first) for _, _, each in _ranges(groups)]
    if at != sorted(at):
        raise ChildrenError(
            "without a window, and for first and last, the children must have the logs in the order"
            " of from, which is that of equal times"
        )
