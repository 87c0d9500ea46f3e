"""The messages between members, and the effects that the cores return, as values.

Messages of the group core: ``GroupHeartbeat``, ``ViewProposal``, ``GroupData``, ``DataRequest``.
A ``GroupData`` carries one ``Payload`` of the endpoint: ``OpMsg``, ``LtMsg`` or ``StMsg``, the
three kinds of AppMsg in Figure 4 of the paper. Operations, responses and object states are opaque;
a codec turns them into bytes.

Effects are carried out in the order in which they are returned. ``PersistMembership`` and
``PersistState`` must be durable before any effect that follows is carried out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from slackwater.protocols.iads.topology import Process, ReachReport


class View(NamedTuple):
    """A set of members that these have agreed on; a member's views have rising numbers."""

    number: int
    members: frozenset[Process]

    @property
    def names(self) -> frozenset[str]:
        """The members without their incarnations: the paper's v.set."""
        return frozenset(process.name for process in self.members)


class Stamp(NamedTuple):
    """Identity and order of an operation: view number, logical time in it, sender."""

    view_number: int
    timestamp: int
    sender: str


@dataclass(frozen=True, slots=True)
class OpMsg:
    """An operation of a client, with the sender's logical time."""

    operation: Any
    ts: int


@dataclass(frozen=True, slots=True)
class LtMsg:
    """The sender's logical time."""

    ts: int


@dataclass(frozen=True, slots=True)
class StMsg:
    """The object's state, on behalf of the synchronised set ``members``."""

    members: frozenset[str]
    state: Any


Payload = OpMsg | LtMsg | StMsg


@dataclass(frozen=True, slots=True)
class GroupHeartbeat:
    """Sent every 100 ms to every peer: the newest reports, and counts of messages in the view."""

    reports: Mapping[Process, ReachReport]
    view: View
    received: Mapping[Process, int]


@dataclass(frozen=True, slots=True)
class ViewProposal:
    """The sender agrees to ``group`` as the next view, and sends nothing more in ``view``.

    ``number`` is the number of the sender's last view; ``received`` counts, per member of ``view``,
    the messages that the sender has received without a gap. A sender uses each ``round`` once.
    """

    round: int
    group: frozenset[Process]
    number: int
    view: View
    received: Mapping[Process, int]


@dataclass(frozen=True, slots=True)
class GroupData:
    """Message ``n`` (from 1 on) of ``origin`` in ``view``; another member may forward it."""

    view: View
    origin: Process
    n: int
    payload: Payload


@dataclass(frozen=True, slots=True)
class DataRequest:
    """Requests the messages of ``view`` after the counts ``received``, up to ``wanted``."""

    view: View
    received: Mapping[Process, int]
    wanted: Mapping[Process, int]


GroupMessage = GroupHeartbeat | ViewProposal | GroupData | DataRequest


class SavedMembership(NamedTuple):
    """The state that a restart needs: the last view number and the incarnation."""

    view_number: int = 0
    incarnation: int = 0


@dataclass(frozen=True, slots=True)
class PersistMembership:
    """Persist ``saved``; it must be durable before the effects that follow."""

    saved: SavedMembership


@dataclass(frozen=True, slots=True)
class TransmitMessage:
    """Send ``message`` to the peer named ``to``; it may be lost."""

    to: str
    message: GroupMessage


@dataclass(frozen=True, slots=True)
class BlockSending:
    """gcs.block: the endpoint must answer with block_ok."""


@dataclass(frozen=True, slots=True)
class DeliverPayload:
    """gcs.deliver: in the view in which it was sent."""

    sender: str
    payload: Payload


@dataclass(frozen=True, slots=True)
class InstallView:
    """gcs.view: the members of ``transitional`` delivered the same messages in the old view."""

    view: View
    transitional: frozenset[str]


GroupEffect = PersistMembership | TransmitMessage | BlockSending | DeliverPayload | InstallView


@dataclass(frozen=True, slots=True)
class PersistState:
    """Persist the object's state after an operation or a merge, before the effects that follow."""

    state: Any


@dataclass(frozen=True, slots=True)
class RespondToClient:
    """Send the response to the request of this id."""

    request_id: str
    response: Any
    stamp: Stamp


@dataclass(frozen=True, slots=True)
class RefuseRequest:
    """Refuse the request: too many are waiting."""

    request_id: str


@dataclass(frozen=True, slots=True)
class RefreshClient:
    """Report a new membership and state.

    If the refresh follows a merge, ``overridable`` lists the operations of this member's clients
    that were answered since the merge before: the merge may have overridden them.
    ``overridable_truncated`` counts the operations that did not fit the list.
    """

    members: frozenset[str]
    state: Any
    overridable: tuple[Stamp, ...] = ()
    overridable_truncated: int = 0


@dataclass(frozen=True, slots=True)
class SendPayload:
    """gcs.send: to all members of the view."""

    payload: Payload


@dataclass(frozen=True, slots=True)
class ConfirmBlock:
    """gcs.block_ok: nothing more is sent in this view."""


ClientEffect = PersistState | RespondToClient | RefuseRequest | RefreshClient
EndpointEffect = SendPayload | ConfirmBlock | ClientEffect
MemberEffect = PersistMembership | TransmitMessage | ClientEffect
