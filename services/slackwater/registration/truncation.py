"""Truncation: deletes records of internal logs that no state record needs (DPC, section 8.1).

In DPC a node truncates its output buffer when all readers have acknowledged. Here the state records
are the acknowledgements. A deltas partition is needed from the smaller position of the root's two
lines on, or where the root has stored two heads from ``kept_from`` in its state record on: what
they need, and what it has not read itself. An ordered log is needed from the smaller of two offsets
on: the smallest ``contiguous_seq`` of the roots, where a starting aggregator begins (rule-26), and
the offset from which its own writer reads it at a start (rule-25). Without a window there is no
aggregator: the root reads the ordered log, and its positions count as for deltas. Merged panes are
needed from ``merged_from`` of the roots on. A merger is no reader of deltas here: nobody needs what
it has not merged, and a dead one would keep them (rule-36). At a site with a Kafka of its own the
mergers and the uplinks are readers, since the centre needs each pane (``site_logs``). Nothing of a
log is deleted while one of the roots that read it has no state record, also the root of a query
that has joined (trace-50). Source logs are not truncated here: the audit recomputes from them, and
their retention is set by the user. If retention deletes records that are still needed,
``runtime/logs/catchup.py`` detects it, and the results report the loss (rule-28).

Each round deletes what the previous round found not needed: an aggregator that has just read a
state record must still find the offset that is in it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import product, zip_longest
from typing import Final

from slackwater.deployment.sharing import readers_of
from slackwater.model.deployment import QuerySpec
from slackwater.model.errors import SlackwaterError
from slackwater.model.names import UNPREFIXED, Names, OrdererName, RootName, copy_names
from slackwater.model.records import LogState, OrdererState, RootState
from slackwater.registration.site_logs import LatestBeats, kept_at_site
from slackwater.runtime.logs.topics import deltas_partition, ordered_partition
from slackwater.runtime.logs.transport import Log, Transport
from slackwater.runtime.service.registry import Registry
from slackwater.runtime.service.state import read_states

_log = logging.getLogger(__name__)

FRESH_US: Final = 60_000_000
"""How far S in a copy's own record, which is written once a second, may be behind (event time)."""


def not_needed(
    readers: Sequence[QuerySpec],
    states: Mapping[str, OrdererState | RootState],
    names: Names = UNPREFIXED,
) -> dict[Log, int]:
    """Per log the offset below which no record is needed; omits logs that are needed completely.

    ``readers`` are the queries that read the same children.
    """
    deltas = {} if readers[0].window is None else _deltas(readers, states, names)
    merged = (_merged(query, states, names) for query in readers if query.mergers)
    found = deltas | _ordered(readers, states, names)
    for of_query in merged:
        found |= of_query
    return found


def _merged(
    query: QuerySpec, states: Mapping[str, OrdererState | RootState], names: Names
) -> dict[Log, int]:
    """Of a query's merged panes: what no copy of a root reads again (rule-36)."""
    needed: dict[Log, int] = {}
    for part in range(query.parts):
        copies = _copies(query, part, states)
        if not copies or any(len(copy.merged_from) != query.children for copy in copies):
            continue
        for child, offsets in enumerate(zip(*(copy.merged_from for copy in copies), strict=True)):
            needed[names.merged(query.name, part), child] = min(offsets)
    return needed


def _deltas(
    readers: Sequence[QuerySpec], states: Mapping[str, OrdererState | RootState], names: Names
) -> dict[Log, int]:
    needed: dict[Log, int] = {}
    of = readers[0]
    for part in range(of.parts):
        copies = [_copies(query, part, states) for query in readers]
        if not all(copies):
            continue  # a root without a state record needs everything
        for log, first in (at for each in copies for copy in each for at in _firsts(of, copy)):
            partition = deltas_partition(log.child, log.replica, of.replicas, live=bool(log.line))
            key = (names.deltas(of.child_query, part), partition)
            needed[key] = min(first, needed.get(key, first))
    return needed


def _ordered(
    readers: Sequence[QuerySpec], states: Mapping[str, OrdererState | RootState], names: Names
) -> dict[Log, int]:
    firsts: dict[tuple[int, int, int], list[int]] = {}
    of = readers[0]
    for query, part in product(readers, range(of.parts)):
        copies = _copies(query, part, states)
        if not copies:
            return {}  # a root without a state record needs everything
        for copy in copies:
            for log, read in _firsts(query, copy):
                first = read if query.window is None else log.contiguous_seq
                firsts.setdefault((log.child, log.replica, log.line), []).append(first)
    needed: dict[Log, int] = {}
    for (child, replica, line), emitted in firsts.items():
        own = states.get(OrdererName(of.child_query, child, replica).process)
        if isinstance(own, OrdererState):
            mine = own.live_offset if line else own.stable_offset
            partition = ordered_partition(replica, live=bool(line))
            needed[names.ordered(of.child_query, child), partition] = min(*emitted, mine)
    return needed


def _copies(
    query: QuerySpec, part: int, states: Mapping[str, OrdererState | RootState]
) -> list[RootState]:
    """The state record of the part, and those of its copies, which may have read less.

    A copy that works adopts S at once. One that is dead does not keep the logs: it starts again
    from the state record.
    """
    answered = states.get(RootName(query.name, part).process)
    if not isinstance(answered, RootState):
        return []
    if query.copies == 1:
        return [answered]
    slide_us = 0 if query.window is None else query.window.slide_us
    fresh_from = answered.stable_from - max(FRESH_US, 2 * slide_us)
    own = [states.get(of.process) for of in copy_names(query.name, part, query.copies)]
    copies = [state for state in own if isinstance(state, RootState)]
    return [answered, *(state for state in copies if state.stable_from >= fresh_from)]


def _firsts(query: QuerySpec, copy: RootState) -> Iterable[tuple[LogState, int]]:
    """The logs of a state record, each with the first offset that is needed of it.

    Without logs that the query does not have.
    """
    kept_from = copy.kept_from if len(copy.kept_from) == len(copy.logs) else ()
    return [
        (log, kept if kept is not None else min(log.stable.offset, log.live.offset))
        for log, kept in zip_longest(copy.logs, kept_from)
        if 0 <= log.child < query.children and 0 <= log.replica < query.replicas
    ]


class Truncation:
    """Truncates logs: each round deletes what the previous round has found not needed."""

    def __init__(
        self, transport: Transport, queries: Iterable[QuerySpec], beats: LatestBeats | None = None
    ) -> None:
        """``beats``: of the uplinks; without it the logs of queries at a site are kept."""
        self._transport, self._beats = transport, beats
        self._before: dict[Log, int] = {}
        self.read_by(queries)

    def read_by(self, queries: Iterable[QuerySpec]) -> None:
        """Set the queries whose logs are truncated, from the next round on."""
        self._queries = {query.name: query for query in queries}

    def step(self) -> dict[Log, int]:
        """Run one round; returns the new first offset of each truncated log."""
        now: dict[Log, int] = {}
        for readers in self._readers():
            states: dict[str, OrdererState | RootState] = {}
            for query in dict.fromkeys([readers[0].child_query, *(q.name for q in readers)]):
                states |= read_states(self._transport, query, readers[0].parts)
            needed = not_needed(readers, states, self._transport.names)
            beats = {} if self._beats is None else self._beats.all()
            for at_site in (reader for reader in readers if reader.uplink is not None):
                needed = kept_at_site(at_site, needed, beats, self._transport)
            now |= needed
        given_up = {
            log: min(offset, now[log]) for log, offset in self._before.items() if log in now
        }
        self._before = now
        given_up = {log: offset for log, offset in given_up.items() if offset > 0}
        # A position beyond the end is invalid: forged, or of another log.
        ends = self._transport.end_offsets(given_up) if given_up else {}
        given_up = {log: offset for log, offset in given_up.items() if offset <= ends[log]}
        if given_up:
            self._transport.delete_records(given_up)
        return given_up

    def _readers(self) -> Iterable[tuple[QuerySpec, ...]]:
        """The queries that read the same children, each time; other machines register queries too.

        A query that has joined is found in the registry before its root has a state record.
        """
        registered = Registry(self._transport).queries() if self._queries else {}
        joined = {n: each.spec for n, each in registered.items() if each.deployment is not None}
        known = joined | self._queries
        for children_of in dict.fromkeys(query.child_query for query in self._queries.values()):
            yield readers_of(children_of, known.values())

    async def run(self, every_s: float) -> None:
        """Run a round every ``every_s`` seconds, until cancelled."""
        while True:
            await asyncio.sleep(every_s)
            try:
                given_up = await asyncio.to_thread(self.step)
            except SlackwaterError as error:  # the next round retries
                _log.info("cannot truncate logs, will retry: %s", error)
            else:
                _log.debug("truncated %s", given_up)
