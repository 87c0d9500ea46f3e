"""The nodes that are connected to a controller: they report, and receive the record.

A client that sends heartbeats is a node. As long as the connection lasts, the controller sends it
the state after each change, at most once in ``GATHER_S``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from slackwater.control.control_object import MoveFragment
from slackwater.control.control_state import ControlState
from slackwater.control.placing import SUSPICION, Placing, Specs, Suspicion
from slackwater.controller.links import (
    CONNECTED_ALREADY,
    FrameLink,
    LinkError,
    NodeBeat,
    NodeReport,
    StateFrame,
)

_log = logging.getLogger(__name__)

GATHER_S: Final = 0.02
PLAN_S_MIN: Final = 0.1
"""Pause between two plans, after which the requested moves are in the record."""


class ConnectedNodes:
    """Nodes of one controller; for its event loop.

    Args:
        name: the controller's name.
        specs_of: returns what is to run according to a state of the record.
        state: returns the present state of the replicated record.
        frame: returns a frame with this state.
        request: requests a move.
        suspicion: when a node is suspected.
        planned: called after each plan, so after each change of the record or of a heartbeat.
    """

    def __init__(
        self,
        name: str,
        specs_of: Specs,
        *,
        suspicion: Suspicion = SUSPICION,
        state: Callable[[], ControlState],
        frame: Callable[[], StateFrame],
        request: Callable[[MoveFragment], None],
        planned: Callable[[], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._placing = Placing(name, specs_of, self._now(), suspicion)
        self._state, self._frame = state, frame
        self._request, self._planned = request, planned
        self._links: dict[str, FrameLink] = {}
        self._sending: asyncio.TimerHandle | None = None
        self._reported: dict[str, NodeBeat] = {}
        self._refused = ""
        self._refusal = ""
        self._wake = asyncio.Event()

    def report(self) -> NodeReport:
        """Standings of nodes, and their reports, at this controller."""
        reports = self._placing.reports(self._now())
        return NodeReport(
            tuple(sorted((name, of.value) for name, of in reports.standings.items())),
            tuple(sorted(reports.ready)),
            tuple(sorted(reports.fenced)),
            tuple((u.query, u.fragment, u.reason) for u in self._placing.unplaced),
            tuple(sorted((n, b.problem) for n, b in self._reported.items() if b.problem)),
            self._refusal,
            tuple(
                sorted(
                    (n, b.clock_offset_us, b.clock_error_us)
                    for n, b in self._reported.items()
                    if b.clock_error_us >= 0
                )
            ),
        )

    def beat(self, link: FrameLink, beat: NodeBeat) -> None:
        """Handle a node's heartbeat.

        Raises:
            LinkError: a node of this name is connected already.
        """
        other = self._links.get(beat.node)
        if other is not link:
            if other is not None and self._placing.is_connected(beat.node, self._now()):
                raise LinkError(f"node {beat.node} {CONNECTED_ALREADY}: give this one another name")
            self._links[beat.node] = link
            link.send(self._frame())
        numbers = beat.ended, beat.answering
        self._placing.heartbeat(beat.node, beat.ready, beat.fenced, self._now(), *numbers)
        last = self._reported.get(beat.node)
        self._reported[beat.node] = beat
        if other is not link or last is None or _without_clock(last) != _without_clock(beat):
            self._wake.set()

    def may_forget(self, state: ControlState) -> bool:
        """Whether nodes have carried out all deletions of a state; False after an error."""
        try:
            return self._placing.may_forget(state)
        except Exception:  # noqa: BLE001 -- the plan of this state fails too, and logs the error
            return False

    def closed(self, link: FrameLink) -> None:
        """Handle the end of a connection."""
        for node, of in list(self._links.items()):
            if of is link:
                del self._links[node]
                self._reported.pop(node, None)
                self._placing.closed(node, self._now())
                self._wake.set()

    def refused(self, reason: str) -> None:
        """Handle the refusal of a requested move.

        A move that was made meanwhile, by another controller or for the plan before, is no problem:
        the refusal is reported only if the next plan moves something again.
        """
        if reason not in (self._refused, self._refusal):
            _log.info("a move is refused: %s", reason)
            self._wake.set()
        self._refused = reason

    def changed(self) -> None:
        """Handle a change of the record."""
        self._refused = self._refusal = ""
        self._wake.set()
        if self._sending is None and self._links:
            self._sending = self._loop.call_later(GATHER_S, self._send)

    def view(self, number: int, members: frozenset[str]) -> None:
        """Handle a new view of the controllers."""
        self._placing.view(number, members, self._now())
        self.changed()

    async def run(self) -> None:
        """Plan when something has changed or is due, until cancelled."""
        while True:
            now = self._now()
            self._wake.clear()
            moves = self._plan(now)
            for move in moves:
                self._request(move)
            if not moves:
                self._even_out(now)
            self._planned()
            await asyncio.sleep(PLAN_S_MIN)
            due = self._placing.next_deadline(now)
            with suppress(TimeoutError):
                async with asyncio.timeout(
                    None if due is None else max(0, due - self._now()) / 1e6
                ):
                    await self._wake.wait()

    def _plan(self, now: int) -> tuple[MoveFragment, ...]:
        """The next moves; none after an error, which must not end the controller."""
        try:
            moves = self._placing.moves(self._state(), now)
        except Exception as error:  # noqa: BLE001 -- it is logged, and tried again
            if repr(error) != self._refusal:
                _log.exception("nothing can be placed")
            self._refusal = repr(error)
            return ()
        self._refusal = self._refused if moves else ""
        return moves

    def _even_out(self, now: int) -> None:
        """Ask a copy to resign, if another node is to answer in its place."""
        try:
            found = self._placing.resignation(self._state(), now)
        except Exception:  # noqa: BLE001 -- ``_plan`` fails for this record, too, and logs it
            return
        if found is not None and (link := self._links.get(found[0])) is not None:
            _log.info("a copy on node %s is to resign, so that answers are evened out", found[0])
            link.send(replace(self._frame(), resign=found[1:]))

    def _send(self) -> None:
        self._sending = None
        frame = self._frame()
        for link in self._links.values():
            link.send(frame)

    def _now(self) -> int:
        return int(self._loop.time() * 1e6)


def _without_clock(beat: NodeBeat) -> NodeBeat:
    """The heartbeat without the offset of the clock, on which no placement depends."""
    return replace(beat, clock_offset_us=0, clock_error_us=-1)
