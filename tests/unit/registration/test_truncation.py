"""dpc-15: internal logs keep the records that a state record still needs, and one round more."""

import asyncio
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace

import pytest
from tests.contracts.transport import no_failure
from tests.support.memory import MemoryBroker
from tests.support.waiting import WAIT_S_MAX
from tests.unit.machine.test_layout import query, stream

from slackwater.codec.state_records import encode_root_state
from slackwater.model.deployment import Deployment
from slackwater.model.errors import EnvironmentProblem
from slackwater.model.records import LogPosition, LogState, OrdererState, Position, RootState
from slackwater.registration.truncation import Truncation, not_needed
from slackwater.runtime.logs import admin, topics
from slackwater.runtime.logs.transport import Log
from slackwater.runtime.service.registry import QueryDefinition, Registry
from slackwater.runtime.service.state import write_state

CLIMATE = query("climate", "room-1", replicas=2, parts=2)


def at(offset: int) -> LogPosition:
    return LogPosition(offset, offset, 0, Position(0))


def root(part: int, *logs: LogState) -> RootState:
    return RootState(f"root/climate.{part}", 1, 0, 0, 0, 0, (), logs)


def orderer(letter: str, stable: int, live: int) -> OrdererState:
    return OrdererState(f"orderer/climate.0.{letter}", 0, 0, 0, stable, live, ())


A_STABLE = LogState(0, 0, 0, stable=at(40), live=at(90), contiguous_seq=70)
A_LIVE = LogState(0, 0, 1, stable=at(12), live=at(10), contiguous_seq=11)
B_STABLE = LogState(0, 1, 0, stable=at(5), live=at(6), contiguous_seq=7)


def states(*all_: OrdererState | RootState) -> dict[str, OrdererState | RootState]:
    return {state.fragment: state for state in all_}


def test_deltas_are_needed_from_where_the_slower_line_goes_on() -> None:
    needed = not_needed([CLIMATE], states(root(0, A_STABLE, A_LIVE, B_STABLE)))
    assert needed == {
        ("sw.deltas.climate.0", 0): 40,
        ("sw.deltas.climate.0", 1): 10,
        ("sw.deltas.climate.0", 2): 5,
    }


def test_rule_26_ordered_logs_from_the_smallest_whole_over_the_parts() -> None:
    emitted = states(
        root(0, A_STABLE),
        root(1, replace(A_STABLE, contiguous_seq=66)),
        orderer("a", stable=100, live=100),
    )
    assert not_needed([CLIMATE], emitted)["sw.ordered.climate.0", 0] == 66


def test_r21_without_a_window_the_root_needs_the_ordered_logs_as_it_needs_deltas() -> None:
    rows = replace(CLIMATE, window=None, aggregate=())
    emitted = states(
        root(0, A_STABLE), root(1, A_LIVE, A_STABLE), orderer("a", stable=100, live=100)
    )
    assert not_needed([rows], emitted) == {
        ("sw.ordered.climate.0", 0): 40,
        ("sw.ordered.climate.0", 1): 10,
    }
    assert not_needed([rows], states(root(0, A_STABLE), orderer("a", 9, 9))) == {}


def test_rule_25_ordered_logs_from_where_their_writer_reads_them() -> None:
    emitted = states(root(0, A_STABLE), root(1, A_STABLE), orderer("a", stable=50, live=0))
    assert not_needed([CLIMATE], emitted)["sw.ordered.climate.0", 0] == 50


def test_a_follower_keeps_what_it_has_not_read() -> None:
    """trace-53: the copy that answers has read on; the other one would start again."""
    pairs = replace(query("climate", "room-1", replicas=2, parts=1), copies=2)
    behind = replace(A_STABLE, stable=at(15), live=at(20))
    own = replace(root(0, behind), fragment="root/climate.0.b")
    needed = not_needed([pairs], states(root(0, A_STABLE), own))
    assert needed["sw.deltas.climate.0", 0] == 15


def test_deltas_are_kept_for_two_heads_and_ordered_logs_as_before() -> None:
    """trace-62: the positions at S are in the record, and no longer needed."""
    has_heads = replace(root(0, A_STABLE, A_LIVE), kept_from=(60, 44), moved_to=(9,))
    emitted = states(has_heads, root(1, A_STABLE, A_LIVE), orderer("a", stable=100, live=100))
    assert not_needed([CLIMATE], emitted) == {
        ("sw.deltas.climate.0", 0): 60,
        ("sw.deltas.climate.0", 1): 44,
        ("sw.deltas.climate.1", 0): 40,
        ("sw.deltas.climate.1", 1): 10,
        ("sw.ordered.climate.0", 0): 70,
        ("sw.ordered.climate.0", 1): 11,
    }
    of_other_logs = replace(has_heads, kept_from=(60,))
    assert not_needed([CLIMATE], states(of_other_logs))["sw.deltas.climate.0", 0] == 40


def test_a_follower_keeps_what_it_has_not_read_of_the_heads() -> None:
    pairs = replace(query("climate", "room-1", replicas=2, parts=1), copies=2)
    answered = replace(root(0, A_STABLE), kept_from=(60,))
    own = replace(root(0, A_STABLE), fragment="root/climate.0.b", kept_from=(55,))
    assert not_needed([pairs], states(answered, own))["sw.deltas.climate.0", 0] == 55


def test_a_copy_that_is_dead_keeps_nothing() -> None:
    pairs = replace(query("climate", "room-1", replicas=2, parts=1), copies=2)
    hour_us = 3_600_000_000
    answered = replace(root(0, A_STABLE), stable_from=hour_us, answered_to=hour_us)
    behind = replace(A_STABLE, stable=at(15), live=at(20))
    own = replace(root(0, behind), fragment="root/climate.0.b")
    needed = not_needed([pairs], states(answered, own))
    assert needed["sw.deltas.climate.0", 0] == 40


def test_merged_panes_are_needed_from_where_the_slowest_copy_reads_them_again() -> None:
    of = replace(CLIMATE, parts=1, copies=2, mergers=2)
    answered = replace(root(0, A_STABLE), merged_from=(7,))
    follower = replace(answered, fragment="root/climate.0.b", merged_from=(4,))
    assert not_needed([of], states(answered, follower))["sw.merged.climate.0", 0] == 4
    dead = replace(follower, stable_from=-200_000_000)
    assert not_needed([of], states(answered, dead))["sw.merged.climate.0", 0] == 7
    assert ("sw.merged.climate.0", 0) not in not_needed([of], states(root(0, A_STABLE)))


def test_a_reader_without_a_state_record_needs_everything() -> None:
    ordered = ("sw.ordered.climate.0", 0)
    writer = orderer("a", 100, 100)
    assert ordered not in not_needed([CLIMATE], states(root(0, A_STABLE), writer)), "part 1"
    assert ordered not in not_needed([CLIMATE], states(root(0, A_STABLE), root(1, A_STABLE)))
    assert not_needed([CLIMATE], {}) == {}


def test_what_is_given_up_was_not_needed_a_round_ago() -> None:
    broker = MemoryBroker()
    broker.create_topic("sw.registry", 1)
    broker.create_topic("sw.state.climate", 2)
    broker.create_topic("sw.ordered.climate.0", 4)
    for part in range(2):
        broker.create_topic(f"sw.deltas.climate.{part}", 4)
    writer = broker.writer(no_failure)
    logs: list[Log] = [("sw.ordered.climate.0", 0), ("sw.deltas.climate.0", 0)]
    for log in logs:
        for _ in range(200):
            writer.append(*log, b"record")

    def emit(stable: int, contiguous_seq: int) -> None:
        for part in range(2):
            state = root(part, LogState(0, 0, 0, at(stable), at(stable), contiguous_seq))
            key = state.fragment.encode()
            with broker.transaction() as transaction:
                transaction.append("sw.state.climate", part, encode_root_state(state), key)
        write_state(writer, broker.names, "climate", orderer("a", 1_000, 1_000))

    truncation = Truncation(broker, [CLIMATE])
    emit(stable=30, contiguous_seq=60)
    assert truncation.step() == {}
    emit(stable=80, contiguous_seq=120)
    # Part 1 has no deltas: no reader has read them up to 30, whatever a record claims.
    assert truncation.step() == {
        ("sw.ordered.climate.0", 0): 60,
        ("sw.deltas.climate.0", 0): 30,
    }
    assert broker.beginning_offsets(logs) == dict(zip(logs, [60, 30], strict=True))
    truncation.step()
    assert broker.beginning_offsets(logs) == dict(zip(logs, [120, 80], strict=True))


def test_a_query_that_another_machine_registers_is_a_reader() -> None:
    """Its root has no state record yet; the record of this machine lacks the query (trace-50)."""
    assert truncated_to(has_joined=False) == 40
    assert truncated_to(has_joined=True) == 0


def truncated_to(*, has_joined: bool) -> int:
    broker = MemoryBroker()
    broker.create_topic("sw.registry")
    for name in ("climate", "hour"):
        broker.create_topic(f"sw.state.{name}", 2)
    broker.create_topic("sw.deltas.climate.0", 4)
    log: Log = ("sw.deltas.climate.0", 0)
    for _ in range(100):
        broker.writer(no_failure).append(*log, b"record")
    key = b"root/climate.0"
    with broker.transaction() as transaction:
        transaction.append("sw.state.climate", 0, encode_root_state(root(0, A_STABLE)), key)
    if has_joined:
        hour = replace(CLIMATE, name="hour", children_of="climate")
        of = Deployment("wall", {n: stream(n) for n in hour.sources}, {"hour": hour})
        joined = QueryDefinition("hour", 0, 0, 1, hour, deployment=of)
        Registry(broker).publish_queries(joined)
    truncation = Truncation(broker, [CLIMATE])
    for _ in range(2):
        truncation.step()
    return broker.beginning_offsets([log])[log]


class Refusing(MemoryBroker):
    """A partition's leader moves at the time of a request to truncate."""

    refusals = 0

    def delete_records(self, before: Mapping[Log, int], *, timeout_s: float = 30.0) -> None:
        if self.refusals < 2:
            self.refusals += 1
            raise EnvironmentProblem("topic sw.ordered.climate.0 cannot be truncated: not leader")
        super().delete_records(before, timeout_s=timeout_s)


async def test_g5_a_broker_that_refuses_once_does_not_end_truncation_for_good() -> None:
    broker = Refusing()
    broker.create_topic("sw.registry", 1)
    broker.create_topic("sw.state.climate", 2)
    broker.create_topic("sw.deltas.climate.0", 4)
    log: Log = ("sw.deltas.climate.0", 0)
    writer = broker.writer(no_failure)
    for _ in range(100):
        writer.append(*log, b"record")
    state = root(0, A_STABLE)
    with broker.transaction() as transaction:
        key = state.fragment.encode()
        transaction.append("sw.state.climate", 0, encode_root_state(state), key)
    running = asyncio.create_task(Truncation(broker, [CLIMATE]).run(0.001))
    async with asyncio.timeout(WAIT_S_MAX):
        while broker.beginning_offsets([log])[log] < 40:
            assert not running.done(), running.exception()
            await asyncio.sleep(0.001)
    running.cancel()


def test_g5_no_answer_to_a_truncation_is_said_like_a_refusal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    where: Future[None] = Future()  # never answered: the broker was killed with the request
    client = SimpleNamespace(delete_records=lambda wanted: {wanted[0]: where})
    monkeypatch.setattr(admin, "admin_client", lambda bootstrap: client)
    with pytest.raises(EnvironmentProblem, match=r"climate\.0 cannot be truncated: no answer"):
        topics.delete_records("nowhere:1", {("sw.deltas.climate.0", 0): 7}, 0.01)
