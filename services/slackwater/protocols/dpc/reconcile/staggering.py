"""Staggered reconciliation: the replicas of one output catch up one at a time (DPC, section 4.4.3).

A replica that must reconcile requests the *catch-up lease*. Another replica grants it, unless it
reconciles itself or must reconcile too and has the lower id (Figure 9). In the paper this keeps one
replica free for new tuples. Here every replica has a line for new tuples (``common/line.py``), so
the lease only saves work: the root takes corrections from the first replica that has them, and the
same work in other replicas can wait until the sources, the broker and the CPU are free. Hence
*correctness never depends on the lease* (trace-30). Each heartbeat renews the lease; without
heartbeats it is void. A replica that receives no heartbeats for the length of a lease proceeds. A
holder without progress releases the lease and *rests*: for a time it does not request it again. If
such a holder does not release it, the others ignore its claim. A single replica needs no lease.

In normal operation the replicas work one after the other as well, for the same reason: each waits a
*lag* behind those with a lower id, as long as one of them works (decision 81).

Rejected: separate request and reply messages. A lost reply needs its own time-out, whereas a lost
heartbeat is repeated after 40 ms.

Pure: reports and times come in, a decision and a status to send come out. Times are us.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

LEASE_US_DEFAULT: Final = 1_000_000
REST_LEASES_MAX: Final = 4
"""Longest rest after leases without progress, in lengths of a lease. The rest grows with each such
lease: with a constant rest, two replicas without progress would alternate and starve a third."""


BEAT_US_MAX: Final = 120_000
"""A peer works if its last heartbeat, at a period of 40 ms, is younger than this."""


class PeerStatus(NamedTuple):
    """A replica's report on the lease, as its heartbeats carry it.

    ``asks`` and ``holds``: whether it requests or has the lease. ``grants``: the replica to which
    it grants the lease, -1 for none. ``progress``: the position of its stable line (us).
    """

    asks: bool = False
    holds: bool = False
    grants: int = -1
    progress: int = 0

    def counters(self) -> dict[str, int]:
        """Encode for a heartbeat."""
        return {f"turn_{name}": int(value) for name, value in self._asdict().items()}

    @classmethod
    def of(cls, counters: Mapping[str, int]) -> PeerStatus | None:
        """Decode from a heartbeat; None if it carries no report on the lease."""
        values = [counters.get(f"turn_{name}") for name in cls._fields]
        asks, holds, grants, progress = values
        if asks is None or holds is None or grants is None or progress is None:
            return None
        return cls(bool(asks), bool(holds), grants, progress)


@dataclass(slots=True)
class _Peer:
    """A peer's last status, when it was received, and when its claim or progress last changed."""

    status: PeerStatus
    last_heartbeat: int
    moved_at: int


class Stagger:
    """One replica's side of the staggering protocol.

    ``replica`` is its id; the lowest id goes first. ``lease_us`` is how long a report is valid, how
    long a lease may last without progress, and the unit of the rest after that.
    """

    def __init__(self, replica: int, replicas: int, lease_us: int = LEASE_US_DEFAULT) -> None:
        assert 0 <= replica < replicas
        self._me = replica
        self._lease_us = lease_us
        self._alone = replicas == 1
        self._peers: dict[int, _Peer] = {}
        self._asked_at: int | None = None
        self._holds = False
        self._progress = 0
        self._moved_at = 0
        self._rests_until = 0
        self._vain_leases = 0
        self._grants = -1
        self._latest_heartbeat = 0

    def observe(self, received_at: int) -> None:
        """Record that a heartbeat of any process has come: time passes, and Kafka answers."""
        self._latest_heartbeat = max(self._latest_heartbeat, received_at)

    def lag_us(self, lag_us: int) -> int:
        """How long this replica stays behind: 0 if no peer with a lower id works."""
        works = any(
            replica < self._me and self._latest_heartbeat - peer.last_heartbeat < BEAT_US_MAX
            for replica, peer in self._peers.items()
        )
        return lag_us if works else 0

    def update(self, replica: int, status: PeerStatus, received_at: int) -> None:
        """Record a peer's heartbeat."""
        before = self._peers.get(replica)
        moved = before is None or before.status[:2] != status[:2] or before.status[3] != status[3]
        moved_at = received_at if before is None or moved else before.moved_at
        self._peers[replica] = _Peer(status, received_at, moved_at)

    def may_catch_up(self, now: int, *, needs: bool, progress: int) -> bool:
        """True if this replica may catch up; ``progress`` is the position of its stable line."""
        if self._alone or not needs:
            self._asked_at, self._holds = None, False
            self._excuse_waiting_peers(now)
            self._grants = self._choice(now)
            return True
        if progress != self._progress:
            self._vain_leases = 0
        if progress != self._progress or not self._holds:
            self._progress, self._moved_at = progress, now
        if self._holds and now - self._moved_at >= self._lease_us:
            self._vain_leases = min(self._vain_leases + 1, REST_LEASES_MAX)
            self._rests_until = now + self._vain_leases * self._lease_us
        self._excuse_waiting_peers(now)
        self._ask(now)
        self._holds = self._has_turn(now)
        self._grants = -1 if self._holds else self._choice(now)
        return self._holds

    def status(self) -> PeerStatus:
        """The status for the next heartbeat."""
        asks = self._asked_at is not None
        return PeerStatus(asks, self._holds, self._grants, self._progress)

    def _ask(self, now: int) -> None:
        if now < self._rests_until:
            self._asked_at, self._holds = None, False
        elif self._asked_at is None:
            self._asked_at = now

    def _excuse_waiting_peers(self, now: int) -> None:
        """Count waiting peers as active: while a replica holds the lease they make no progress."""
        active = [p for p in self._peers.values() if self._is_active(p, now)]
        if self._holds or any(p.status.holds for p in active):
            for peer in active:
                if peer.status.asks and not peer.status.holds:
                    peer.moved_at = now

    def _has_turn(self, now: int) -> bool:
        """True if this replica has the lease now.

        A fresh peer grants it; or it is held already, or no grant came for the length of a lease,
        and no peer goes first. A resting replica has it if no peer is fresh.
        """
        if self._asked_at is None:
            return not any(self._is_fresh(peer, now) for peer in self._peers.values())
        if any(
            p.status.grants == self._me and self._is_fresh(p, now) for p in self._peers.values()
        ):
            return True
        if self._holds and not self._ahead(now):
            return True
        waited = now - self._asked_at >= self._lease_us
        return waited and not self._ahead(now)

    def _ahead(self, now: int) -> list[int]:
        """The peers that go first: the lease's holders, and requesters with a lower id."""
        return [
            replica
            for replica, peer in self._peers.items()
            if self._is_active(peer, now)
            and (peer.status.holds or (peer.status.asks and replica < self._me))
        ]

    def _choice(self, now: int) -> int:
        """The replica to grant: a holder, else the requester with the lowest id; -1 if itself."""
        active = {r: p.status for r, p in self._peers.items() if self._is_active(p, now)}
        holders = [r for r, status in active.items() if status.holds]
        asking = [r for r, status in active.items() if status.asks]
        if self._asked_at is not None:
            asking.append(self._me)
        best = min(holders or asking, default=-1)
        return -1 if best == self._me else best

    def _is_fresh(self, peer: _Peer, now: int) -> bool:
        return now - peer.last_heartbeat < self._lease_us

    def _is_active(self, peer: _Peer, now: int) -> bool:
        """True if the peer's report is fresh and has changed lately; others do not go first."""
        return self._is_fresh(peer, now) and now - peer.moved_at < self._lease_us
