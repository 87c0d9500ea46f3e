"""One query of a run: its processes, its logs, and the configuration of its cores.

A chain consists of two. Query p reads the result topics of q (trace-20), which q's roots write in
their transactions as in the product; the two have no other connection. Query r, which reads q's
children, has its own roots and state records, and uses q's orderers, ordered logs and deltas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from tests.simulator.config import AGGREGATE, WorldConfig
from tests.simulator.history import (
    Committed,
    Installed,
    Linked,
    Merged,
    OfQuery,
    ReportedRows,
    StoredRecord,
    Term,
)
from tests.simulator.kafka import Log
from tests.simulator.peer_statuses import PeerStatuses
from tests.simulator.read_positions import ReadPositions
from tests.simulator.uplinks import CENTRE

from slackwater.codec.result_batches import ResultStream
from slackwater.codec.results import ResultHead
from slackwater.host.results import ResultsWriter
from slackwater.host.root import contents_of_windows
from slackwater.model.child_logs import ChildLogs, dealt
from slackwater.model.deployment import BOUND_TOLERANCE_US
from slackwater.model.heads import Head, Key, PaneKey, PaneRecord, Stored, StoredState
from slackwater.model.merged import MergedRecord
from slackwater.model.names import (
    ONLY,
    Names,
    ResultKind,
    RootName,
    base_of,
    generation_of,
    own_name,
)
from slackwater.model.records import OrderedRecord, OrdererState, RootState
from slackwater.primitives.deltas import Aggregates, Slice
from slackwater.primitives.eventclock import DataClock, WallClock, normal_time_us
from slackwater.primitives.figures import FIGURE_NAMES, LOW
from slackwater.primitives.key_table import KeyTable
from slackwater.primitives.keyparts import CRC32
from slackwater.primitives.rows import RowContents, Rows
from slackwater.protocols.common.line import LineName, Schedule
from slackwater.protocols.dpc.reconcile.staggering import LEASE_US_DEFAULT
from slackwater.protocols.dpc.soutput.config import Commit, DeltaLog, RootConfig
from slackwater.protocols.dpc.sunion.config import OrdererConfig
from slackwater.protocols.fargo.parent import wait_us
from slackwater.protocols.flux.pair import PairRole
from slackwater.sessions.requests import State, fits_any

if TYPE_CHECKING:
    from tests.simulator.mergers import SimMerger
    from tests.simulator.orderers import SimOrderer
    from tests.simulator.roots import SimRoot
    from tests.simulator.uplinks import SimUplink
    from tests.simulator.world import World

    from slackwater.sessions.root import RootSession


EMPTY_WAIT_US = 100_000


class Input(NamedTuple):
    """A log that an orderer reads: of a stream, or one topic of a part of a query."""

    name: str
    source: str
    at: tuple[str, int]
    results: ResultStream | None = None
    watermark: int | None = None
    """For a stable topic: the time below which no row follows (trace-20)."""


HEAD_PERIOD_US = 30_000
NEVER_US = 1 << 60


class SimQuery:
    """``history`` is the history of this query."""

    def __init__(self, world: World, config: WorldConfig, history: OfQuery) -> None:
        self.world = world
        self.config = config
        self.name = config.name
        self.start_time_us = config.start_time_us
        self.is_registered = True
        """Whether it is registered, and not deleted: its roots start then."""
        self.turns = PeerStatuses(self)
        self.places = ReadPositions(self)
        self.lateness = config.lateness({})
        self._child_logs = self._divided()
        self._own_orderers: dict[tuple[int, int], SimOrderer] = {}
        self.mergers: dict[tuple[int, int], SimMerger] = {}
        self.uplinks: dict[tuple[int, int], SimUplink] = {}
        """By child and copy."""
        self.roots: dict[tuple[int, int], SimRoot] = {}
        """By part and copy."""
        self._history = history
        self._down_since: int | None = None
        self.others: list[SimQuery] = []
        """Other generations of it, which may answer in its place."""
        self._is_judged = not generation_of(self.name)
        """Whether it is to answer; a new generation is not before it has taken over."""

    def _divided(self) -> ChildLogs:
        """The child of each log; a generation divides those that are there at its registration."""
        config, recorded = self.config, self.world.partitions
        if config.by_log:
            topics = config.topics.items()
            there = {stream: max(count, recorded.get(stream, 0)) for stream, count in topics}
            counts = {source: there.get(source, 1) for source in config.inputs}
            return dealt(counts, len(config.children), in_order=config.rows)
        of = {source: (child,) for child, read in enumerate(config.children) for source in read}
        return ChildLogs.of(of, of)

    @property
    def child_logs(self) -> ChildLogs:
        """The child of each log, of the query that has the children."""
        of = self.config.children_of
        return self.world.queries[of]._child_logs if of else self._child_logs

    @property
    def orderers(self) -> dict[tuple[int, int], SimOrderer]:
        """The orderers of the children that it reads, by child and replica."""
        of = self.config.children_of
        return self.world.queries[of]._own_orderers if of else self._own_orderers

    @property
    def has_children(self) -> bool:
        """Whether the children that it reads are its own."""
        return not self.config.children_of

    @property
    def readers(self) -> list[SimQuery]:
        """The queries that read its children, itself first; itself if there are none.

        With sites that is what they answer themselves: at the centre nothing reads the children.
        """
        queries = [query for query in self.world.queries.values() if query.is_registered]
        found = [query for query in queries if query.config.child_query == self.name]
        return [query for query in found if not query.config.sites] or [self]

    # Names and logs.

    def orderer_name(self, child: int, replica: int) -> str:
        """Return the process's name, as in ``status``."""
        return self.config.orderer_name(child, replica)

    def ordered_topic(self, child: int) -> str:
        """Return the topic's name, as in the name of a hole."""
        return Names().ordered(self.config.child_query, child)

    def ordered_log(self, child: int, replica: int, line: int) -> Log[object]:
        """Return a replica's stable (0) or live (1) log."""
        return self.world.broker.log(f"{self.ordered_topic(child)}:{2 * replica + line}")

    def ordered_logs_at(self, child: int, replica: int) -> tuple[tuple[str, int], tuple[str, int]]:
        """Return the places of a replica's stable and live log."""
        topic = self.ordered_topic(child)
        return (topic, 2 * replica), (topic, 2 * replica + 1)

    def delta_log(self, part: int, child: int, replica: int, line: int) -> Log[object]:
        """Return the deltas of this log for a part."""
        partition = self._partition(child, replica, line)
        return self.world.broker.log(f"{self._delta_topic(part)}:{partition}")

    def _delta_topic(self, part: int) -> str:
        return Names().deltas(self.config.child_query, part)

    def is_missed(self, child: int, replica: int, line: int) -> bool:
        """Return whether a root of any reader reports a hole in the deltas of this log."""
        partition = self._partition(child, replica, line)
        return any(
            self.world.heartbeats.is_missed(self._delta_topic(part), partition)
            for part in range(self.config.parts)
        )

    def _partition(self, child: int, replica: int, line: int) -> int:
        return DeltaLog(child, replica, LineName(line)).partition(self.config.replicas)

    def results_log(self, part: int) -> Log[object]:
        """The results of a part in one log: whole transactions."""
        return self.world.broker.log(f"sw.results.{base_of(self.name)}:{part}")

    def beats(self, part: int) -> Log[object]:
        """Return the log of the heartbeats of a part's copies."""
        return self.world.broker.log(f"beats of {self.name}:{part}")

    def root_log(self, part: int, log: DeltaLog) -> Log[object]:
        """Return the root's input: deltas or, without a window, ordered logs (trace-21)."""
        if self.config.rows:
            return self.ordered_log(*log)
        return self.delta_log(part, *log)

    def result_topic(self, kind: ResultKind, part: int) -> Log[object]:
        """Return the results of a part as its readers read them: lines of text."""
        return self.world.broker.log(f"{Names().results(self.name, kind)}:{part}")

    def state_log(self, part: int = 0) -> Log[object]:
        """The log of state records of a part's root; that of part 0 also has the orderers'.

        An open transaction hides what follows it in its log (trace-18).
        """
        name = f"sw.state.{base_of(self.name)}"
        return self.world.broker.log(f"{name}:{part}" if part else name)

    def inputs(self, child: int) -> Iterator[Input]:
        """Return the logs that an orderer of the child reads, in the same order in all replicas."""
        logs_of = self._child_logs
        for source in logs_of.streams_of(child):
            if self.config.reads is None or source != self.config.reads.name:
                logs = self.world.logs_of(source)
                for number in logs_of.of_child(child, source, len(logs)):
                    yield Input(logs[number], source, (Names().source(logs[number]), 0))
            else:
                yield from self.world.queries[source].result_logs()

    def result_logs(self) -> Iterator[Input]:
        """Return for each part the stable and then the tentative topic, as read by a reader."""
        config = self.config
        slide = None if config.rows else config.slide_us
        if config.rows:
            watermark = config.grid.bucket_start(config.start_time_us)
        else:
            watermark = config.grid.window_end(config.first_window) - 1
        for part in range(config.parts):
            stream = ResultStream(self.name, part, config.fields, AGGREGATE, slide)
            stable, tentative = (Names().results(self.name, k) for k in ("stable", "tentative"))
            yield Input(stream.name, self.name, (stable, part), stream, watermark)
            yield Input(f"{stream.name}/tentative", self.name, (tentative, part), stream)

    def result_lines(self, part: int, commit: Commit) -> Iterator[tuple[Log[object], object]]:
        """Return the lines that a transaction writes for the readers of this query."""
        if self.config.chain is None:
            return
        head = ResultHead(base_of(self.name), part, generation_of(self.name))
        writer = ResultsWriter(head, self.config.fields, AGGREGATE)
        for kind, lines in writer.lines(commit, self.world.scheduler.now):
            for _, value in lines:
                yield self.result_topic(kind, part), value

    # State records.

    def newest_states(self, fits: Callable[[State], bool] = fits_any) -> dict[str, State]:
        """Return the newest committed state record of each fragment that fits, by name."""
        newest: dict[str, State] = {}
        for part in range(self.config.parts):
            values, _ = self.state_log(part).read_committed()
            for value in values:
                assert isinstance(value, OrdererState | RootState)
                if fits(value):
                    newest[value.fragment] = value
        return newest

    def orderer_state(self, name: str) -> OrdererState | None:
        """Return the newest state record of an orderer."""
        state = self.newest_states().get(name)
        return state if isinstance(state, OrdererState) else None

    def orderer_states(self, frontier_max: int) -> list[OrdererState]:
        """Return the newest state record of each orderer that is not above a frontier."""
        found = self.newest_states(
            lambda state: isinstance(state, OrdererState) and state.frontier <= frontier_max
        )
        return [state for state in found.values() if isinstance(state, OrdererState)]

    def copies(self, part: int) -> dict[str, RootState]:
        """Return the own records of a part's copies, of each the one with the greatest number."""
        newest: dict[str, RootState] = {}
        for _, value in self.state_log(part).values():
            if isinstance(value, RootState) and RootName.parse(own_name(value.fragment)).copy >= 0:
                known = newest.get(value.fragment)
                if known is None or known.placement <= value.placement:
                    newest[value.fragment] = value
        return newest

    def root_state(self, part: int) -> RootState | None:
        """Return the newest committed state record of a part."""
        values, _ = self.state_log(part).read_committed()
        name = RootName(self.name, part).process
        states = [v for v in values if isinstance(v, RootState) and v.fragment == name]
        return states[-1] if states else None

    def root_states_of_others(self, part: int) -> dict[int, RootState]:
        """Return the newest committed state records of a part in the other generations."""
        found: dict[int, RootState] = {}
        for fragment, state in self.newest_states().items():
            if isinstance(state, RootState):
                of = RootName.parse(own_name(fragment))
                if of.part == part and of.query != self.name and of.copy == ONLY:
                    found[generation_of(of.query)] = state
        return found

    def root_states(self) -> list[RootState | None]:
        """Return the newest committed state records of all parts."""
        return [self.root_state(part) for part in range(self.config.parts)]

    def states(self) -> dict[str, OrdererState | RootState]:
        """Return the state records in its log, by fragment."""
        orderers = [self.orderer_state(name) for name in self.config.orderer_names]
        known = [*self.root_states(), *orderers]
        copies = {} if self.config.copies == 1 else self.newest_states()
        own = {name: copies[name] for name in self.config.root_names if name in copies}
        return {state.fragment: state for state in known if state is not None} | own

    # The configuration of the cores.

    def schedule(self, stage: int, clock: DataClock | None = None) -> Schedule:
        """Return the deadlines of a stage, in a process with this clock of a history."""
        normal_time = partial(self.normal_time, clock=clock)
        return Schedule(normal_time, self.config.answer_within_us(stage))

    def history_clock(self) -> DataClock | None:
        """Return a clock of one process, if event time follows the data."""
        return DataClock() if self.config.history_speed else None

    def lateness_us(self, e: int) -> int:
        """The lateness, with learned steps; all processes have them at once."""
        return self.lateness.at(e)

    def normal_time(self, e: int, clock: DataClock | None = None) -> int | None:
        """Return the normal time; event time is wall time, except in a history.

        None before a begin is recorded, and while a history has not come so far.
        """
        begin_us = self.config.begin_us
        if begin_us is not None and self.world.scheduler.now < begin_us:
            return None
        return normal_time_us(clock or WallClock(), e, self.lateness_us(e), begin_us)

    def orderer_config(
        self, child: int, replica: int, placement: int = -1, clock: DataClock | None = None
    ) -> OrdererConfig:
        """Return the configuration of a replica."""
        config, inputs = self.config, list(self.inputs(child))
        return OrdererConfig(
            fragment=self.orderer_name(child, replica),
            child=child,
            replica=replica,
            logs=tuple(i.name for i in inputs),
            names=tuple(i.source for i in inputs),
            grid=config.grid,
            schedule=self.schedule(1, clock),
            ahead_buckets_max=config.ahead_buckets_max,
            ahead_bytes_max=config.ahead_bytes_max,
            backlog_records_max=config.backlog_records_max,
            backlog_rows_max=config.backlog_rows_max,
            disorders_us=tuple(config.disorder_of(i.source) for i in inputs),
            lateness=self.lateness_us,
            in_time_us=config.answer_within_us(1),
            replicas=config.replicas,
            turn_lease_us=config.paced(LEASE_US_DEFAULT),
            policy=config.policy,
            seek_period_us=config.seek_period_us,
            results={i: of.watermark for i, of in enumerate(inputs) if of.watermark is not None},
            placement=placement,
            coming=self._coming(child),
        )

    def _coming(self, child: int) -> dict[str, int]:
        """By stream, the first partition that the child would read if the topic had it."""
        world, logs = self.world, self._child_logs
        read = [stream for stream in logs.streams_of(child) if stream in world.topics]
        found = {s: logs.next_of(child, s, len(world.logs_of(s))) for s in read}
        return {stream: number for stream, number in found.items() if number is not None}

    def root_config(
        self,
        part: int,
        placement: int,
        clock: DataClock | None = None,
        *,
        copy: int = ONLY,
        is_recorded: bool = False,
    ) -> RootConfig:
        """Return the configuration of a copy."""
        return RootConfig(
            fragment=RootName(self.name, part).process,
            query=self.name,
            part=part,
            placement=placement,
            copy=copy,
            is_recorded=is_recorded,
            has_earlier=self.has_earlier,
            children=tuple(map(self.child_logs.streams_of, range(len(self.config.children)))),
            replicas=self.config.replicas,
            fields=self.config.fields,
            grid=self.config.grid,
            schedule=self.schedule(2, clock),
            start_time=self.start_time_us,
            bound_us=self.config.bound_us,
            tolerance_us=self.config.paced(BOUND_TOLERANCE_US),
            stale_us=self.config.stale_us,
            ahead_buckets_max=self.config.ahead_buckets_max,
            ahead_bytes_max=self.config.ahead_bytes_max,
            policy=self.config.policy,
            children_of=self.config.children_of,
            is_history=clock is not None,
            reread_us_max=self.config.head_us or NEVER_US,
            held_read_us_max=self.config.held_read_us,
            compare_period_us=self.config.compare_us,
            head_period_us=HEAD_PERIOD_US,
            merged_wait_us=self._merged_wait_us,
            topics=CENTRE if self.config.sites else Names(),
            remote=frozenset(range(len(self.config.children)) if self.config.sites else ()),
            **self.contents_of_part(part),
        )

    @property
    def _merged_wait_us(self) -> int | None:
        has_mergers = bool(self.config.merger_names)
        return wait_us(self.config.answer_within_us(2)) if has_mergers else None

    def contents_of_part(self, part: int) -> dict[str, Any]:
        """Return the configuration of what an answer consists of."""
        if not self.config.rows:
            of = contents_of_windows(self.config.query, self.config.fields)
            # Checkers compare all figures, whichever the aggregates need.
            return of | {"contents": partial(of["contents"], figures=FIGURE_NAMES)}
        contents = partial(RowContents, part=part, parts=self.config.parts, key_hash=CRC32)
        wait_us = min(self.config.paced(EMPTY_WAIT_US), self.config.answer_within_us(2) // 2)
        return {"contents": contents, "empty_wait_us": wait_us}

    # The history.

    def committed(self, part: int, placement: int, commit: Commit) -> None:
        """Record a committed transaction."""
        keys: dict[int, ReportedRows] = {}
        width = 5 * len(self.config.fields)
        for effect in commit.transaction.effects:
            content = getattr(effect, "content", None)
            seq = effect.seq
            if content is not None:
                names, rows = _listed(content.slice, commit.keys, width)
                keys[seq] = [(k, tuple(row)) for k, row in zip(names, rows, strict=True)]
        now = self.world.scheduler.now
        self._history.committed.append(
            Committed(now, part, placement, commit.transaction, keys, commit.state)
        )

    def stored(self, part: int) -> StoredState:
        """Return what the roots of a part have stored."""
        latest: dict[Key, Stored] = {}
        for _, value in self.world.log_at((Names().panes(self.name), part)).values():
            if isinstance(value, StoredRecord):
                latest[value.key] = value.record
        present = {key: record for key, record in latest.items() if record is not None}
        return StoredState(
            tuple(record for record in present.values() if isinstance(record, Head)),
            {
                key: of
                for key, of in present.items()
                if isinstance(key, PaneKey) and isinstance(of, PaneRecord)
            },
            frozenset(present),
        )

    def installed(self, part: int, root: RootSession) -> None:
        """Record what a copy has installed, and the deltas that are in the logs."""
        moved = root.mover.installed
        if moved is None:
            return
        assert isinstance(moved.contents, Aggregates)
        logs = {
            (log.child, log.replica): self.world.log_at(at).written()
            for at, log in zip(root.inputs, root.config.logs, strict=False)
            if not log.line
        }
        self._history.installed.append(
            Installed(
                self.world.scheduler.now,
                part,
                root.core.answers.state.stable_from,
                moved.head.frontiers,
                {at: pane.to_bytes(moved.keys) for at, pane in moved.panes.items()},
                logs,
            )
        )

    def taken_over(self, part: int, state: RootState) -> None:
        """Record that a copy has begun a term."""
        self._history.tenures.append(Term(self.world.scheduler.now, part, state))

    def resigned(self, part: int, state: RootState) -> None:
        """Record that a copy has resigned."""
        self._history.resigned.append(Term(self.world.scheduler.now, part, state))

    def take_over(self, earlier: SimQuery) -> None:
        """Be the one that is to answer, from now on, in place of an earlier generation."""
        earlier.judge()
        self._down_since, self._is_judged = earlier._down_since, True
        earlier._down_since, earlier._is_judged = None, False
        self.others.append(earlier)  # it answers until this one does
        self.judge()

    @property
    def has_earlier(self) -> bool:
        """Whether an earlier generation has not ended in the registry (rule-29)."""
        return self.world.has_earlier(self.name)

    @property
    def is_followed_by_roots(self) -> bool:
        """Whether a root of each part could answer at once."""
        parts = {root.part for root in self.roots.values() if root.speaks and root.is_ready}
        return len(parts) == self.config.parts

    @property
    def answers(self) -> bool:
        """Whether a root of each part answers."""
        parts = {root.part for root in self.roots.values() if root.speaks and root.answers}
        return len(parts) == self.config.parts

    def has_reached(self, earlier: SimQuery) -> bool:
        """Return whether it has computed what the earlier generation answers next (rule-29)."""
        states = [state for state in earlier.root_states() if state is not None]
        answered_to = max((state.answered_to for state in states), default=0)
        return all(
            any(
                self._replica_has_reached(child, r, answered_to)
                for r in range(self.config.replicas)
            )
            for child in range(len(self.config.children))
        )

    def _replica_has_reached(self, child: int, replica: int, to: int) -> bool:
        orderer = self.orderers.get((child, replica))
        if orderer is None or not orderer.speaks or orderer.core is None:
            return False
        core = orderer.core
        if core.suppress_tentative or max(core.line.stable_next, core.line.live_next) < to:
            return False
        return self.config.rows or all(
            self.delta_log(part, child, replica, line).end
            >= self.ordered_log(child, replica, line).end
            for part in range(self.config.parts)
            for line in (0, 1)
        )

    def judge(self) -> None:
        """Update the record of times at which a stage has no working copy."""
        if not self._is_judged:
            return
        now = self.world.scheduler.now
        bad = not any(query.is_available() for query in (self, *self.others))
        if bad and self._down_since is None:
            self._down_since = now
        elif not bad and self._down_since is not None:
            self._history.unavailable.append((self._down_since, now))
            self._down_since = None

    def finish(self) -> None:
        """Complete the history at the end."""
        self.judge()
        if self._down_since is not None:
            self._history.unavailable.append((self._down_since, self.world.scheduler.now))
        self._finish_merged()
        logs = self._history.ordered_logs
        if generation_of(self.name):
            logs = {}
            self._history.later_logs.append(logs)
        for child in range(len(self.config.children)):
            for replica in range(self.config.replicas):
                for line in (0, 1):
                    logs[child, replica, line] = [
                        (offset, value)
                        for offset, value in self.ordered_log(child, replica, line).all_values()
                        if isinstance(value, OrderedRecord)
                    ]

    def _finish_merged(self) -> None:
        config = self.config
        for part, child in product(range(config.parts), range(len(config.children))):
            log = self.world.log_at((Names().merged(self.name, part), child))
            records = [of for _, of in log.all_values() if isinstance(of, MergedRecord)]
            deltas = {
                (child, replica): self.delta_log(part, child, replica, 0).written()
                for replica in range(config.replicas)
            }
            if records:
                self._history.merged.append(Merged(part, child, records, deltas))
            if config.sites:
                log = self.world.log_at((CENTRE.merged(self.name, part), child))
                sent = [of for _, of in log.all_values() if isinstance(of, MergedRecord)]
                self._history.linked.append(Linked(part, child, records, sent))

    def held(self) -> dict[str, int]:
        """Return the memory of its processes."""
        held = {}
        for orderer in self.orderers.values():
            if orderer.core is not None and orderer.alive:
                held[orderer.name] = orderer.core.held_bytes
        for root in self.roots.values():
            if root.core is not None and root.alive:
                held[root.name] = root.core.held_slices
        return held

    def is_available(self) -> bool:
        """Return whether each stage has a working copy."""
        if not self.world.broker.up:
            return False
        if not all(map(self._part_is_answered, range(self.config.parts))):
            return False
        return all(
            any(self._replica_works(c, r) for r in range(self.config.replicas))
            for c in range(len(self.config.children))
        )

    def _part_is_answered(self, part: int) -> bool:
        """Return whether a copy of the part works.

        Of two the one that answers must keep up, since it sends heartbeats also if it is too slow.
        If that is silent, the other one must be ready.
        """
        copies = [
            root for (of, _), root in self.roots.items() if of == part and not root.awaits_end
        ]
        if self.config.copies == 1:
            return bool(copies) and _keeps_up(copies[0])
        reached = [root for root in copies if root.speaks and root.has_broker]
        answering = [root for root in reached if root.session.pair.role is PairRole.ANSWERING]
        return any(map(_keeps_up, answering or [root for root in reached if root.is_ready]))

    def _replica_works(self, child: int, replica: int) -> bool:
        orderer = self.orderers.get((child, replica))
        return (
            orderer is not None
            and orderer.speaks
            and not orderer.deaf_to
            and (self.config.rows or self.world.aggregates(orderer))
        )


def _keeps_up(root: SimRoot) -> bool:
    return root.speaks and root.has_broker and not root.deaf_to and not root.unit_us


def _listed(content: Slice | Rows, table: KeyTable, width: int) -> tuple[list[str], Any]:
    """Return keys and rows: ``width`` figures of each key in key order, or times and values."""
    if isinstance(content, Rows):
        return table.names(content.index), np.vstack([content.stimes, content.values]).T.tolist()
    names, figures = content.sorted(table)
    return names, figures[:LOW].transpose(2, 1, 0).reshape(len(names), width).tolist()
