"""Replicas take turns at catching up (DPC, section 4.4.3), and nothing depends on it (trace-30)."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.protocols.dpc.reconcile.staggering import PeerStatus, Stagger

LEASE = 1_000
BEAT = 40


@dataclass
class Replica:
    """A replica with this much work; with the lease it completes ``speed`` of it per heartbeat."""

    number: int
    replicas: int
    work: int = 0
    speed: int = 40
    alive: bool = True
    """Whether its heartbeats are sent."""
    hangs: bool = False
    """Whether its loop hangs while heartbeats are sent, so that they never change."""
    done: int = 0
    at_it: bool = False
    emitted: PeerStatus = field(default_factory=PeerStatus)

    def __post_init__(self) -> None:
        self.turns = Stagger(self.number, self.replicas, LEASE)

    @property
    def needs(self) -> bool:
        return self.done < self.work

    def beat(self, now: int) -> None:
        self.at_it = self.turns.may_catch_up(now, needs=self.needs, progress=self.done)
        if self.needs and self.at_it:
            self.done = min(self.done + self.speed, self.work)
        self.emitted = self.turns.status()


class Group:
    """Replicas of one output that receive each other's heartbeats one period later."""

    def __init__(self, *replicas: Replica) -> None:
        self.replicas = replicas
        self.now = 0
        self.at_it: list[tuple[int, ...]] = []

    def run(self, for_ms: int) -> None:
        for _ in range(for_ms // BEAT):
            self.now += BEAT
            statuses = [(r.number, r.emitted) for r in self.replicas if r.alive]
            for replica in self.replicas:
                for number, status in statuses:
                    if number != replica.number:
                        replica.turns.update(number, status, self.now)
            for replica in self.replicas:
                if replica.alive and not replica.hangs:
                    replica.beat(self.now)
            self.at_it.append(
                tuple(r.number for r in self.replicas if r.alive and r.needs and r.at_it)
            )


def test_with_one_replica_nobody_is_asked() -> None:
    alone = Stagger(0, 1, LEASE)
    assert alone.may_catch_up(0, needs=True, progress=0)
    assert alone.may_catch_up(10**9, needs=True, progress=0), "and no lease expires"


def test_figure_9_the_lower_id_goes_first_and_the_other_waits_for_it() -> None:
    a, b = Replica(0, 2, work=4_000), Replica(1, 2, work=4_000)
    group = Group(a, b)
    group.run(2_000)
    assert a.done > 1_500
    assert b.done == 0
    assert (a.emitted.holds, b.emitted.asks, b.emitted.grants) == (True, True, 0)
    group.run(8_000)
    assert (a.done, b.done) == (4_000, 4_000)
    assert (0, 1) not in group.at_it, "one after the other"


def test_a_replica_that_is_at_it_refuses_also_a_lower_one() -> None:
    a, b = Replica(0, 2), Replica(1, 2, work=2_000)
    group = Group(a, b)
    group.run(500)
    a.work = 2_000
    group.run(500)
    assert b.emitted.holds
    assert a.emitted.asks
    assert not a.emitted.holds
    assert a.emitted.grants == 1, "and so the lease of the other is renewed"
    group.run(5_000)
    assert (a.done, b.done) == (2_000, 2_000)


def test_a_peer_with_nothing_to_do_grants_within_two_beats() -> None:
    a, b = Replica(0, 2), Replica(1, 2)
    group = Group(a, b)
    group.run(400)
    b.work = 400
    group.run(4 * BEAT)
    assert b.done > 0


@pytest.mark.parametrize("how", ["dies", "hangs"])
def test_a_replica_that_stops_in_the_middle_blocks_nobody_for_more_than_the_lease(how: str) -> None:
    a, b = Replica(0, 2, work=10_000), Replica(1, 2, work=2_000)
    group = Group(a, b)
    group.run(1_000)
    assert b.done == 0
    a.alive, a.hangs = how != "dies", how == "hangs"
    group.run(LEASE + 3 * BEAT)
    assert b.done > 0
    group.run(4_000)
    assert b.done == 2_000


def test_a_replica_without_progress_gives_its_turn_up_and_comes_back_later() -> None:
    a, b = Replica(0, 2, work=4_000, speed=0), Replica(1, 2, work=2_000)
    group = Group(a, b)
    group.run(LEASE)
    assert b.done == 0
    group.run(400)
    assert b.done > 0
    group.run(4_000)
    assert b.done == 2_000
    a.speed = 40
    group.run(8_000)
    assert a.done == 4_000


def test_a_replica_whose_peer_is_down_goes_ahead_at_once() -> None:
    a, b = Replica(0, 2, alive=False), Replica(1, 2, work=400)
    group = Group(a, b)
    group.run(LEASE + 4 * BEAT)
    assert b.done > 0


def test_three_go_one_after_the_other_in_the_order_of_their_ids() -> None:
    replicas = [Replica(i, 3, work=2_000) for i in range(3)]
    group = Group(*replicas)
    group.run(12_000)
    assert [r.done for r in replicas] == [2_000] * 3
    assert {at_it for at_it in group.at_it if at_it} == {(0,), (1,), (2,)}
    assert [at_it for at_it in group.at_it if at_it] == sorted(at for at in group.at_it if at)


def test_two_that_get_nowhere_leave_a_turn_to_the_third() -> None:
    a, b = (Replica(i, 3, work=2_000, speed=0) for i in range(2))
    c = Replica(2, 3, work=2_000)
    Group(a, b, c).run(12 * LEASE)
    assert c.done == c.work


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["dies", "returns", "hangs", "stalls"])),
        max_size=8,
    ),
    st.integers(1, 3),
)
def test_every_running_replica_that_can_make_progress_completes_in_time(
    accidents: list[tuple[int, str]], replicas: int
) -> None:
    """None is blocked for more than some leases, for any faults of the others."""
    members = [Replica(i, replicas, work=2_000) for i in range(replicas)]
    group = Group(*members)
    for number, what in accidents:
        group.run(600)
        hit = members[number % replicas]
        hit.alive = what != "dies"
        hit.hangs = what == "hangs"
        hit.speed = 0 if what == "stalls" else 40
    group.run(2_000 * replicas + 20 * LEASE)
    for member in members:
        if member.alive and not member.hangs and member.speed:
            assert member.done == member.work


def test_a_word_travels_in_a_heartbeats_counters() -> None:
    status = PeerStatus(asks=True, holds=False, grants=-1, progress=12)
    assert PeerStatus.of(status.counters() | {"readings": 5}) == status
    assert PeerStatus.of({"readings": 5}) is None


def test_a_replica_lags_only_behind_those_with_a_lower_id() -> None:
    for number, behind in ((0, 0), (1, 7), (2, 7)):
        one = Stagger(number, 3, LEASE)
        for other in {0, 1, 2} - {number}:
            one.update(other, PeerStatus(), 1_000_000)
        one.observe(1_000_000)
        assert one.lag_us(7) == behind


def test_it_lags_no_longer_than_their_heartbeats_last() -> None:
    one = Stagger(2, 3, LEASE)
    one.update(0, PeerStatus(), 1_000_000)
    one.update(1, PeerStatus(), 1_050_000)
    for at, behind in ((1_120_000, 7), (1_169_999, 7), (1_170_000, 0)):
        one.observe(at)
        assert one.lag_us(7) == behind
    one.observe(1_000_000)
    assert one.lag_us(7) == 0, "a heartbeat that comes late"
