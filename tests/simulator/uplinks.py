"""A copy of an uplink, and the link: the product's session between two places of one broker.

With ``sites`` each child of the query is at a site, with ``children_a_site`` of them at each: its
source logs, ordered logs, deltas and merged panes are logs of the site, and the root reads logs at
the centre, whose names begin with ``centre.``. Of these only the merged panes have records, which
uplinks write. The link carries records in order, each after ``LINK_US``; while it is cut they wait,
and requests fail.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.simulator.log_reader import LogReader
from tests.simulator.procedures import perform

from slackwater.model.errors import SlackwaterError
from slackwater.model.kinds import UPLINKS
from slackwater.model.merged import MergedRecord
from slackwater.model.names import Names, UplinkName
from slackwater.model.records import Heartbeat
from slackwater.protocols.fargo.key_lists import lists_us
from slackwater.sessions.effects import Append, Effect, Perform
from slackwater.sessions.events import (
    HeartbeatReceived,
    RecordDelivered,
)
from slackwater.sessions.requests import AtCentre, FindDefinition, ReadMerged
from slackwater.sessions.requests import Log as At
from slackwater.sessions.uplink import UplinkConfig, UplinkSession

if TYPE_CHECKING:
    from tests.simulator.queries import SimQuery

CENTRE = Names("centre.")
LINK_US = 20_000
LISTS_SHARE = 64
"""Uplinks send a list of keys again after four panes: a run has few."""


class SimUplink(LogReader):
    """One copy of the uplink of ``site``."""

    session: UplinkSession

    def __init__(self, query: SimQuery, site: int, copy: int) -> None:
        super().__init__(query.world, UplinkName(query.name, site, copy).process)
        self.query, self.site, self.copy = query, site, copy
        children = query.config.site_children[site]
        config, window = query.config, query.config.query.window
        assert window is not None, "only windows are merged"
        self.session = UplinkSession(
            UplinkConfig(
                query=query.name,
                copy=copy,
                copies=UPLINKS,
                children=children,
                parts=config.parts,
                replicas=config.replicas,
                why_other=lambda _: "",
                lists_us=lists_us(window) // LISTS_SHARE,
            )
        )
        self.logs = {
            (topic, child): self.world.log_at((topic, children[child]))
            for topic, child in self.session.inputs
        }
        self._on_link: deque[tuple[At, MergedRecord]] = deque()

    def start(self) -> None:
        perform(self, self.session.start(), self.begin)

    def heartbeat(self) -> Heartbeat:
        """Return what it reports."""
        report = self.session.report()
        return Heartbeat(
            self.session.fragment, 0, 0, self.now, -1,
            ready=report.ready, states=report.states, detail=report.detail,
        )  # fmt: skip

    # The loop.

    def _read_heartbeats(self) -> None:
        """Read the other copy's report; its name in the session is that at its site."""
        other = self.query.uplinks.get((self.site, 1 - self.copy))
        if other is None or not other.speaks or not other.has_begun or not self.has_broker:
            return
        self.session.take(HeartbeatReceived(other.heartbeat(), self.now))

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Append(at, MergedRecord() as record):
                    self._on_link.append((at, record))
                    self.later(LINK_US, self._arrive)
                case Perform(procedure):
                    self.later(LINK_US, partial(self._ask, procedure))

    # The link.

    def kill(self) -> None:
        """Some of what is on the link arrives, and nobody is told."""
        arriving = 0 if self.world.is_link_cut else len(self._on_link)
        for _ in range(self.world.scheduler.between(0, arriving + 1)):
            (topic, child), record = self._on_link.popleft()
            self.world.log_at((f"{CENTRE.prefix}{topic}", child)).append(record)
        super().kill()

    def link_heals(self) -> None:
        """Carry what waits."""
        for _ in self._on_link:
            self.later(LINK_US, self._arrive)
        self.turn_in(0)

    def _arrive(self) -> None:
        """The next record is in the centre's log; its acknowledgement may be lost with a death."""
        if self.world.is_link_cut or not self._on_link:
            return
        (topic, child), record = self._on_link.popleft()
        self.world.log_at((f"{CENTRE.prefix}{topic}", child)).append(record)
        self.later(LINK_US, partial(self._acknowledge, (topic, child)))

    def _acknowledge(self, at: At) -> None:
        if self.world.is_link_cut:
            self.later(LINK_US, partial(self._acknowledge, at))
            return
        self.session.take(RecordDelivered(at, 0))
        self.turn_in(0)

    def _ask(self, procedure: Any) -> None:
        """Answer the centre's part of a procedure; while the link is cut it fails."""
        try:
            request = next(procedure)
            while True:
                assert isinstance(request, AtCentre)
                if self.world.is_link_cut:
                    request = procedure.throw(SlackwaterError("the link is cut"))
                    continue
                match request.request:
                    case FindDefinition():
                        request = procedure.send(None)
                    case ReadMerged((topic, child), most):
                        log = self.world.log_at((f"{CENTRE.prefix}{topic}", child))
                        last = log.read(max(log.beginning, log.end - most), most)
                        request = procedure.send([of for _, of in last])
        except StopIteration:
            self.turn_in(0)
