"""Finds where an orderer starts, from its state record, its logs and the results.

A new incarnation continues where the state record and its own logs end. An orderer without a state
record is a new replica, and continues from a peer or from what the roots have answered. After a
hole that a reader has reported, the next incarnation continues where the results end (rule-11,
rule-25, rule-26).

Controllers may have placed a replica on two nodes, one in each half of a split network. The one
with the greater placement number runs, and the other one stays down (trace-41).

The methods are procedures: they yield requests and receive the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from slackwater.model.errors import SlackwaterError, SupersededError
from slackwater.model.names import RootName
from slackwater.model.records import Kind, OrderedRecord, OrdererState, RootState
from slackwater.protocols.common.line import LineName
from slackwater.protocols.dpc.soutput.config import needed_from
from slackwater.protocols.dpc.sunion.config import OrdererConfig, Recovered
from slackwater.protocols.dpc.sunion.recovery import (
    first_state,
    is_within,
    recover,
    replay_from,
    skip_unneeded,
    with_added_logs,
)
from slackwater.sessions.requests import (
    BeginIncarnation,
    Beginnings,
    Ends,
    FindReaders,
    Log,
    Ordered,
    Procedure,
    ReadOrdered,
    ReadOrdererStates,
    ReadStates,
    State,
    fits_any,
)

UNREAD_RECORDS_MAX: Final = 200
"""Records of the source logs that a new orderer reads from their beginnings. If there are more, it
first looks for positions of other orderers: a record may hold thousands of readings, and to read
them delays the other fragments of the host."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A new incarnation, and the state from which it continues.

    ``beginnings`` are the first offsets that the source logs hold, ``live_from`` is the offset from
    which the orderer's live log was read.
    """

    inc: int
    state: OrdererState
    recovered: Recovered
    beginnings: list[int]
    live_from: int


@dataclass(frozen=True, slots=True)
class OrdererStart:
    """The start of one orderer replica.

    ``readers`` are the queries whose roots read its logs, each with ``parts`` parts. ``own`` has
    its stable log and its live log. ``start_time`` is the query's start, us of event time.
    ``unread_records_max``: see ``UNREAD_RECORDS_MAX``.
    """

    config: OrdererConfig
    query: str
    readers: tuple[str, ...]
    parts: int
    sources: tuple[Log, ...]
    own: tuple[Log, Log]
    start_time: int
    unread_records_max: int = UNREAD_RECORDS_MAX

    @property
    def roots(self) -> list[str]:
        """The roots that read its logs."""
        return [RootName(of, part).process for of in self.readers for part in range(self.parts)]

    def begin(self) -> Procedure[Begun]:
        """Read the orderer's logs to their ends, and write START there.

        Raises:
            SupersededError: a writer with a greater placement number has started in the log.
        """
        beginnings = yield Beginnings((*self.sources, *self.own))
        source_beginnings = [beginnings[log] for log in self.sources]
        state: OrdererState = yield from self._state(source_beginnings)
        stable_log, live_log = self.own
        # Retention may have deleted the records at the offsets of the state record.
        live_from = max(state.live_offset, beginnings[live_log])
        live: Sequence[Ordered] = yield ReadOrdered(live_log, live_from)
        found: list[Recovered] = []

        def make_start(stable: Sequence[Ordered]) -> OrderedRecord:
            check_precedence(self.config, state, stable)
            found.append(recover(state, stable, live))
            return start_record(self.config, -1, found[0])

        stable_from = max(state.stable_offset, beginnings[stable_log])
        inc = yield BeginIncarnation(stable_log, stable_from, make_start)
        return Begun(inc, state, found[0], source_beginnings, live_from)

    def after_results(self, snapshot: OrdererState) -> Procedure[OrdererState]:
        """Return the state that continues from the end of the results (rule-11).

        Queries may have joined since this start was made (trace-50).
        """
        joined: Sequence[str] = yield FindReaders(self.query)
        readers = tuple(dict.fromkeys((*self.readers, *joined)))
        return (yield from replace(self, readers=readers)._after_results(snapshot))

    def _after_results(self, snapshot: OrdererState) -> Procedure[OrdererState]:
        log = self.own[LineName.STABLE]
        beginnings = yield Beginnings(self.sources)
        states = yield from self._states()
        own: Sequence[Ordered] = yield ReadOrdered(log)
        ends = yield Ends((log,))
        return replay_from(
            self.config,
            snapshot,
            [beginnings[source] for source in self.sources],
            start_time=self.start_time,
            answered_to=self._answered_to(states),
            own_log=[record for _, record in own],
            own_end=ends[log],
        )

    def _state(self, beginnings: Sequence[int]) -> Procedure[OrdererState]:
        """Read the state record; without one, derive it from those of other fragments (rule-26)."""
        config = self.config
        ends = yield Ends(self.sources)
        source_ends = [ends[log] for log in self.sources]

        def fits(state: State) -> bool:
            """Reject a state record of this orderer that lies beyond the ends of the logs.

            An older one leads to the same output.
            """
            if state.fragment != config.fragment or not isinstance(state, OrdererState):
                return True
            return self._within(state, beginnings, source_ends) is not None

        states = yield from self._states(fits)
        mine = states.get(config.fragment)
        if isinstance(mine, OrdererState):
            mine = self._within(mine, beginnings, source_ends)
            assert mine is not None, "a state record that does not fit"
            return mine
        own_begin, own_end = (yield Beginnings(self.own)), (yield Ends(self.own))
        siblings = config.fragment.rpartition(".")[0]
        named = [s for name, s in states.items() if name.rpartition(".")[0] == siblings]
        peers = [peer for peer in named if isinstance(peer, OrdererState)]
        if peers:  # later than the state records: peers read on
            now_at = yield Ends(self.sources)
            source_ends = [now_at[log] for log in self.sources]
        first = first_state(
            config,
            beginnings,
            start_time=self.start_time,
            own=[(own_begin[log], own_end[log]) for log in self.own],
            peers=[at for at in (self._within(p, beginnings, source_ends) for p in peers) if at],
            answered_to=self._answered_to(states),
        )
        return (yield from self._without_unneeded(first, beginnings, source_ends))

    def _within(
        self, state: OrdererState, beginnings: Sequence[int], ends: Sequence[int]
    ) -> OrdererState | None:
        """Return the state in the logs of this orderer; None if it does not lie within them."""
        found = with_added_logs(state, self.config, self.start_time, beginnings)
        return found if found is not None and is_within(found, ends) else None

    def _without_unneeded(
        self, first: OrdererState, beginnings: Sequence[int], ends: Sequence[int]
    ) -> Procedure[OrdererState]:
        """Skip records before the query's start, by positions that other orderers have recorded.

        Records of result topics are not skipped.
        """
        sources = [logs[0] for logs in self.config.inputs if len(logs) == 1]
        begin_of = {
            first.streams[i].stream: (i, beginnings[i])
            for i in sources
            if first.streams[i].next.inc < 0
        }
        unread = sum(ends[i] - beginning for i, beginning in begin_of.values())
        if unread <= self.unread_records_max:
            return first
        try:
            others: Sequence[OrdererState] = yield ReadOrdererStates(
                tuple(begin_of), self.start_time
            )
            # Later than the state records, whose positions may be at the ends.
            now_at = yield Ends(self.sources)
        except SlackwaterError:
            return first  # to read the logs from their beginnings is slow, and exact
        extents = {
            name: (beginning, now_at[self.sources[i]]) for name, (i, beginning) in begin_of.items()
        }
        return skip_unneeded(first, others, start_time=self.start_time, extents=extents)

    def _states(self, fits: Callable[[State], bool] = fits_any) -> Procedure[Mapping[str, State]]:
        """Read the state records of the orderers, and of all roots that read their logs."""
        found: dict[str, State] = {}
        for query in dict.fromkeys((self.query, *self.readers)):
            states: Mapping[str, State] = yield ReadStates(query, self.parts, fits)
            found |= states
        return found

    def _answered_to(self, states: Mapping[str, State]) -> int | None:
        """Return the event time before which no root needs a bucket of this child again."""
        found = [states.get(root) for root in self.roots]
        child = self.config.child
        return needed_from((s if isinstance(s, RootState) else None for s in found), child)


def start_record(config: OrdererConfig, inc: int, recovered: Recovered) -> OrderedRecord:
    """Return the START of an incarnation.

    ``inc`` is -1 in the stable log, since the offset there becomes the incarnation's number.
    """
    at = recovered.frontier
    return OrderedRecord(
        Kind.START,
        config.child,
        config.replica,
        inc,
        at.bucket_start,
        at.bucket_start,
        first_id=recovered.next_id,
        last_id=recovered.next_id - 1,
        frontier=at,
        placement=config.placement,
    )


def check_precedence(config: OrdererConfig, state: OrdererState, stable: Sequence[Ordered]) -> None:
    """Raise ``SupersededError`` if this replica has started with a greater placement number.

    ``stable`` has the records of the stable log from the state record on. The START of the other
    placement is among them, or its writer has written the state record. A replica that controllers
    have not placed has no number, and its last start takes over (rule-6).
    """
    starts = [record.placement for _, record in stable if record.kind is Kind.START]
    latest = max([state.placement, *starts])
    if 0 <= config.placement < latest:
        raise SupersededError(
            f"{config.fragment} was placed elsewhere with number {latest}; "
            f"this one has number {config.placement} and stays down",
            config.placement,
        )
