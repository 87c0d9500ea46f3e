"""Group communication: views, virtual synchrony and FIFO delivery without gaps between members.

There is no leader. A member whose group (``topology``) differs from its view blocks its endpoint,
and then sends a *proposal* to the group: a round number, and how many messages of each sender it
holds in its view. It delivers nothing more until the next view. Once a member has a proposal of the
same round from every process of the group, the proposals determine the next view's number (the
greatest number in them + 1), the transitional set T (the members that come from its own view), and
the *cut*, the greatest count that a member of T holds of each sender. All members of T have the
same T and cut. Of those that hold all messages of a sender up to the cut, the one with the lowest
name forwards them to those that lack some. A member installs the view when it has delivered all
messages up to the cut. So all members of T deliver the same messages in the old view, whatever was
lost or crashed (IADS, section I; its references 7 and 8 specify the service).

A member that cannot complete a round begins one with a greater number. Members that have already
installed the view take part in it; they are then no longer in the transitional set.

Messages may be lost, doubled or reordered: heartbeats carry counts, and missing messages are sent
again. A message is kept until all members of the view have it.

Rejected: a coordinator that collects the counts. It would cost one more message delay for each
change, and one more detection if it crashes.

Pure: events and monotonic us come in, effects go out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from slackwater.protocols.iads.detector import HEARTBEAT_PERIOD_US, PhiAccrual
from slackwater.protocols.iads.messages import (
    BlockSending,
    DataRequest,
    DeliverPayload,
    GroupData,
    GroupEffect,
    GroupHeartbeat,
    GroupMessage,
    InstallView,
    Payload,
    PersistMembership,
    SavedMembership,
    TransmitMessage,
    View,
    ViewProposal,
)
from slackwater.protocols.iads.topology import MEMBERS_MAX, Process, ReachReport, group_of

AHEAD_MESSAGES_MAX: Final = 10_000
"""Most messages kept of one sender beyond a gap, and of views that are not installed yet."""
RESEND_MESSAGES_MAX: Final = 256
"""Most messages of one sender that a request or a heartbeat causes to be sent again."""


@dataclass(slots=True)
class _Messages:
    """The messages of one view: per sender those kept, and the number received without a gap."""

    view: View
    held: dict[Process, dict[int, Payload]] = field(init=False)
    received: dict[Process, int] = field(init=False)

    def __post_init__(self) -> None:
        self.held = {process: {} for process in self.view.members}
        self.received = dict.fromkeys(self.view.members, 0)

    def add(self, origin: Process, n: int, payload: Payload) -> None:
        """Keep a message; repetitions, and messages too far ahead, are dropped."""
        count = self.received[origin]
        if not count < n <= count + AHEAD_MESSAGES_MAX:
            return
        self.held[origin].setdefault(n, payload)
        while count + 1 in self.held[origin]:
            count += 1
        self.received[origin] = count

    def after(self, counts: Mapping[Process, int]) -> Iterator[GroupData]:
        """The messages that a member with these counts lacks, as far as they are kept here."""
        for origin in sorted(self.view.members):
            first = counts.get(origin, 0) + 1
            last = min(self.received[origin], first + RESEND_MESSAGES_MAX - 1)
            for n in range(first, last + 1):
                if n in self.held[origin]:
                    yield GroupData(self.view, origin, n, self.held[origin][n])

    def discard(self, origin: Process, upto: int) -> None:
        """Drop the messages up to number ``upto``, which every member of the view has."""
        held = self.held[origin]
        for n in [n for n in held if n <= upto]:
            del held[n]


class Group:
    """The group core of one member. ``saved`` was persisted by its last incarnation.

    Each method returns effects, to be carried out in order. Times are monotonic us.
    """

    def __init__(self, name: str, peers: frozenset[str], saved: SavedMembership) -> None:
        self.me: Final = Process(name, saved.incarnation + 1)
        self._peers = set(peers) - {name}
        self._number = saved.view_number
        self.view = View(0, frozenset({self.me}))
        self._detectors: dict[Process, PhiAccrual] = {}
        self._reports = {self.me: ReachReport(0, frozenset({self.me}))}
        self._peer_beats: dict[Process, GroupHeartbeat] = {}
        self._now = 0
        self._beat_at = 0
        self._round = 0
        self._forwarded_round = 0
        self._changing = False
        self._may_send = False
        self._mine: ViewProposal | None = None
        self._installed_by: ViewProposal | None = None
        self._proposals: dict[Process, ViewProposal] = {}
        self._messages = _Messages(self.view)
        self._delivered: dict[Process, int] = {}
        self._old: _Messages | None = None
        self._future: list[GroupData] = []
        self._effects: list[GroupEffect] = []

    def start(self, now: int) -> list[GroupEffect]:
        """Begin alone: the first view holds this process only."""
        self._install(View(self._number + 1, frozenset({self.me})), frozenset({self.me.name}))
        return self._finish(now)

    def add_peer(self, name: str, now: int) -> list[GroupEffect]:
        """Send heartbeats to this name from now on."""
        if name != self.me.name and len(self._peers) < MEMBERS_MAX - 1:
            self._peers.add(name)
        return self._finish(now)

    def send(self, payload: Payload, now: int) -> list[GroupEffect]:
        """gcs.send: send to all members of the view, and deliver to this one at once."""
        assert self._may_send, "sent while blocked"
        n = self._messages.received[self.me] + 1
        data = GroupData(self.view, self.me, n, payload)
        self._messages.add(self.me, n, payload)
        for process in self._others(self.view.members):
            self._transmit(process, data)
        self._deliver({self.me: n})
        return self._finish(now)

    def block_ok(self, now: int) -> list[GroupEffect]:
        """gcs.block_ok: the endpoint sends nothing more in this view."""
        assert self._changing, "block_ok without block"
        self._may_send = False
        self._propose()
        return self._finish(now)

    def receive(self, sender: Process, message: GroupMessage, now: int) -> list[GroupEffect]:
        """Process a message of another process; one of an older incarnation is dropped."""
        known = max((p.incarnation for p in self._detectors if p.name == sender.name), default=0)
        if sender.name == self.me.name or sender.incarnation < known:
            return self._finish(now)
        self._now = now
        match message:
            case GroupHeartbeat():
                self._on_heartbeat(sender, message)
            case ViewProposal():
                old = self._proposals.get(sender)
                if old is None or message.round > old.round:
                    self._proposals[sender] = message
            case GroupData():
                self._on_data(message)
            case DataRequest():
                for store in (self._messages, self._old):
                    if store is not None and store.view == message.view:
                        for data in store.after(message.received):
                            if data.n <= message.wanted.get(data.origin, 0):
                                self._transmit(sender, data)
        return self._finish(now)

    def tick(self, now: int) -> list[GroupEffect]:
        """Do what is due: send heartbeats, suspect peers, repeat messages that may be lost."""
        self._now = now
        for process in [p for p, d in self._detectors.items() if d.suspect_at() <= now]:
            self._forget(process)
        if now >= self._beat_at:
            self._beat_at = now + HEARTBEAT_PERIOD_US
            self._send_heartbeats()
            self._send_again()
        return self._finish(now)

    def next_deadline(self) -> int:
        """The time at which the shell must call ``tick``, monotonic us."""
        return min([self._beat_at, *(d.suspect_at() for d in self._detectors.values())])

    # Reachability

    def _on_heartbeat(self, sender: Process, beat: GroupHeartbeat) -> None:
        if sender.name not in self._peers:
            if len(self._peers) >= MEMBERS_MAX - 1:
                return
            self._peers.add(sender.name)
        if sender not in self._detectors:
            for process in [p for p in self._detectors if p.name == sender.name]:
                self._forget(process)
            self._detectors[sender] = PhiAccrual(self._now)
            self._report_reach()
        else:
            self._detectors[sender].heartbeat(self._now)
        self._peer_beats[sender] = beat
        for process, report in beat.reports.items():
            known = self._reports.get(process)
            if process.name != self.me.name and (known is None or report.seq > known.seq):
                self._reports[process] = report
        newest = dict(sorted(self._reports))
        self._reports = {p: r for p, r in self._reports.items() if newest[p.name] == p.incarnation}
        if beat.view == self.view:
            self._compare_counts(sender, beat)

    def _compare_counts(self, sender: Process, beat: GroupHeartbeat) -> None:
        for data in self._messages.after(beat.received):
            if data.origin == self.me:
                self._transmit(sender, data)
        beats = [self._peer_beats.get(p) for p in self._others(self.view.members)]
        for origin, count in self._messages.received.items():
            counts = [b.received.get(origin, 0) if b and b.view == self.view else 0 for b in beats]
            kept = min([count, self._delivered.get(origin, 0), *counts])
            self._messages.discard(origin, kept)

    def _forget(self, process: Process) -> None:
        del self._detectors[process]
        self._peer_beats.pop(process, None)
        self._report_reach()

    def _report_reach(self) -> None:
        seq = self._reports[self.me].seq + 1
        self._reports[self.me] = ReachReport(seq, frozenset({self.me, *self._detectors}))
        self._send_heartbeats()

    def _send_heartbeats(self) -> None:
        beat = GroupHeartbeat(dict(self._reports), self.view, dict(self._messages.received))
        for name in sorted(self._peers):
            self._effects.append(TransmitMessage(name, beat))

    # Data

    def _on_data(self, data: GroupData) -> None:
        if data.view == self.view and data.origin in self.view.members:
            self._messages.add(data.origin, data.n, data.payload)
            if self._mine is None:
                self._deliver(self._messages.received)
        elif (
            data.view.number > self.view.number
            and self.me in data.view.members
            and len(self._future) < AHEAD_MESSAGES_MAX
        ):
            self._future.append(data)

    def _deliver(self, upto: Mapping[Process, int]) -> None:
        for origin in sorted(upto):
            for n in range(self._delivered.get(origin, 0) + 1, upto[origin] + 1):
                payload = self._messages.held[origin][n]
                self._effects.append(DeliverPayload(origin.name, payload))
                self._delivered[origin] = n

    # Views

    def _finish(self, now: int) -> list[GroupEffect]:
        self._now = now
        self._change_view()
        effects, self._effects = self._effects, []
        return effects

    def _change_view(self) -> None:
        group = group_of(self.me, self._reports)
        rounds = [p.round for q, p in self._proposals.items() if q in group and p.group == group]
        if self._mine is None:
            if group == self.view.members and max(rounds, default=0) <= self._round:
                return
            if not self._changing:
                self._changing = True
                self._effects.append(BlockSending())
            return  # block_ok sends the proposal
        if group != self._mine.group or max(rounds, default=0) > self._round:
            self._propose()
        else:
            self._try_install()

    def _propose(self) -> None:
        group = group_of(self.me, self._reports)
        rounds = [p.round for q, p in self._proposals.items() if q in group and p.group == group]
        self._round = max([self._round + 1, *rounds])
        received = dict(self._messages.received)
        self._mine = ViewProposal(self._round, group, self._number, self.view, received)
        for process in self._others(group):
            self._transmit(process, self._mine)
        self._try_install()

    def _try_install(self) -> None:
        agreed = self._agreed()
        if agreed is None:
            return
        transitional = {q: p for q, p in agreed.items() if p.view == self.view}
        cut = _cut(transitional.values())
        if self._forwarded_round != self._round:
            self._forwarded_round = self._round
            self._forward(transitional, cut)
        if any(self._messages.received[q] < n for q, n in cut.items()):
            return
        self._deliver(cut)
        number = max(p.number for p in agreed.values()) + 1
        self._install(View(number, frozenset(agreed)), frozenset(q.name for q in transitional))

    def _agreed(self) -> dict[Process, ViewProposal] | None:
        """The proposals of the group, if all are of one round."""
        mine = self._mine
        assert mine is not None
        proposals = {q: self._proposals.get(q) for q in mine.group if q != self.me}
        agreed = {self.me: mine}
        for process, proposal in proposals.items():
            if proposal is None or (proposal.round, proposal.group) != (mine.round, mine.group):
                return None
            agreed[process] = proposal
        return agreed

    def _forward(
        self, transitional: Mapping[Process, ViewProposal], cut: Mapping[Process, int]
    ) -> None:
        """Send the messages that others lack, where this member is the lowest that holds them."""
        for origin, n in cut.items():
            holder = min(q for q, p in transitional.items() if p.received[origin] == n)
            if holder != self.me:
                continue
            for process in self._others(transitional):
                for k in range(transitional[process].received[origin] + 1, n + 1):
                    if k in self._messages.held[origin]:  # else all members have it by now
                        payload = self._messages.held[origin][k]
                        self._transmit(process, GroupData(self.view, origin, k, payload))

    def _install(self, view: View, transitional: frozenset[str]) -> None:
        assert view.number > self._number, "view numbers rise"
        self._number = view.number
        self._effects.append(PersistMembership(SavedMembership(view.number, self.me.incarnation)))
        self._effects.append(InstallView(view, transitional))
        self._old, self._messages, self.view = self._messages, _Messages(view), view
        self._delivered, self._changing, self._may_send = {}, False, True
        self._mine, self._installed_by = None, self._mine
        future, self._future = self._future, []
        for data in future:
            self._on_data(data)
        self._send_heartbeats()

    def _send_again(self) -> None:
        """Repeat the proposal, and request the messages up to the cut: both may have been lost."""
        proposal = self._mine or self._installed_by
        if proposal is None:
            return
        for process in self._others(proposal.group):
            beat = self._peer_beats.get(process)
            if self._mine is not None or (beat is not None and beat.view != self.view):
                self._transmit(process, proposal)
        if self._mine is not None and (agreed := self._agreed()) is not None:
            transitional = {q: p for q, p in agreed.items() if p.view == self.view}
            request = DataRequest(
                self.view, dict(self._messages.received), _cut(transitional.values())
            )
            for process in self._others(transitional):
                self._transmit(process, request)

    def _others(self, processes: Iterable[Process]) -> list[Process]:
        return sorted(process for process in processes if process != self.me)

    def _transmit(self, process: Process, message: GroupMessage) -> None:
        self._effects.append(TransmitMessage(process.name, message))


def _cut(proposals: Iterable[ViewProposal]) -> dict[Process, int]:
    """By sender, the greatest count that a member of the transitional set holds."""
    cut: dict[Process, int] = {}
    for proposal in proposals:
        for origin, n in proposal.received.items():
            cut[origin] = max(cut.get(origin, 0), n)
    return cut
