"""Records all input of a session while its host runs it, and gives it to another session.

The input is pickled where it arrives, so that nothing of the first run is left in it. Queries of a
host are not recorded: a session that depends on them returns other effects.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import GeneratorType
from typing import Any, Final, TypeAlias, cast

from slackwater.codec.ordered_records import encode_ordered
from slackwater.codec.results import ResultHead
from slackwater.codec.state_records import encode_state
from slackwater.host.results import ResultsWriter
from slackwater.model.errors import SlackwaterError
from slackwater.model.records import OrderedRecord
from slackwater.protocols.dpc.soutput.config import Commit
from slackwater.sessions.effects import Append, Effect, Perform, WriteState
from slackwater.sessions.events import SessionEvent
from slackwater.sessions.requests import (
    BeginIncarnation,
    ClaimPart,
    Ordered,
    Procedure,
    Request,
    StoreState,
)
from slackwater.sessions.session import Session

START: Final = 0
"""The number of the start; the procedures of effects have the numbers after it, in order."""


@dataclass(frozen=True, slots=True)
class Taken:
    """An event, passed to ``take``."""

    event: SessionEvent


@dataclass(frozen=True, slots=True)
class Stepped:
    """A turn at ``now``, us."""

    now: int


@dataclass(frozen=True, slots=True)
class Resumed:
    """A procedure is begun, or gets the answer to its request or the error of it."""

    procedure: int
    answer: Any = None
    error: SlackwaterError | None = None


@dataclass(frozen=True, slots=True)
class StartMade:
    """The host calls ``BeginIncarnation.make_start`` of the start."""

    log: Sequence[Ordered]


Input: TypeAlias = Taken | Stepped | Resumed | StartMade


class Recorder:
    """Records the input of a session, and all that the session returns, as bytes.

    Args:
        session: a session that has not been started; its host calls it as before.
        fields, aggregate: those of the query's results.
    """

    def __init__(self, session: Any, fields: tuple[str, ...], aggregate: tuple[str, ...]) -> None:
        self.fragment: str = session.fragment
        self.inputs: list[bytes] = []
        self.outputs = Outputs(fields, aggregate)
        self._procedures = START
        self._take, self._step, self._start = session.take, session.step, session.start
        session.take, session.step, session.start = self.take, self.step, self.start

    def _note(self, given: Input) -> None:
        self.inputs.append(pickle.dumps(given))

    @property
    def events(self) -> list[SessionEvent]:
        """The recorded events."""
        given = (pickle.loads(each) for each in self.inputs)
        return [each.event for each in given if isinstance(each, Taken)]

    def take(self, event: SessionEvent) -> int | None:
        """See ``Session``."""
        self._note(Taken(event))
        may_wait_us = self._take(event)
        self.outputs.add(may_wait_us)
        return may_wait_us  # type: ignore[no-any-return]

    def step(self, now: int) -> Sequence[Effect]:
        """See ``Session``."""
        self._note(Stepped(now))
        effects = self._step(now)
        self.outputs.add_effects(effects)
        return [self._recorded(effect) for effect in effects]

    def start(self) -> Procedure[Sequence[Effect]]:
        """See ``Session``."""
        effects = yield from self._run(START, self._start())
        self.outputs.add_effects(effects)
        return [self._recorded(effect) for effect in effects]

    def _recorded(self, effect: Effect) -> Effect:
        if not isinstance(effect, Perform):
            return effect
        self._procedures += 1
        return Perform(self._run(self._procedures, effect.procedure))

    def _run(self, number: int, procedure: Procedure[Any]) -> Procedure[Any]:
        given = Resumed(number)
        while True:
            self._note(given)
            try:
                request = resumed(procedure, given)
            except StopIteration as ended:
                return ended.value
            self.outputs.add_request(request)
            if isinstance(request, BeginIncarnation):
                request = replace(request, make_start=self._noting(request.make_start))
            try:
                given = Resumed(number, (yield request))
            except SlackwaterError as error:
                given = Resumed(number, error=error)

    def _noting(
        self, make_start: Callable[[Sequence[Ordered]], OrderedRecord]
    ) -> Callable[[Sequence[Ordered]], OrderedRecord]:
        def make(log: Sequence[Ordered]) -> OrderedRecord:
            self._note(StartMade(log))
            return make_start(log)

        return make


class Outputs:
    """All that a session returns, encoded at once: what it returns may be filled in later."""

    def __init__(self, fields: tuple[str, ...], aggregate: tuple[str, ...]) -> None:
        self._writer = ResultsWriter(ResultHead("q", 0), fields, aggregate)
        self.found: list[object] = []

    def add(self, value: object) -> None:
        """Add a value as it is."""
        self.found.append(value)

    def add_effects(self, effects: Sequence[Effect]) -> None:
        """Add what a turn, or the start, returns."""
        self.found.append([self._encoded(effect) for effect in effects])

    def add_request(self, request: Request) -> None:
        """Add a request of a procedure."""
        match request:
            case StoreState(_, state) | ClaimPart(state):
                self.found.append((type(request), encode_state(state)))
            case _:
                self.found.append(type(request))

    def _encoded(self, effect: Effect) -> object:
        match effect:
            case Append(log, record):
                assert isinstance(record, OrderedRecord), "mergers are not recorded"
                return log, encode_ordered(record)
            case WriteState(query, state, part):
                return query, part, encode_state(state)
            case Commit(_, state):
                return [*self._writer.lines(effect, 0)], encode_state(state)
            case Perform(procedure):
                return cast("GeneratorType[Any, Any, Any]", procedure).__qualname__
        return effect


def resumed(procedure: Procedure[Any], given: Resumed) -> Request:
    """Resume a procedure; returns its next request."""
    if given.error is not None:
        return procedure.throw(given.error)
    return procedure.send(given.answer)


def replayed(recorded: Recorder, session: Session, outputs: Outputs) -> list[object]:
    """Give all recorded input to another session, and return what it returns."""
    procedures: list[Procedure[Any]] = [session.start()]
    request: Request | None = None

    def returned(effects: Sequence[Effect]) -> None:
        outputs.add_effects(effects)
        procedures.extend(e.procedure for e in effects if isinstance(e, Perform))

    for each in recorded.inputs:
        match pickle.loads(each):
            case Taken(event):
                outputs.add(session.take(event))
            case Stepped(now):
                returned(session.step(now))
            case StartMade(log):
                assert isinstance(request, BeginIncarnation)
                request.make_start(log)
            case Resumed(number) as given:
                try:
                    request = resumed(procedures[number], given)
                except StopIteration as ended:
                    if number == START:
                        returned(ended.value)
                else:
                    outputs.add_request(request)
    return outputs.found
