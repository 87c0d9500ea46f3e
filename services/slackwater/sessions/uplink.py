"""The session of an uplink: one copy, for all parts and children of a query at a site, without I/O.

``protocols.fargo.uplink`` has the panes. This module has the logs: the site's merged panes are read
as any input, and appended to the centre's log of the same child, which has another number there.
The centre is another Kafka, so what is asked of it is marked (``AtCentre``), and the host writes
there.

A site that starts while it is cut off must start. So the centre is asked in the background, again
and again, what it has; until it has answered nothing is read. It is asked once for each life of the
session: what arrives afterwards is known from acknowledgements, and from the other copies.

The definitions at both ends must be of one query: the same panes, and the same start. If they are
not, nothing is sent, and the reason is logged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final, assert_never

from slackwater.model.errors import SlackwaterError
from slackwater.model.limits import NEVER
from slackwater.model.merged import MergedRecord
from slackwater.model.names import UNPREFIXED, Names, UplinkName
from slackwater.model.records import Heartbeat
from slackwater.protocols.common.line import LineName
from slackwater.protocols.common.states import LineState
from slackwater.protocols.fargo.uplink import Duty, OtherCopy, Uplink
from slackwater.sessions.effects import Append, Effect, LogLine, Perform
from slackwater.sessions.events import (
    CommitFailed,
    CommitSucceeded,
    EarlierEnded,
    EndsFetched,
    HeartbeatReceived,
    HeartbeatReturned,
    HoleReported,
    IncarnationClaimed,
    LiveAt,
    PassedBy,
    PositionGone,
    PositionsFetched,
    Received,
    Record,
    RecordDelivered,
    Replayed,
    ReplayedTo,
    ResignRequested,
    SessionEvent,
)
from slackwater.sessions.requests import (
    AtCentre,
    Beginnings,
    FindDefinition,
    Log,
    Procedure,
    ReadMerged,
)
from slackwater.sessions.session import Form, Report

LINE: Final = LineName.LIVE
"""The name of its only line."""
ASK_AGAIN_US: Final = 1_000_000
"""Pause before the centre is asked again."""
OTHER_US_MAX: Final = 30_000_000
"""The same while it answers that it has another query, or none: it sends its registry each time."""
CENTRE_TIMEOUT_US: Final = 10_000_000
"""How long an answer of the centre is waited for: a link may be thin."""
HAS_TO: Final = "has_to."
"""Details of the heartbeat, by part and child at the site: up to where the centre has all panes."""
SENT: Final = "sent."
"""By part and child: the offset in the site's log below which the centre has everything."""
LINKED: Final = "linked"
"""1 if the centre has answered, and nothing stands still."""


@dataclass(frozen=True, slots=True)
class UplinkConfig:
    """Configuration of a copy of an uplink.

    ``children`` has, of each child at the site, the number at the centre. ``why_other`` says why
    the definition that the centre has is of another query; empty if it is not.
    """

    query: str
    copy: int
    copies: int
    children: tuple[int, ...]
    parts: int
    replicas: int
    why_other: Callable[[Any], str]
    topics: Names = UNPREFIXED
    lists_us: int = 0
    """For how long a list of keys is named by its hash."""
    stands_us: int = 3_000_000
    """The link counts as cut when there is a pane, and nothing has arrived for so long."""

    @property
    def process(self) -> str:
        """The name of this copy."""
        return UplinkName(self.query, 0, self.copy).process

    @property
    def others(self) -> dict[str, int]:
        """The numbers of the other copies, by name."""
        copies = (copy for copy in range(self.copies) if copy != self.copy)
        return {UplinkName(self.query, 0, copy).process: copy for copy in copies}


def place_of(part: int, child: int) -> str:
    """Return the end of the details of a part and a child, which is numbered as at the site."""
    return f"{part}.{child}"


@dataclass(slots=True)
class _Panes:
    """The panes of one part of one child, and where their log at the site is read."""

    log: Log
    at_centre: Log
    place: str
    panes: Uplink
    offset: int
    position: int
    """The next offset of the live consumer."""
    moved_at: int = 0
    """When the centre got a pane last, or nothing was left to send."""
    has_to_then: int = NEVER

    @property
    def attached(self) -> bool:
        """Whether the next record comes from the live consumer."""
        return self.offset >= self.position


@dataclass(slots=True)
class _Centre:
    """What is known of the centre."""

    answered: bool = False
    asking: bool = False
    ask_at: int = 0
    other_us: int = 0
    """The last pause since it has another query."""
    problem: str = ""
    others: dict[int, OtherCopy] = field(default_factory=dict)


class UplinkSession:
    """Session of one copy of an uplink."""

    hole: Final = None
    """What its log lacks is reported in its state."""
    inc: Final = -1
    """Copies write the same: none replaces another."""

    def __init__(self, config: UplinkConfig) -> None:
        self.config = config
        topics, query, of = config.topics, config.query, config.children
        self._places = {
            (topics.merged(query, part), child): (part, child)
            for part, child in product(range(config.parts), range(len(of)))
        }
        """By log at the site, the part and the child there; ``_parts`` has the same order."""
        self._at = {log: number for number, log in enumerate(self._places)}
        self._centre_logs = {(topic, of[child]): n for (topic, child), n in self._at.items()}
        self._parts: list[_Panes] = []
        self._centre = _Centre()
        self._duty = Duty(config.copy)
        self._queued: list[Effect] = []
        self._now = 0

    @property
    def fragment(self) -> str:
        """Name of the fragment."""
        return self.config.process

    @property
    def parts(self) -> Sequence[_Panes]:
        """What it has of each part and child; for tests."""
        return self._parts

    @property
    def inputs(self) -> Mapping[Log, Form]:
        """The site's logs of merged panes."""
        return dict.fromkeys(self._at, "merged")

    @property
    def listens_to(self) -> Sequence[str]:
        """The other copies."""
        return [*self.config.others]

    # Start.

    def start(self) -> Procedure[Sequence[Effect]]:
        """Begin at the beginning of the site's logs: what the centre has is dropped there."""
        beginnings = yield Beginnings(tuple(self._at))
        config = self.config
        for log, (part, child) in self._places.items():
            at, number = beginnings[log], config.children[child]
            panes = Uplink(number, config.replicas, at, config.lists_us)
            place = place_of(part, child)
            self._parts.append(_Panes(log, (log[0], number), place, panes, at, at))
        return []

    @property
    def live_offsets(self) -> Mapping[Log, int]:
        """Offsets at which the live consumer starts."""
        return {part.log: part.offset for part in self._parts}

    def _ask(self) -> Procedure[None]:
        """Ask the centre for its definition of the query, and for the last pane that it has."""
        centre, config, pause_us = self._centre, self.config, ASK_AGAIN_US
        try:
            found = yield AtCentre(FindDefinition(config.query, CENTRE_TIMEOUT_US))
            if why := config.why_other(found):
                self._note_problem(why)
                centre.other_us = min(2 * centre.other_us or ASK_AGAIN_US, OTHER_US_MAX)
                pause_us = centre.other_us
                return
            ends: dict[int, int] = {}
            for log, number in self._centre_logs.items():
                records = yield AtCentre(ReadMerged(log, 1, CENTRE_TIMEOUT_US))
                ends[number] = max(map(complete_to_of, records), default=NEVER)
        except SlackwaterError as error:
            self._note_problem(str(error))
            return
        finally:
            centre.asking, centre.ask_at = False, self._now + pause_us
        for number, end in ends.items():
            self._parts[number].panes.centre_has(end)
            self._parts[number].moved_at = self._now
        centre.answered, centre.problem = True, ""
        self._queued.append(LogLine(f"{self.fragment}: the centre has answered"))

    def _note_problem(self, why: str) -> None:
        if why != self._centre.problem:
            self._centre.problem = why
            self._queued.append(LogLine(f"{self.fragment}: {why}", is_warning=True))

    # Input.

    def take(self, event: SessionEvent) -> int | None:
        """Take an event; see ``Session``. A pane that is complete is sent at once."""
        match event:
            case Received(log, offset, record):
                part = self._parts[self._at[log]]
                is_next = part.attached
                part.position = offset + 1
                if is_next:
                    self._offer(part, offset, record)
                return 0
            case Replayed(_, log, offset, record):
                part = self._parts[self._at[log]]
                if not part.attached and offset >= part.offset:
                    self._offer(part, offset, record)
            case LiveAt(log, offset):
                self._parts[self._at[log]].position = offset
            case PassedBy(log, offset):
                self._parts[self._at[log]].position = offset + 1
            case PositionGone(_, log, beginning):
                part = self._parts[self._at[log]]
                part.offset = max(part.offset, beginning)
            case RecordDelivered(log, _):
                self._parts[self._centre_logs[log]].panes.acknowledged()
            case HeartbeatReceived(beat, received_at):
                self._note_copy(beat, received_at)
            case (
                HeartbeatReturned()
                | ReplayedTo()
                | EndsFetched()
                | PositionsFetched()
                | CommitSucceeded()
                | CommitFailed()
                | IncarnationClaimed()
                | HoleReported()
                | ResignRequested()
                | EarlierEnded()
            ):
                pass
            case _:
                assert_never(event)
        return None

    def _offer(self, part: _Panes, offset: int, record: Record) -> None:
        merged = record if isinstance(record, MergedRecord) else None
        part.panes.take(offset, merged)
        part.offset = offset + 1

    def _note_copy(self, beat: Heartbeat, received_at: int) -> None:
        """Take what another copy reports: the centre has it, whoever has sent it."""
        copy = self.config.others.get(beat.process)
        if copy is None:
            return
        is_linked = beat.ready and not beat.is_dead and beat.detail.get(LINKED, 0) > 0
        self._centre.others[copy] = OtherCopy(received_at, is_linked)
        for part in self._parts:
            part.panes.centre_has(beat.detail.get(f"{HAS_TO}{part.place}", NEVER))

    def _reads(self, part: _Panes) -> bool:
        return self._centre.answered and part.panes.has_room

    def needs(self, log: Log, _offset: int) -> bool:
        """Return whether the record is read now, not later by a catch-up reader."""
        part = self._parts[self._at[log]]
        return part.attached and self._reads(part)

    def wanted(self) -> Mapping[tuple[LineName, Log], int]:
        """Return the start offsets of the catch-up reader."""
        return {
            (LINE, part.log): part.offset
            for part in self._parts
            if not part.attached and self._reads(part)
        }

    # Output.

    def step(self, now: int) -> Sequence[Effect]:
        """Send what is complete, as far as the link takes it; ask the centre until it answers."""
        self._now, centre = now, self._centre
        if not centre.answered:
            if not centre.asking and now >= centre.ask_at:
                centre.asking = True
                self._queued.append(Perform(self._ask()))
        else:
            panes_max = self._panes_max(now)
            for part in self._parts:
                if not part.panes.unsent or part.panes.has_to != part.has_to_then:
                    part.moved_at, part.has_to_then = now, part.panes.has_to
                self._queued += [Append(part.at_centre, of) for of in part.panes.write(panes_max)]
        effects, self._queued = self._queued, []
        return effects

    def _panes_max(self, now: int) -> int:
        arrived = sum(part.panes.has_to for part in self._parts)
        has_unsent = any(part.panes.unsent for part in self._parts)
        return self._duty.panes_max(self._centre.others, arrived, now, has_unsent=has_unsent)

    @property
    def busy(self) -> bool:
        """Whether more work is due immediately."""
        return bool(self._queued)

    @property
    def wake_at(self) -> int | None:
        """Time of the next look at the centre, or at the other copies."""
        return self._now + ASK_AGAIN_US // 4

    @property
    def is_linked(self) -> bool:
        """Whether the centre has answered, and takes what is sent."""
        stands_us = self.config.stands_us
        return self._centre.answered and all(
            self._now - part.moved_at < stands_us for part in self._parts
        )

    @property
    def state(self) -> str:
        """``UP_FAILURE`` while the link is cut, or a pane is missing at the site."""
        has_hole = any(part.panes.hole is not None for part in self._parts)
        is_well = self.is_linked and not has_hole
        state = LineState.STABLE if is_well else LineState.UP_FAILURE
        return str(state.value)

    def report(self) -> Report:
        """Report progress and counters; without the link, what the centre has is not known."""
        config, detail = self.config, {LINKED: int(self.is_linked)}
        for part in self._parts:
            if part.panes.has_to > NEVER:
                detail[f"{HAS_TO}{part.place}"] = part.panes.has_to
            if self._centre.answered:
                detail[f"{SENT}{part.place}"] = part.panes.kept_from
        detail["panes"] = sum(part.panes.sent for part in self._parts)
        detail["unsent"] = sum(part.panes.unsent for part in self._parts)
        return Report(
            ready=bool(self._parts),
            states={config.topics.merged(config.query, 0): self.state},
            detail=detail,
        )


def complete_to_of(record: MergedRecord) -> int:
    """Return up to where the centre has all if this is its last record: a pane may lack pieces."""
    is_complete = record.pane.piece + 1 >= record.pane.ref.pieces
    return record.end if is_complete else record.start
