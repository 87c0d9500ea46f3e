"""When a controller suspects a node, when it plans, and which controller does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest
from tests.simulator.mutation import Edit, Mutant, applied

from slackwater.control.control_object import (
    ApplyQuery,
    ControlObject,
    DeleteQuery,
    DrainNode,
    JoinNode,
    MoveFragment,
)
from slackwater.control.control_state import STREAMS, ControlState
from slackwater.control.placement import FragmentSpec
from slackwater.control.placing import (
    FIRST_HEARTBEATS_US_MAX,
    RECONNECT_US_MAX,
    SUSPICION,
    Placing,
    Suspicion,
)
from slackwater.protocols.iads.detector import PhiAccrual
from slackwater.protocols.iads.messages import Stamp

PERIOD: Final = 100_000
SILENCE_US: Final = SUSPICION.after_us
SPECS: Final = (FragmentSpec(STREAMS, "lab", "lab"), FragmentSpec(STREAMS, "hall", "hall"))
REGISTRATION: Final = FragmentSpec("q", "registration", "registration")


class Record:
    """The object of one controller, with nodes and moves."""

    def __init__(self, *nodes: str) -> None:
        self.object = ControlObject(frozenset("ab"), ControlState())
        self._time = 0
        for node in nodes:
            self.do(JoinNode(node, 9))

    def do(self, operation: object) -> str:
        self._time += 1
        return self.object.apply(operation, Stamp(1, self._time, "a")).refusal

    def carry_out(self, moves: tuple[MoveFragment, ...]) -> None:
        assert [self.do(move) for move in moves] == [""] * len(moves)

    def places(self) -> dict[str, str]:
        return {name: entry.node for (_, name), entry in self.object.state.placement.items()}

    @property
    def numbers(self) -> set[int]:
        return {entry.number for entry in self.object.state.placement.values()}


def placing(
    name: str = "a",
    *members: str,
    specs: tuple[FragmentSpec, ...] = SPECS,
    suspicion: Suspicion = SUSPICION,
) -> Placing:
    made = Placing(name, lambda _: specs, 0, suspicion)
    made.view(1, members or ("a", "b"), 0)
    return made


def beat(of: Placing, record: Record, *nodes: str, start: int, end: int) -> int:
    """Heartbeats of these nodes, with all that is placed on each ready; returns the last time."""
    now = start
    while now <= end:
        for node in nodes:
            on = record.object.state.placement.values()
            of.heartbeat(node, {e.number for e in on if e.node == node}, (), now)
        now += PERIOD
    return now - PERIOD


def test_what_is_to_run_is_placed_when_all_recorded_nodes_are_connected() -> None:
    record, one = Record("n1", "n2"), placing()
    now = beat(one, record, "n1", start=0, end=PERIOD)
    assert one.moves(record.object.state, now) == ()
    now = beat(one, record, "n1", "n2", start=now, end=now)
    record.carry_out(one.moves(record.object.state, now))
    assert sorted(record.places().values()) == ["n1", "n2"]


def test_a_node_that_never_connects_is_awaited_for_a_bounded_time() -> None:
    record, one = Record("n1", "n2"), placing()
    now = beat(one, record, "n1", start=0, end=FIRST_HEARTBEATS_US_MAX - PERIOD)
    assert one.moves(record.object.state, now) == ()
    assert one.next_deadline(now) is not None
    now = beat(one, record, "n1", start=now, end=FIRST_HEARTBEATS_US_MAX)
    record.carry_out(one.moves(record.object.state, now))
    assert set(record.places().values()) == {"n1"}


def test_only_the_first_member_of_the_view_plans() -> None:
    record, other = Record("n1"), placing("b")
    now = beat(other, record, "n1", start=0, end=PERIOD)
    assert other.moves(record.object.state, now) == ()
    other.view(2, ("b",), now)
    assert len(other.moves(record.object.state, now)) == len(SPECS)


def running(suspicion: Suspicion = SUSPICION) -> tuple[Record, Placing, int]:
    """Two nodes, each with one fragment."""
    record, one = Record("n1", "n2"), placing(suspicion=suspicion)
    now = beat(one, record, "n1", "n2", start=0, end=0)
    record.carry_out(one.moves(record.object.state, now))
    return record, one, beat(one, record, "n1", "n2", start=now, end=now + 20 * PERIOD)


def test_a_silent_node_loses_its_fragments_after_the_least_silence() -> None:
    record, one, silent_since = running()
    now = beat(one, record, "n1", start=silent_since, end=silent_since + SILENCE_US - 1)
    assert one.moves(record.object.state, now) == ()
    assert one.is_connected("n2", now)
    due = one.next_deadline(now)
    assert due is not None
    assert due <= silent_since + SILENCE_US
    record.carry_out(one.moves(record.object.state, silent_since + SILENCE_US))
    assert set(record.places().values()) == {"n1"}
    assert not one.is_connected("n2", silent_since + SILENCE_US)


@pytest.mark.parametrize(
    ("suspicion", "after_us"),
    [
        (Suspicion(5_000_000), 5_000_000),
        (Suspicion(500_000), 500_000),
        (Suspicion(100_000), 230_650),  # the detector waits longer, and its threshold says how long
        (Suspicion(100_000, phi=16.0), 277_993),
    ],
)
def test_when_a_node_is_suspected_is_a_setting(suspicion: Suspicion, after_us: int) -> None:
    record, one, silent_since = running(suspicion)
    now = beat(one, record, "n1", start=silent_since, end=silent_since + after_us - 1)
    assert one.is_connected("n2", now)
    assert not one.is_connected("n2", silent_since + after_us)


def test_a_larger_phi_waits_longer() -> None:
    waits = []
    for phi in (1.0, 8.0, 16.0):
        detector = PhiAccrual(0, PERIOD, phi)
        for now in range(PERIOD, 50 * PERIOD, PERIOD):
            detector.heartbeat(now + now // PERIOD % 3 * 20_000)
        at = detector.suspect_at()
        assert detector.phi(at) == pytest.approx(phi, abs=0.05)
        waits.append(at)
    assert waits == sorted(set(waits))


def test_a_closed_connection_is_a_failure_unless_the_node_is_back_soon() -> None:
    record, one, now = running()
    one.closed("n2", now)
    beat(one, record, "n2", start=now + RECONNECT_US_MAX - 1, end=now + RECONNECT_US_MAX - 1)
    assert one.moves(record.object.state, now + RECONNECT_US_MAX) == ()
    now += RECONNECT_US_MAX
    one.closed("n2", now)
    assert one.moves(record.object.state, now + RECONNECT_US_MAX - 1) == ()
    assert len(one.moves(record.object.state, now + RECONNECT_US_MAX)) == 1


def test_after_a_merge_the_nodes_of_the_other_half_are_awaited() -> None:
    """They were suspected here, and the record says that the other half's fragments run there."""
    record, one = Record("n1", "n2"), placing("a", "a")
    now = beat(one, record, "n1", "n2", start=0, end=0)
    record.carry_out(one.moves(record.object.state, now))
    now = beat(one, record, "n1", start=now, end=now + SILENCE_US)
    assert one.moves(record.object.state, now), "n2 is suspected"

    one.view(2, ("a", "b"), now)
    assert one.moves(record.object.state, now) == ()
    due = one.next_deadline(now)
    assert due is not None
    assert due <= now + FIRST_HEARTBEATS_US_MAX
    gone = beat(one, record, "n1", start=now, end=now + FIRST_HEARTBEATS_US_MAX)
    assert one.moves(record.object.state, gone), "a node that stays away is awaited in vain"

    one.view(3, ("a",), gone)
    assert one.moves(record.object.state, gone), "a controller that goes tells nothing of nodes"
    one.view(4, ("a", "b"), gone)
    back = beat(one, record, "n1", "n2", start=gone, end=gone)
    assert one.moves(record.object.state, back) == ()


def test_what_a_copy_elsewhere_has_fenced_is_placed_again_when_a_node_comes_back() -> None:
    record, one, now = running()
    of = {entry.node: entry.number for entry in record.object.state.placement.values()}
    one.heartbeat("n1", (), {of["n1"]}, now)
    assert one.moves(record.object.state, now) == ()
    one.closed("n2", now)
    now += RECONNECT_US_MAX
    record.carry_out(one.moves(record.object.state, now))
    moved = record.numbers - {*of.values()}
    assert len(moved) == 1
    one.heartbeat("n2", (), (), now)
    again = one.moves(record.object.state, now)
    assert [move.replaces for move in again] == [of["n1"]]


def test_a_node_that_has_left_is_forgotten() -> None:
    record, one, now = running()
    one.closed("n2", now)
    one.moves(record.object.state, now + RECONNECT_US_MAX)
    left = ControlState(
        nodes={"n1": record.object.state.nodes["n1"]}, placement=record.object.state.placement
    )
    one.moves(left, now + RECONNECT_US_MAX + 1)
    assert one.reports(now).standings.keys() == {"n1"}


def number(record: Record) -> int:
    """The placement number of the only fragment."""
    (found,) = record.numbers
    return found


def deleted() -> tuple[Record, Placing, int]:
    """Two nodes. The registration of q, which is deleted, is on n1, and is ready as before."""
    record, one = Record("n1", "n2"), placing(specs=(REGISTRATION,))
    assert not record.do(ApplyQuery("q", "x"))
    now = beat(one, record, "n1", "n2", start=0, end=0)
    record.carry_out(one.moves(record.object.state, now))
    assert record.places() == {"registration": "n1"}
    assert one.may_forget(record.object.state), "nothing is deleted"
    assert not record.do(DeleteQuery("q"))
    return record, one, beat(one, record, "n1", "n2", start=now, end=now + 20 * PERIOD)


def test_a_tombstone_remains_until_the_deletion_has_been_carried_out() -> None:
    record, one, now = deleted()
    assert not one.may_forget(record.object.state)
    one.heartbeat("n1", {number(record)}, (), now, {number(record)})
    assert one.may_forget(record.object.state)
    assert one.moves(record.object.state, now) == ()


def test_a_deletion_is_placed_again_if_its_node_is_lost_before_it_has_carried_it_out() -> None:
    record, one, now = deleted()
    old = number(record)
    one.closed("n1", now)
    now += RECONNECT_US_MAX
    record.carry_out(one.moves(record.object.state, now))
    assert record.places() == {"registration": "n2"}
    one.heartbeat("n1", {old}, (), now, {old})
    assert not one.may_forget(record.object.state), "the deletion that counts is that of n2"
    one.heartbeat("n2", {number(record)}, (), now, {number(record)})
    assert one.may_forget(record.object.state)


def test_a_deletion_is_placed_again_if_its_node_drains() -> None:
    record, one, now = deleted()
    one.heartbeat("n1", {number(record)}, (), now, {number(record)})
    assert not record.do(DrainNode("n1"))
    record.carry_out(one.moves(record.object.state, now))
    assert record.places() == {"registration": "n2"}


def test_a_deletion_that_has_been_carried_out_outlives_its_node() -> None:
    """It is placed again nevertheless: a controller that starts later does not know of it."""
    record, one, now = deleted()
    one.heartbeat("n1", {number(record)}, (), now, {number(record)})
    one.closed("n1", now)
    now += RECONNECT_US_MAX
    moves = one.moves(record.object.state, now)
    assert one.may_forget(record.object.state)
    record.carry_out(moves)
    assert record.places() == {"registration": "n2"}
    assert not placing("b", specs=(REGISTRATION,)).may_forget(record.object.state)


def test_a_node_that_has_restarted_has_carried_out_nothing_yet() -> None:
    record, one, now = deleted()
    one.heartbeat("n1", {number(record)}, (), now, {number(record)})
    one.heartbeat("n1", (), (), now)
    assert not one.may_forget(record.object.state)


_PLACING: Final = "slackwater.control.placing"
_WATCH: Final = "slackwater.control.node_watch"


def _mutant(name: str, target: str, old: str, new: str, scenario: Callable[[], None]) -> Mutant:
    here = f"{__name__}:{getattr(scenario, '__name__', '')}"
    return Mutant(name, "placement", (Edit(target, old, new),), here)


MUTANTS: Final = (
    _mutant(
        "every controller plans", f"{_PLACING}:Placing._plans",
        "self.name != min(self._members)", "False",
        test_only_the_first_member_of_the_view_plans,
    ),
    _mutant(
        "a controller plans before the nodes are connected", f"{_PLACING}:Placing._plans",
        "return live <= self._connected or", "return True or",
        test_what_is_to_run_is_placed_when_all_recorded_nodes_are_connected,
    ),
    _mutant(
        "nobody waits for the nodes of the other half after a merge", f"{_PLACING}:Placing.view",
        "if self._members and members - self._members:", "if False:",
        test_after_a_merge_the_nodes_of_the_other_half_are_awaited,
    ),
    _mutant(
        "a node that never connects is awaited for ever", f"{_PLACING}:Placing._plans",
        "or now >= self._waits_from + FIRST_HEARTBEATS_US_MAX", "",
        test_a_node_that_never_connects_is_awaited_for_a_bounded_time,
    ),
    _mutant(
        "a node is suspected by the detector alone", f"{_PLACING}:_Observed.suspect_at",
        "max(self.detector.suspect_at(), self.latest + self.after_us)",
        "self.detector.suspect_at()",
        test_a_silent_node_loses_its_fragments_after_the_least_silence,
    ),
    _mutant(
        "a closed connection does not count", f"{_PLACING}:Placing.closed",
        "self._nodes[node].closed_at = now", "pass",
        test_a_closed_connection_is_a_failure_unless_the_node_is_back_soon,
    ),
    _mutant(
        "a node that has connected again is suspected", f"{_PLACING}:Placing.heartbeat",
        "observed.latest, observed.closed_at = now, None", "observed.latest = now",
        test_a_closed_connection_is_a_failure_unless_the_node_is_back_soon,
    ),
    _mutant(
        "a tombstone is dropped before the deletion has been carried out",
        f"{_PLACING}:Placing.may_forget", "entry.number in ended", "True",
        test_a_tombstone_remains_until_the_deletion_has_been_carried_out,
    ),
    _mutant(
        "a query that is ready is deleted", f"{_PLACING}:Placing.heartbeat",
        "now, frozenset(ended)", "now, frozenset(ready)",
        test_a_tombstone_remains_until_the_deletion_has_been_carried_out,
    ),
    _mutant(
        "a deletion counts that was placed before", f"{_PLACING}:Placing.may_forget",
        "entry.number in ended", "ended",
        test_a_deletion_is_placed_again_if_its_node_is_lost_before_it_has_carried_it_out,
    ),
    _mutant(
        "a deletion is forgotten with its node", f"{_WATCH}:NodeWatch.suspect",
        "self._ready.pop(node, None)", "self._ready.pop(node, None); self._ended.pop(node, None)",
        test_a_deletion_that_has_been_carried_out_outlives_its_node,
    ),
    _mutant(
        "what a node has ended counts for its next life", f"{_WATCH}:NodeWatch.heartbeat",
        "self._ended[node] = ended", "self._ended[node] = self._ended.get(node, ended) | ended",
        test_a_node_that_has_restarted_has_carried_out_nothing_yet,
    ),
    _mutant(
        "what was fenced waits for a view", f"{_WATCH}:NodeWatch.heartbeat",
        "self._fenced_in = dict.fromkeys(self._fenced_in, NO_VIEW)", "pass",
        test_what_a_copy_elsewhere_has_fenced_is_placed_again_when_a_node_comes_back,
    ),
)  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_each_mutant_is_noticed(mutant: Mutant) -> None:
    with applied(mutant), pytest.raises(AssertionError):
        mutant.run()
