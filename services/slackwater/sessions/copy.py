"""The part of a root's session that concerns the other copy of its part (rule-27).

``protocols.flux.pair`` decides who answers. This module feeds it from the log of state records and
from heartbeats, and writes what the other copy needs: the tenure in each state record of the part,
and this copy's own record.

A copy's *own record* has its name. It is written outside transactions, so readers of committed
records may find it late, behind an open transaction of the part; whoever starts reads it regardless
of transactions. At the start it holds the placement number: of two processes of one name the one
with the greater number runs (trace-17). Once a second it holds the positions, below which nothing
may be deleted that this copy has not read.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Final

from slackwater.model.errors import SlackwaterError, SupersededError
from slackwater.model.names import ONLY, RootName, generation_of, own_name
from slackwater.model.records import Heartbeat, RootState
from slackwater.primitives.digests import NO_DIGEST
from slackwater.protocols.dpc.soutput.config import RootConfig, fits, stays_down
from slackwater.protocols.dpc.soutput.core import RootCore
from slackwater.protocols.flux.pair import ANSWERS, DISAGREES, TERM, Cause, Pair, PairRole, Tenure
from slackwater.sessions.earlier import EarlierGeneration
from slackwater.sessions.effects import Effect, Fail, LogLine, Perform, Rebuild, WriteState
from slackwater.sessions.following import Following
from slackwater.sessions.progress import PartProgress, read_progress
from slackwater.sessions.requests import (
    PROBE_TIMEOUT_US,
    TIMEOUT_US,
    AwaitRead,
    ClaimPart,
    Ends,
    Log,
    OpenTransactions,
    PrepareTransactions,
    Procedure,
    ReadCopies,
    StoreState,
)

OWN_RECORD_US: Final = 1_000_000
"""Interval of the own record."""


class FencedError(SlackwaterError):
    """Raised if the record of a new term has not been committed."""


def tenure_of(state: RootState) -> Tenure:
    """Return who answers, as a state record of the part tells."""
    return Tenure(state.term, state.copy, state.vain, state.resigned)


def stamped(state: RootState, tenure: Tenure) -> RootState:
    """Return the state record with this tenure."""
    return replace(
        state,
        term=tenure.term,
        copy=tenure.copy,
        vain=tenure.vain,
        resigned=tenure.resigned,
    )


class CopyOfPart:
    """What a root's session knows of its pair, and tells it; for a part with one copy, nothing."""

    def __init__(self, config: RootConfig, suspect_us: int) -> None:
        self._config = config
        self.is_alone = config.copy == ONLY
        self.pair = Pair(config.copy, is_alone=self.is_alone, suspect_us=suspect_us)
        self.states: Log = (config.topics.state(config.query), config.part)
        """The log of the part's state records."""
        self.others = tuple(
            RootName(config.query, config.part, copy).process
            for copy in (() if self.is_alone else (1 - config.copy,))
        )
        """The name of the other copy, if there is one."""
        self._recorded_at = 0
        self._is_prepared = self._is_to_resign = False
        self._has_failed: Rebuild | None = None
        self.following = Following(config)
        self.earlier = EarlierGeneration(config)
        self.reads_states = not self.is_alone or config.has_earlier
        """Whether it reads the log of the part's state records."""
        self._last: RootState | None = None
        """The part's last state record that this copy has read; None before the first one."""
        self._found: RootState | None = None
        """The state from which the start continues; None once the pair has begun."""

    @property
    def answers(self) -> bool:
        """Whether this copy answers."""
        return self.pair.role is PairRole.ANSWERING

    @property
    def follows(self) -> bool:
        """Whether this copy follows another one, or an earlier generation."""
        is_following = self.pair.role is PairRole.FOLLOWING
        return is_following and (not self.is_alone or self.earlier.is_followed)

    # The own record.

    def began(self, found: PartProgress) -> None:
        """Take what was read at the start."""
        self._last, self._found = found.own, found.state(self._config)
        self.earlier.began(found)

    def check_number(self) -> Procedure[None]:
        """Raise ``SupersededError`` if a copy of this name has a greater number (trace-17)."""
        config = self._config
        if self.is_alone:
            return
        own = yield from self.read_own()
        if own is not None and stays_down(own, config.placement, is_recorded=config.is_recorded):
            raise SupersededError(
                f"{config.process} has placement {own.placement}; "
                f"this copy has placement {config.placement} and stays down",
                config.placement,
            )

    def read_own(self, timeout_us: int = TIMEOUT_US) -> Procedure[RootState | None]:
        """Read the own record with the greatest number."""
        config = self._config
        copies = yield ReadCopies(config.query, config.part, timeout_us)
        own: RootState | None = copies.get(config.process)
        return own

    def recorded_number(self) -> Procedure[int | None]:
        """Return the greatest number recorded under this name, -1 without one; None: no answer."""
        try:
            if self.is_alone:
                found = (yield from read_progress(self._config, PROBE_TIMEOUT_US)).own
            else:
                found = yield from self.read_own(PROBE_TIMEOUT_US)
        except SlackwaterError:
            return None
        return -1 if found is None else found.placement

    # Roles.

    def cause(self, now: int, *, is_ready: bool) -> Cause | None:
        """Return why this copy has to take over now, as ``Pair.cause``.

        None while an earlier generation has not ended, whatever is heard of it (trace-44).
        """
        if self.earlier.is_followed:
            return None
        if self._found is not None:
            progress = self._progress
            found = self._found if progress is None else progress.state(self._config)
            self.pair.begin(tenure_of(found), now)
            self._found = None
        return self.pair.cause(is_ready=is_ready)

    def may_wait(self, core: RootCore) -> bool:
        """Return whether a state record needs no turn: all that it concerns is left unread."""
        return core.resting.holding.is_active and self.pair.may_wait

    def is_to_prepare(self, *, is_ready: bool) -> bool:
        """Return True once, when a copy that follows is ready: it then prepares its take-over."""
        if self._is_prepared or not (is_ready and self.follows):
            return False
        self._is_prepared = True
        return True

    def prepare(self) -> Procedure[None]:
        """Connect to Kafka for the fence; a failure costs time at the take-over only."""
        with contextlib.suppress(SlackwaterError):
            yield PrepareTransactions()

    def reported(self, cause: Cause) -> list[LogLine]:
        """Return the line that tells why this copy takes over from another one."""
        return [] if cause is Cause.FIRST else [LogLine(f"takes over: {cause.value}")]

    def begin_take_over(self, core: RootCore) -> None:
        """Read what is held, while the fence takes its time."""
        self.pair.take_over()
        if not self.is_alone:
            core.resting.holding.end()

    def take_over(self, core: RootCore) -> Procedure[tuple[PartProgress, Tenure]]:
        """Fence the copy that answers, adopt its last answers, and begin the next term.

        Copies that were placed earlier stay down from here on, even before this one's first answer
        (trace-41).

        Raises:
            SupersededError: a copy of this name, or a later generation, was placed meanwhile.
            FencedError: the record of the new term has not been committed.
        """
        config = self._config
        yield OpenTransactions()
        found = yield from self._read_to_end()
        found.check(config)
        state = found.state(config)
        core.follow(state)
        tenure = self.pair.next_term(tenure_of(state))
        needs_more = bool(state.kept_from) and core.movable.kept is None
        if needs_more:  # it has found no head: orderers send again from S (trace-62)
            state = replace(state, kept_from=(), moved_to=())
        continues = found.own is None and found.has_begun  # else a root of it would fence this one
        if not self.is_alone or needs_more or continues or found.needs_claim(config):
            try:
                yield ClaimPart(stamped(replace(state, placement=config.placement), tenure))
            except SlackwaterError as error:
                raise FencedError(str(error)) from error
        self.pair.installed(tenure)
        return found, tenure

    def _read_to_end(self) -> Procedure[PartProgress]:
        """Read all that other copies have committed; nothing follows, behind the fence.

        A copy that follows has read nearly all of it, and its live consumer reads the rest sooner
        than a new reader would.
        """
        if self.reads_states and self._progress is not None:
            with contextlib.suppress(SlackwaterError):
                end = (yield Ends((self.states,), "read_committed", PROBE_TIMEOUT_US))[self.states]
                yield AwaitRead(self.states, end)
                assert self._progress is not None
                return self._progress
        return (yield from read_progress(self._config))

    @property
    def _progress(self) -> PartProgress | None:
        """The progress of the part as far as it has been read; None if nothing of it has been."""
        return self.earlier.progress if self._last is None else PartProgress(self._last, {})

    # Resignation (trace-54).

    @property
    def is_leaving(self) -> bool:
        """Whether it has been asked to resign, and does."""
        return self._is_to_resign or self.pair.role is PairRole.RESIGNING

    def resign(self, now: int) -> bool:
        """Resign if the other copy could answer at once; return whether it does."""
        self._is_to_resign = self.pair.may_resign(now)
        return self._is_to_resign

    def last_effects(self, state: RootState, now: int, *, is_idle: bool) -> list[Effect]:
        """Answer no more, and commit that as the last record, once no transaction is in flight.

        ``state`` has the last answers of this copy.
        """
        if not (self._is_to_resign and is_idle):
            return []
        self._is_to_resign = False
        last = stamped(replace(state, placement=self._config.placement), self.pair.resign(now))
        return [LogLine("resigns: the other copy takes over"), Perform(self._commit_last(last))]

    def _commit_last(self, last: RootState) -> Procedure[None]:
        try:
            yield ClaimPart(last)
        except SlackwaterError as error:
            self._has_failed = Rebuild(f"its last record is not committed: {error}")

    def in_vain(self, now: int) -> Rebuild | None:
        """Return how to end if nobody takes over from this copy; None while somebody may."""
        if self.pair.role is PairRole.RESIGNING and self.pair.waits_in_vain(now):
            return Rebuild("has resigned, and the other copy is silent")
        return self._has_failed

    def after_failure(self) -> Procedure[Rebuild | None]:
        """Return how to end after a failed transaction if the other copy answers; else None."""
        if self.is_alone:
            return None
        try:
            found = yield from read_progress(self._config, PROBE_TIMEOUT_US)
        except SlackwaterError:
            return None
        return None if found.own is None else self._lost(tenure_of(found.own))

    def _lost(self, tenure: Tenure) -> Rebuild | None:
        if tenure.term <= self.pair.tenure.term:
            return None
        return Rebuild(f"another copy answers, in term {tenure.term}")

    def take_state(self, core: RootCore, record: object, now: int) -> Fail | Rebuild | None:
        """Take a state record that has been committed: a follower adopts it.

        Returns how the session is to end, if another process answers in its place.
        """
        try:
            state = self._of_part(record)
        except SupersededError as error:
            return Fail(str(error))
        if state is None:
            return None
        end: Rebuild | None = None
        if self.pair.role not in {PairRole.FOLLOWING, PairRole.TAKING_OVER}:
            return None if self.is_alone else self._lost(tenure_of(state))
        if state.next_seq >= core.answers.state.next_seq:  # else it precedes what was read first
            before = core.answers.state.stable_from
            self.following.compare(before, state, core.follow(state))
            if state is not record:
                return None  # it follows from a record of the earlier generation
            self.earlier.ended()
            known, self._last = self._last, state
            if self.follows:
                self.pair.read(tenure_of(state), now)
                if known is not None and known.moved_to != state.moved_to:
                    end = self._left_behind(core, state)
                if not self.is_alone:
                    self.following.hold(core, state)
        return end

    def _left_behind(self, core: RootCore, state: RootState) -> Rebuild | None:
        """Return how to end if what this copy reads may be deleted: a head has more (trace-62).

        What a copy holds follows S, and its own record keeps it.
        """
        if core.resting.holding.is_active or not core.movable.is_behind(state.moved_to):
            return None
        return Rebuild("is behind the older of two heads, and starts again from one")

    def own_record(self, state: RootState) -> RootState:
        """Return this copy's own record, with the positions of ``state``."""
        config, pair = self._config, self.pair
        own = replace(state, fragment=config.process, placement=config.placement, digest=NO_DIGEST)
        return stamped(own, pair.tenure)

    def store_number(self, state: RootState) -> Procedure[None]:
        """Write the own record of a start."""
        if not self.is_alone:
            yield StoreState(self._config.query, self.own_record(state), self._config.part)

    def is_due(self, now: int) -> bool:
        """Return whether the own record is to be written."""
        return not self.is_alone and now - self._recorded_at >= OWN_RECORD_US

    def recorded(self, state: RootState, now: int) -> WriteState:
        """Return the effect that writes the own record."""
        self._recorded_at = now
        return WriteState(self._config.query, self.own_record(state), self._config.part)

    # What is read.

    def _of_part(self, record: object) -> RootState | None:
        """Return the record if it is a state record of this part and generation.

        Raises:
            SupersededError: a later generation has answered, or this copy has a greater number
                elsewhere.
        """
        config = self._config
        if not isinstance(record, RootState) or not fits(config, record):
            return None
        if record.fragment == config.process:
            if record.placement > config.placement:
                raise SupersededError(
                    f"{config.process} runs elsewhere with placement {record.placement}",
                    config.placement,
                )
            if not self.is_alone:
                return None
        if record.fragment == config.fragment:
            return record
        of = RootName.parse(own_name(record.fragment))
        if of.copy == ONLY and generation_of(of.query) > generation_of(config.query):
            raise SupersededError(
                f"query {of.query} has replaced {config.query}: {config.process} stays down",
                config.placement,
            )
        return None if self._last is not None else self.earlier.of_part(record)

    def on_heartbeat(self, beat: Heartbeat, received_at: int) -> None:
        """Take a heartbeat of the other copy, or the report that its process has ended."""
        if beat.process not in self.others:
            return
        term, answers = beat.detail.get(TERM, 0), bool(beat.detail.get(ANSWERS))
        if beat.is_dead:
            self.pair.died(term, answered=answers)
        elif answers:
            self.pair.received(term, received_at)
        elif beat.ready:
            self.pair.followed(term, received_at)

    # What is told.

    def alarms(self) -> list[LogLine]:
        """Return the warnings that have not been written yet."""
        return self.following.alarms()

    def detail(self) -> dict[str, int]:
        """Return the counters of the heartbeat; a copy that takes over is not silent, either."""
        if self.is_alone and not self.follows:
            return {}
        count = self.following.disagreements
        disagrees = {DISAGREES: count} if count else {}
        return {TERM: self.pair.tenure.term, ANSWERS: int(not self.follows), **disagrees}
