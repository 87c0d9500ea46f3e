"""The operators of a run: their requests, which they repeat until a controller responds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from tests.simulator.clock import MS, SECOND
from tests.simulator.joined.definition import changed, definition_of, shared

from slackwater.control.admission import why_refused_on_nodes
from slackwater.control.control_object import (
    ApplyQuery,
    ControlResponse,
    DeleteQuery,
    DrainNode,
    JoinNode,
    MoveFragment,
    Operation,
    PauseQuery,
    ResumeQuery,
)
from slackwater.control.control_state import ControlState
from slackwater.control.recorded import key_in
from slackwater.model.errors import UsageError
from slackwater.model.names import base_of, generation_of, latest_generation

if TYPE_CHECKING:
    from tests.simulator.joined.world import JoinedWorld

FIRST_REQUEST_US = 200 * MS
RETRY_US = SECOND
"""Pause of a client before it requests again."""
MERGED_US = 3 * SECOND
"""Time until controllers that reach each other have one view."""

Make = Callable[[ControlState], Sequence[Operation]]
"""The operations that a client requests of a controller with this state; none if all is done."""
ADDED: Final = "v"


def _nothing(_: Operation) -> None:
    """Nothing follows a response."""


class Clients:
    """All operators."""

    def __init__(self, world: JoinedWorld) -> None:
        self._world = world
        self._later: list[tuple[int, Make]] = []
        """Operations that undo others, and when."""
        self._undone: list[Make] = []
        """All of them."""
        self._is_healed = False

    # The operations of a plan.

    def apply_first(self) -> None:
        """Apply q at the start."""
        config = self._world.config
        text = definition_of(config, config.start_time_us)
        if config.added is not None and config.added.joins:
            _, text = shared(config, config.start_time_us, ControlState())
        self._insist(lambda _: [ApplyQuery(config.name, text)])

    def apply_added(self) -> None:
        """Apply the other query; it starts with the next window, as in the command line."""
        world = self._world
        query = world.queries[ADDED]
        grid = query.config.grid
        start_us = grid.window_end(grid.last_window_holding(world.scheduler.now))
        assert world.config.added is not None
        joins, requested = world.config.added.joins, list[ApplyQuery]()
        own = ApplyQuery(ADDED, definition_of(query.config, start_us))
        declared = query.config
        world.begins_at(query, start_us)
        for name in query.config.root_names:
            world.begin_outage(name, "not started")
        if not joins:
            for name in query.config.orderer_names:
                world.begin_outage(name, "not started")

        def make(state: ControlState) -> Sequence[Operation]:
            if not joins:
                return [own]
            if not requested or why_refused_on_nodes(requested[-1], state):
                spec, text = shared(declared, start_us, state)
                requested.append(ApplyQuery(ADDED, text))
                world.reads_children(query, spec)
                for name in query.config.orderer_names if spec.has_children else ():
                    world.begin_outage(name, "not started")
            return requested[-1:]

        self._insist(make, lambda _: world.history.accepted.append(ADDED), until_accepted=True)

    def delete_added(self) -> None:
        """Delete the other query."""
        history = self._world.history
        assert history.reader is not None
        if history.reader.deleted_at < 0:
            history.reader.deleted_at = self._world.scheduler.now

        def make(state: ControlState) -> Sequence[Operation]:
            return () if ADDED in history.deleted else (DeleteQuery(ADDED),)

        self._insist(make, lambda _: history.deleted.append(ADDED), until_accepted=True)

    def delete_first(self) -> None:
        """Delete q, once the other query has been accepted; that may read q's children."""
        history, world = self._world.history, self._world
        if self._is_healed:
            return
        if ADDED not in history.accepted:
            world.scheduler.after(RETRY_US, self.delete_first)
            return
        if history.deleted_at < 0:
            history.deleted_at = world.scheduler.now

        def make(state: ControlState) -> Sequence[Operation]:
            return () if "q" in history.deleted else (DeleteQuery("q"),)

        self._insist(make, lambda _: history.deleted.append("q"), until_accepted=True)

    def give_up_added(self) -> None:
        """Delete the other query, which cannot be registered, when all controllers have merged."""
        world, reader = self._world, self._world.history.reader
        assert reader is not None
        reader.deleted_at = reader.config.start_time_us
        is_split = bool(world.cut_links)
        world.scheduler.after(MERGED_US, self.give_up_added if is_split else self.delete_added)

    def change(self) -> None:
        """Apply q's next generation (rule-29)."""
        world, names = self._world, set[str]()

        def make(state: ControlState) -> Sequence[Operation]:
            live = state.live_queries()
            if there := names & {*state.queries}:
                # The response has been lost.
                world.history.accepted.append(max(there, key=generation_of))
                return ()
            if self._is_healed or latest_generation("q", live) is None:
                return ()
            name, text = changed(world.config, state)
            names.add(name)
            return (ApplyQuery(name, text),)

        def accepted(operation: Operation) -> None:
            # The halves of a split network may have been asked for different generations.
            assert isinstance(operation, ApplyQuery)
            world.history.accepted.append(operation.query)

        self._insist(make, accepted, until_accepted=True)

    def cancel_change(self) -> None:
        """Delete q's next generation while the present one is there."""

        def make(state: ControlState) -> Sequence[Operation]:
            *earlier, last = _generations(state) or [""]
            return [DeleteQuery(last, beside=earlier[-1])] if earlier else []

        self._insist(make)

    def pause_query(self, for_us: int) -> None:
        """Pause q: all its generations, the last one first."""

        def pause(state: ControlState) -> Sequence[Operation]:
            return [PauseQuery(name) for name in reversed(_generations(state))]

        def resume(state: ControlState) -> Sequence[Operation]:
            return [ResumeQuery(name) for name in _generations(state)]

        self._insist_for(pause, for_us, resume)

    def drain(self, node: str, for_us: int) -> None:
        """Drain a node; it joins again later."""
        join = JoinNode(node, self._world.nodes[node].room)
        self._insist_for(lambda _: [DrainNode(node)], for_us, lambda _: [join])

    def move(self, fragment: str, node: str) -> None:
        """Move a fragment to a node; the request is refused if there is none of this name."""

        def make(state: ControlState) -> Sequence[Operation]:
            try:
                return [MoveFragment(*key_in(state, fragment), node)]
            except UsageError:
                return ()

        self._insist(make)

    # How they are requested.

    def heal(self) -> None:
        """Undo what has been done for a time, now and again when all controllers have merged.

        A merge may have overridden the first time.
        """
        self._is_healed = True
        for undo in self._undone:
            self._world.scheduler.after(MERGED_US, partial(self._insist, undo))

    def _insist(
        self,
        make: Make,
        then: Callable[[Operation], None] = _nothing,
        *,
        until_accepted: bool = False,
    ) -> None:
        """Request operations at any controller until one responds to the last; ``then`` follows.

        With ``until_accepted`` a refusal is no response: another client's operation comes first.
        """
        world, done = self._world, list[bool]()

        def responded(operation: Operation, response: ControlResponse) -> None:
            if not done and not (response.refusal and until_accepted):
                done.append(True)
                then(operation)

        def ask() -> None:
            if done:
                return
            working = [name for name in world.machines.controllers if world.control.works(name)]
            if working:
                name = working[int(world.scheduler.rng.random() * len(working))]
                operations = make(world.control.state(name))
                if not operations:
                    return
                *before, last = operations
                for operation in before:
                    world.control.ask(name, operation)
                world.control.ask(name, last, partial(responded, last))
            world.scheduler.after(RETRY_US, ask)

        world.scheduler.after(FIRST_REQUEST_US, ask)

    def _insist_for(self, make: Make, for_us: int, undo: Make) -> None:
        """Request an operation, and undo it later, at the latest after the end of all faults."""
        world = self._world
        self._undone.append(undo)
        self._insist(make, lambda _: self._later.append((world.scheduler.now + for_us, undo)))

        def look() -> None:
            now = world.scheduler.now
            due = [each for each in self._later if each[0] <= now or self._is_healed]
            for each in due:
                self._later.remove(each)
                self._insist(each[1])
            world.scheduler.after(100 * MS, look)

        look()


def _generations(state: ControlState) -> list[str]:
    """The generations of q that are not deleted."""
    return sorted((n for n in state.live_queries() if base_of(n) == "q"), key=generation_of)
