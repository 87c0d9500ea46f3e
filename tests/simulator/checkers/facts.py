"""Values derived from a history for all checkers: its answers, and the batch results."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import cached_property
from typing import Final

from tests.simulator.checkers.answers import GivenAnswer, answers, name
from tests.simulator.checkers.batch import (
    Cells,
    Fed,
    Listed,
    accepted,
    gaps,
    listed,
    of_join,
    of_query,
    of_rows,
    of_stream,
    windows,
)
from tests.simulator.clock import MS, SECOND
from tests.simulator.history import History, Outage
from tests.simulator.readings import SensorReading
from tests.simulator.sources import columns
from tests.support.window_starts import starts_covering

from slackwater.model.records import Kind, SourceRecord
from slackwater.primitives.lateness import Lateness, Step

_ROOT: Final = re.compile(r"\broot/(?P<query>\w+)\.")
_OF_LINK: Final = re.compile(r"link to the centre|\b(uplink|merger)/")
"""What concerns the centre only: a site's own answers need none of it."""
_FRAGMENT: Final = re.compile(r"\b(?P<kind>root|orderer)/(?P<query>\w+)\.(?P<later>g\d)?")


class Facts:
    """A history and derived values, including the tolerances of the checkers."""

    def __init__(self, history: History, reads: Facts | None = None) -> None:
        self.history = history
        self.config = history.config
        self.reads = reads
        self._known: dict[bool, Lateness] = {}
        """Lateness with all recorded steps (False), or with those that were read in time (True)."""

    @cached_property
    def reader(self) -> Facts | None:
        """The facts of the query that reads this one's results or children."""
        history = self.history.of_reader
        if history is None:
            return None
        return Facts(history, None if history.config.reads is None else self)

    @cached_property
    def answers(self) -> list[list[GivenAnswer]]:
        """Answers by part, in the order of the log."""
        found: list[list[GivenAnswer]] = [[] for _ in range(self.config.parts)]
        for answer in answers(self.history):
            found[answer.part].append(answer)
        return found

    @cached_property
    def accepted(self) -> dict[str, list[SensorReading]]:
        """The readings that count, by stream."""
        found: dict[str, list[SensorReading]] = {}
        for log, records in self.history.source_logs.items():
            found.setdefault(self.history.stream_of(log), []).extend(accepted(records))
        return found

    @cached_property
    def expected(self) -> list[Cells]:
        """The batch results, by part."""
        return [windows(self.config, self._fed, part) for part in range(self.config.parts)]

    @cached_property
    def listed(self) -> list[Listed]:
        """The rows of a query without a window, by part."""
        return [listed(self.config, self._fed, part) for part in range(self.config.parts)]

    @cached_property
    def _fed(self) -> list[Fed]:
        """Return the input, in the order of the inputs."""
        config = self.config
        if config.join_us:
            return list(of_join(config, [self.accepted[s] for s in config.streams]))
        return [row for source in config.inputs for row in self._fed_by(source)]

    def _fed_by(self, source: str) -> Iterator[Fed]:
        config, reads = self.config, self.reads
        if reads is None or source != reads.config.name:
            yield from of_stream(config, self.accepted[source])
        elif reads.config.rows:
            yield from of_rows(config, reads.config, reads.listed)
        else:
            yield from of_query(config, reads.config, reads.expected)

    @cached_property
    def outages(self) -> list[Outage]:
        """Outages, with adjacent ones merged: one is over only when its backlog has been read."""
        merged: list[Outage] = []
        for outage in sorted(filter(self._concerns, self.history.outages)):
            last = merged[-1] if merged else None
            if last is not None and outage.start <= last.end + self.recovery_us:
                end = max(last.end, outage.end)
                merged[-1] = Outage(last.start, end, f"{last.what}, {outage.what}")
            else:
                merged.append(outage)
        return merged

    def _concerns(self, outage: Outage) -> bool:
        """Return whether an outage concerns this query: not if it is of another query's root.

        With machines no process is shared but proxies and aggregators, and orderers if it has
        joined.
        """
        if self.config.machines is not None:
            of = _FRAGMENT.search(outage.what)
            children = of is not None and of["kind"] == "orderer" and not of["later"]
            if of is not None and children and of["query"] == self.config.child_query:
                return True
        elif self.config.others:
            of = _ROOT.search(outage.what)
        else:
            return True
        is_remote = self.config.children_of and _OF_LINK.search(outage.what) is not None
        return not is_remote and (of is None or of["query"] == self.config.name)

    @cached_property
    def lost_ahead(self) -> set[int]:
        """Windows of deleted readings that lie above the first watermark left in the log."""
        history, grid = self.history, self.config.grid
        stimes = [
            stime
            for stream in self.config.streams
            for log in history.logs(stream)
            for beginning in history.cut.get(log, ())
            for stime in _ahead(history.source_logs[log], beginning)
        ]
        if self.reads is not None:
            stimes += [self.reads.config.grid.window_end(w) - 1 for w in self.reads.lost_ahead]
        affected_us = self.config.join_us + 1
        return {start for t in stimes for start in starts_covering(grid, t, t + affected_us)}

    @cached_property
    def may_lose(self) -> set[str]:
        """Inputs that lost readings of a source log, directly or through their own inputs."""
        cut, logs = self.history.cut, self.history.logs
        lost = {name for name in self.config.inputs if any(log in cut for log in logs(name))}
        if self.reads is not None and self.reads.may_lose:
            lost.add(self.reads.config.name)
        return lost

    @cached_property
    def reported(self) -> set[str]:
        """Inputs whose source logs report messages that their topics have lost."""
        history = self.history
        reported = {
            stream
            for stream in self.config.streams
            if any(gaps(history.source_logs[log]) for log in history.logs(stream))
        }
        if self.reads is not None and self.reads.reported:
            reported.add(self.reads.config.name)
        return reported

    def is_above(self, names: Collection[str], stream: str) -> bool:
        """Return whether the stream's readings reach this query through one of these."""
        reads = self.config.reads
        return reads is not None and reads.name in names and stream in reads.sources

    def normal_time(self, e: int) -> int:
        """Return the normal time, by all recorded steps (rule-15)."""
        return max(e + self._lateness(in_time=False).at(e), self.config.begin_us or 0)

    def earliest(self, e: int) -> int:
        """Return the normal time without steps that some process may not have read in time."""
        return max(e + self._lateness(in_time=True).at(e), self.config.begin_us or 0)

    def _lateness(self, *, in_time: bool) -> Lateness:
        if in_time not in self._known:
            steps: dict[str, list[Step]] = {}
            for learned in self.history.learned:
                if learned.in_time or not in_time:
                    steps.setdefault(learned.stream, []).append(learned.step)
            self._known[in_time] = self.config.lateness(steps)
        return self._known[in_time]

    @property
    def is_deleted(self) -> bool:
        """Whether the query was deleted at run time."""
        return self.history.deleted_at >= 0

    @property
    def owed_to(self) -> int:
        """Time up to which windows must have had a first answer."""
        return self.history.deleted_at if self.is_deleted else self.settled_to

    @property
    def settled_to(self) -> int:
        """End of the windows that must have a stable answer at the end of the run.

        There is none for a deleted query: it may have been deleted in a failure.
        """
        config = self.config
        if self.is_deleted:
            return 0
        ended_at = self.history.ended_at - config.bound_us - config.paced(SECOND)
        if config.history_speed:  # a watermark follows the last reading
            ended_at = config.event_us(ended_at - 2 * config.habits.every_us)
        return ended_at - config.lateness_us - config.window_us

    @property
    def slack_us(self) -> int:
        """Maximum delay of an answer that is in time: clocks, transactions, a turn of a loop."""
        return 20 * MS + self.config.paced(60 * MS)

    @property
    def recovery_us(self) -> int:
        """Time to read the backlog of a short failure."""
        return 50 * MS + self.config.paced(60 * MS)

    @property
    def grace_us(self) -> int:
        """Time to recover after a failure of any length."""
        return self.config.bound_us + self.config.paced(3 * SECOND)

    def grace_after(self, outage: Outage) -> int:
        """Return the time to recover from one outage.

        With ``suspend``, live data follows the corrections (trace-33). A slow aggregator, at only
        twice the rate of live data, needs as long as the outage to read them.
        """
        is_lagging = self.config.policy.stabilization == "suspend" and self.config.aggregate_us
        return self.grace_us + (outage.end - outage.start if is_lagging else 0)

    def name(self, window: int) -> str:
        """Format a window as in traces."""
        return name(self.history, window)


def _ahead(log: list[tuple[int, SourceRecord]], beginning: int) -> list[int]:
    """Return the stimes before ``beginning`` that lie above the first watermark left in the log."""
    left = (r.boundary for at, r in log if at >= beginning and r.kind is not Kind.START)
    watermark_made = next(left, None)
    gone = [columns(r).stimes for at, r in log if at < beginning and r.columns is not None]
    return [
        int(t) for stimes in gone for t in stimes if watermark_made is None or t > watermark_made
    ]
