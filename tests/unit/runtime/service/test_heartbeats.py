"""Uses of heartbeats: superseded writers, holes, readiness, and two processes with one name."""

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.support.memory import MemoryBroker
from tests.support.waiting import WAIT_S_MAX, eventually

from slackwater.codec import decode_heartbeat
from slackwater.model.names import Names
from slackwater.model.records import Heartbeat, HeartbeatPart, Hole
from slackwater.runtime.service.beat import (
    STATES_S_MAX,
    HeartbeatState,
    believable,
    cpu_share,
    part_of,
)
from slackwater.runtime.service.cpu import CpuShare, OwnCpu
from slackwater.runtime.service.heartbeat_view import (
    FAILED_PLACEMENT,
    STALE_S,
    HeartbeatView,
    answering,
)
from slackwater.runtime.service.heartbeats import (
    INTERVAL_S,
    HeartbeatListener,
    HeartbeatSender,
)

A = Heartbeat(
    process="orderer/climate.0.a", pid=10, started_at=1_000, at=2_000, inc=5, ready=True, states={}
)


def test_rule_6_a_greater_incarnation_supersedes_for_good() -> None:
    view = HeartbeatView()
    assert not view.superseded(A.process, 5)
    view.observe(A, 0.0)
    assert not view.superseded(A.process, 5)
    view.observe(replace(A, pid=11, started_at=3_000, inc=9), 0.1)
    assert view.superseded(A.process, 5)
    assert not view.superseded(A.process, 9)
    assert not view.superseded("orderer/climate.0.b", 5)
    view.observe(A, 100.0)  # the zombie resumes and only its heartbeats are received
    assert view.superseded(A.process, 5)


def test_a_process_that_is_reported_dead_is_not_ready_and_has_no_state() -> None:
    """trace-55: of its heartbeats that are read later none brings it back."""
    view, alive = HeartbeatView(), replace(A, states={"results": "STABLE"})
    view.observe(alive, 0.0)
    assert view.observe(alive.as_dead(), 0.1), "its readers are to be told"
    view.observe(replace(alive, at=3_000), 0.2)
    latest = view.latest(A.process)
    assert latest is not None
    assert latest.is_dead
    assert (latest.ready, latest.states) == (False, {})


def test_a_false_report_of_death_is_forgotten() -> None:
    view = HeartbeatView()
    view.observe(A, 0.0)
    view.observe(A.as_dead(), 0.1)
    view.observe(A, 0.1 + STALE_S + 0.01)
    assert view.latest(A.process) == A


def test_a_report_of_death_does_not_concern_the_process_that_was_started_since() -> None:
    view, successor = HeartbeatView(), replace(A, pid=11, started_at=3_000)
    view.observe(successor, 0.0)
    for now_s in (0.1, 100.0):
        view.observe(A.as_dead(), now_s)
        assert view.latest(A.process) == successor
    view.observe(successor.as_dead(), 100.1)
    restarted = replace(A, pid=12, started_at=4_000)
    view.observe(restarted, 100.2)
    assert view.latest(A.process) == restarted


def test_of_two_under_one_name_the_later_start_counts_while_it_speaks() -> None:
    view = HeartbeatView()
    successor = replace(A, pid=11, started_at=3_000, inc=-1, ready=False)
    view.observe(A, 0.0)
    view.observe(successor, 0.1)
    view.observe(A, 0.2)
    assert view.latest(A.process) == successor
    view.observe(A, 0.1 + STALE_S + 0.01)  # the successor has ended
    assert view.latest(A.process) == A


@pytest.mark.parametrize("started_at", [1, 9_000])
def test_a_copy_that_stays_down_does_not_hide_the_one_that_runs(started_at: int) -> None:
    """trace-41: it tries again and again, on another node, and each start is later."""
    view = HeartbeatView()
    idle = replace(
        A, pid=11, started_at=started_at, inc=-1, ready=False, detail={FAILED_PLACEMENT: 5}
    )
    view.observe(idle, 0.0)
    view.observe(A, 0.1)
    view.observe(replace(idle, started_at=started_at + 1), 0.2)
    assert view.latest(A.process) == A
    assert view.stayed_down_with(A.process, 11) == 5
    assert view.stayed_down_with(A.process, A.pid) is None
    view.observe(idle, 0.1 + STALE_S + 0.01)  # the other one has ended
    assert view.latest(A.process) == idle


def test_a_heartbeat_has_returned_when_it_or_a_pulse_was_received() -> None:
    """A copy of a part counts silence up to one of its own (trace-51)."""
    view = HeartbeatView()
    assert view.sent_at("root/q.0.a") is None
    view.take(carrier(100, "root/q.0.a"), 1.0)
    assert view.sent_at("root/q.0.a") == 100
    view.take(pulse(140, 100), 1.04)
    assert view.sent_at("root/q.0.a") == 140


@pytest.mark.parametrize(
    ("details", "found"),
    [
        ({}, None),
        ({"root/q.0": {}}, "root/q.0"),
        ({"root/q.0.a": {"answers": 0}, "root/q.0.b": {"answers": 1, "term": 1}}, "root/q.0.b"),
        (
            {"root/q.0.a": {"answers": 1, "term": 4}, "root/q.0.b": {"answers": 1, "term": 3}},
            "root/q.0.a",
        ),
        ({"root/q.0.a": {"answers": 0, "term": 4}}, "root/q.0.a"),
    ],
)
def test_the_root_of_a_part_is_the_copy_that_answers_in_the_last_term(
    details: dict[str, dict[str, int]], found: str | None
) -> None:
    """The last heartbeat of a copy that has died tells that it answers."""
    beats = {name: replace(A, process=name, detail=of) for name, of in details.items()}
    beat = answering(beats.get, "q", 0)
    assert (None if beat is None else beat.process) == found


def test_hosts_of_two_nodes_may_have_one_name() -> None:
    view = HeartbeatView()
    view.take(carrier(100, "orderer/q.0.a"), 1.0)
    other = HeartbeatPart("orderer/r.0.a", 9, 1, True, {})
    view.take(Heartbeat("host/0", 2, 9, 110, -1, False, {}, parts=(other,)), 1.01)
    view.take(pulse(140, 100), 1.04)
    assert view.age_ms("orderer/q.0.a", 1.04) == 0


def test_rule_11_a_hole_in_a_log_is_reported_until_its_reader_falls_silent() -> None:
    view = HeartbeatView()
    view.observe(replace(A, process="root/climate.0", holes=(Hole("sw.ordered.q.0", 2, 5),)), 0.0)
    assert view.hole_in("sw.ordered.q.0", 2, 5, now_s=0.1)
    assert not view.hole_in("sw.ordered.q.0", 2, 6, now_s=0.1), "an older incarnation's hole"
    assert not view.hole_in("sw.ordered.q.0", 0, 5, now_s=0.1)
    assert not view.hole_in("sw.ordered.q.0", 2, 5, now_s=STALE_S + 0.1)
    view.observe(replace(A, process="root/climate.0"), 0.2)
    assert not view.hole_in("sw.ordered.q.0", 2, 5, now_s=0.3)


def test_ready_and_age() -> None:
    view = HeartbeatView()
    assert view.age_ms(A.process, 5.0) is None
    assert not view.ready(A.process, 5.0)
    view.observe(replace(A, ready=False), 1.0)
    assert not view.ready(A.process, 1.1)
    view.observe(A, 2.0)
    assert view.ready(A.process, 2.1)
    assert view.age_ms(A.process, 2.25) == 250.0
    assert not view.ready(A.process, 2.1 + STALE_S)
    assert view.all() == {A.process: A}


def test_a_hung_owner_reports_no_outputs_though_its_heartbeats_continue() -> None:
    """Heartbeats are sent by a thread.

    A hung orderer continued to report STABLE, and was waited for.
    """
    beat = replace(A, states={"sw.ordered.climate.0": "STABLE"})
    assert believable(beat, STATES_S_MAX) == beat
    hung = believable(beat, STATES_S_MAX + 0.001)
    assert hung.states == {}
    assert hung.detail == {}, "positions are reported by a running owner"
    assert hung.ready
    assert hung.inc == beat.inc, "its identity remains valid"


# A process with parts.


class Sent:
    """A producer that keeps its records."""

    def __init__(self) -> None:
        self.records: list[tuple[bytes, bytes]] = []
        self.came = threading.Condition()

    def produce(
        self,
        _topic: str,
        value: bytes,
        key: bytes,
        *,
        on_delivery: Callable[[None, None], None] | None,
        **_how: object,
    ) -> None:
        if on_delivery is not None:
            on_delivery(None, None)
        with self.came:
            self.records.append((key, value))
            self.came.notify_all()

    def poll(self, _timeout_s: float) -> None: ...

    def flush(self, _timeout_s: float) -> None: ...

    def purge(self) -> None: ...

    def until(self, holds: Callable[[Heartbeat], bool]) -> Heartbeat:
        """Return the latest one, once this holds for it."""

        def latest() -> Heartbeat | None:
            beat = decode_heartbeat(self.records[-1][1]) if self.records else None
            return beat if beat is not None and holds(beat) else None

        with self.came:
            found = self.came.wait_for(latest, WAIT_S_MAX)
        assert found is not None
        return found


class Measured(OwnCpu):
    def share(self) -> CpuShare:
        return CpuShare(0.25, 0.5)


@pytest.fixture(name="health")
def _health(tmp_path: Path) -> Path:
    return tmp_path / "healthy"


@pytest.fixture(name="sent")
def _sent(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, health: Path
) -> Iterator[tuple[HeartbeatSender, Sent]]:
    """Return the sender; the parameter is the time between two heartbeats."""
    sent = Sent()
    monkeypatch.setattr("slackwater.runtime.service.heartbeats.Producer", lambda _config: sent)
    sender = HeartbeatSender(
        "127.0.0.1:1",
        "host/1",
        names=Names(),
        health_file=health,
        interval_s=getattr(request, "param", INTERVAL_S),
        carries=True,
        cpu=Measured(),
    )
    yield sender.start(), sent
    sender.stop()


def parts(beat: Heartbeat) -> dict[str, Heartbeat]:
    return {each.process: each for each in beat.each()}


def test_one_record_tells_of_all_parts(sent: tuple[HeartbeatSender, Sent]) -> None:
    sender, records = sent
    a, b = sender.add_part("orderer/q.0.a"), sender.add_part("orderer/r.0.a")
    a.update(inc=7, ready=True, states={"sw.ordered.q.0": "STABLE"}, detail={"readings": 3})
    b.update(inc=2, holes=(Hole("sw.deltas.r.0", 0, 9),))
    beat = records.until(lambda beat: {each.inc for each in beat.each()} == {7, 2})
    assert {key for key, _ in records.records} == {b"host/1"}
    view = HeartbeatView()
    for each in beat.each():
        view.observe(each, 1.0)
    assert set(view.all()) == {"orderer/q.0.a", "orderer/r.0.a"}
    latest = view.latest("orderer/q.0.a")
    assert latest is not None
    assert (latest.inc, latest.ready, latest.pid) == (7, True, os.getpid())
    assert latest.states == {"sw.ordered.q.0": "STABLE"}
    assert latest.detail["readings"] == 3
    assert cpu_share(latest) == CpuShare(0.25, 0.5), "its process's"
    assert view.hole_in("sw.deltas.r.0", 0, 9, 1.0)
    assert view.superseded("orderer/q.0.a", 6)


def test_a_part_that_is_removed_falls_silent_and_one_that_follows_began_later(
    sent: tuple[HeartbeatSender, Sent],
) -> None:
    sender, records = sent
    sender.add_part("orderer/r.0.a")
    sender.add_part("orderer/q.0.a").update(inc=7, ready=True)
    first = parts(records.until(lambda beat: any(each.ready for each in beat.each())))
    sender.remove_part("orderer/q.0.a")
    assert set(parts(records.until(lambda beat: len(beat.parts) == 1))) == {"orderer/r.0.a"}
    sender.add_part("orderer/q.0.a").update(inc=9)
    second = parts(records.until(lambda beat: any(each.inc == 9 for each in beat.each())))
    assert second["orderer/q.0.a"].started_at > first["orderer/q.0.a"].started_at
    assert not second["orderer/q.0.a"].ready


def test_a_process_without_parts_sends_no_heartbeat(sent: tuple[HeartbeatSender, Sent]) -> None:
    """Its own name would be one more process for every reader."""
    sender, records = sent
    sender.add_part("proxy/room")
    records.until(lambda beat: len(beat.parts) == 1)
    sender.remove_part("proxy/room")
    sender.add_part("proxy/lab")
    records.until(lambda beat: set(parts(beat)) == {"proxy/lab"})
    reported = {name for _, value in records.records for name in parts(decode_heartbeat(value))}
    assert reported == {"proxy/room", "proxy/lab"}


def test_a_process_without_parts_yet_may_report_that_it_is_ready(
    sent: tuple[HeartbeatSender, Sent],
) -> None:
    sender, records = sent
    sender.update(ready=True)
    beat = records.until(lambda beat: beat.ready)
    assert [each.process for each in beat.each()] == ["host/1"]


def test_a_process_is_healthy_when_all_that_it_carries_is_ready(
    sent: tuple[HeartbeatSender, Sent], health: Path
) -> None:
    sender, records = sent
    lab = sender.add_part("proxy/lab")
    lab.update(ready=True)
    room = sender.add_part("proxy/room")
    records.until(lambda beat: len(beat.parts) == 2)
    health.unlink(missing_ok=True)  # from before there was room
    room.update(inc=3)
    records.until(lambda beat: parts(beat)["proxy/room"].inc == 3)
    assert not health.exists()
    room.update(ready=True)
    records.until(lambda beat: parts(beat)["proxy/room"].ready)

    def is_healthy() -> bool:
        for part in (lab, room):
            part.update()  # each owner is running
        return health.exists()

    eventually(is_healthy)


@pytest.mark.parametrize("sent", [10 * WAIT_S_MAX], indirect=True)
def test_a_state_that_changes_is_sent_at_once(sent: tuple[HeartbeatSender, Sent]) -> None:
    """One of many is reported as quickly as one alone: no change waits for the next heartbeat."""
    sender, records = sent
    part = sender.add_part("orderer/q.0.a")
    for turn in range(20):
        part.update(states={"out": f"{turn}"})
        wanted = part.to_heartbeat(0, {}).states
        records.until(lambda beat: [p.states for p in beat.parts] == [wanted])  # noqa: B023


def test_each_owner_is_judged_by_its_own_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "slackwater.runtime.service.beat.time", SimpleNamespace(monotonic=lambda: 1_000.0)
    )
    reported = [
        HeartbeatState(name, 1, lambda: None, owner_updates=True) for name in ("speaks", "hangs")
    ]
    for beat in reported:
        beat.update(ready=True, states={"out": "STABLE"}, detail={"at": 1})
    reported[1]._updated_s -= STATES_S_MAX + 1
    speaks, hangs = (part_of(beat.to_heartbeat(5, {})) for beat in reported)
    assert (speaks.states, speaks.detail) == ({"out": "STABLE"}, {"at": 1})
    assert (hangs.states, hangs.detail, hangs.ready) == ({}, {}, True)


def test_a_heartbeat_carries_the_cpu_that_its_sender_has_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was measured, but the reason that `status` gives for an overload was never sent."""
    sent = Sent()
    monkeypatch.setattr("slackwater.runtime.service.heartbeats.Producer", lambda _config: sent)
    sender = HeartbeatSender("127.0.0.1:1", "root/q.0", names=Names(), cpu=Measured()).start()
    (beat,) = sent.until(lambda _: True).each()
    sender.stop()
    assert beat.process == "root/q.0"
    assert cpu_share(beat) == CpuShare(0.25, 0.5)


def test_rule_11_holes_are_those_of_who_is_at_work() -> None:
    view, hole = HeartbeatView(), Hole("sw.deltas.q.0", 3, 7)
    view.observe(replace(A, holes=(hole,)), 1.0)
    view.observe(
        replace(A, process="root/r.0", holes=(replace(hole, partition=5),), ready=False), 1.0
    )
    assert view.holes(1.0 + STALE_S) == {("sw.deltas.q.0", 3)}
    assert view.holes(1.01 + STALE_S) == frozenset()


# --- pulses ---------------------------------------------------------------------------------------


def carrier(at: int, *names: str, pid: int = 1) -> Heartbeat:
    """Return a host's full record of these parts."""
    reported = tuple(HeartbeatPart(name, 5, 0, True, {name: "STABLE"}) for name in names)
    return Heartbeat("host/0", pid, 5, at, -1, False, {}, parts=reported)


def pulse(at: int, repeats: int, pid: int = 1) -> Heartbeat:
    return Heartbeat("host/0", pid, 5, at, -1, False, {}, repeats=repeats)


def test_a_pulse_keeps_the_parts_of_its_full_record_alive() -> None:
    view = HeartbeatView()
    assert view.take(carrier(100, "orderer/q.0.a", "orderer/r.0.a"), 1.0)
    assert not view.take(pulse(140, 100), 1.04)
    assert not view.take(pulse(180, 100), 1.08)
    assert [view.age_ms(name, 1.08) for name in view.all()] == [0.0, 0.0]
    assert "host/0" not in view.all(), "it has only parts"


def test_a_part_that_the_latest_full_record_leaves_out_is_not_kept_alive() -> None:
    """It is paused, or has ended; its last heartbeat becomes stale as usual."""
    view = HeartbeatView()
    view.take(carrier(100, "orderer/q.0.a", "orderer/r.0.a"), 1.0)
    view.take(carrier(200, "orderer/q.0.a"), 1.1)
    view.take(pulse(240, 200), 1.14)
    assert view.age_ms("orderer/r.0.a", 1.14) == pytest.approx(140)
    assert view.age_ms("orderer/q.0.a", 1.14) == 0


def test_a_pulse_of_a_record_that_was_not_received_has_no_effect() -> None:
    """The full record in between was lost: its content is unknown."""
    view = HeartbeatView()
    view.take(pulse(90, 50), 0.9)
    view.take(carrier(100, "orderer/q.0.a"), 1.0)
    view.take(pulse(240, 200), 1.14)
    view.take(pulse(240, 100, pid=2), 1.14)
    assert view.age_ms("orderer/q.0.a", 1.14) == pytest.approx(140)


def test_a_zombie_s_pulses_do_not_keep_its_successor_alive() -> None:
    view = HeartbeatView()
    view.take(carrier(100, "orderer/q.0.a"), 1.0)
    moved = HeartbeatPart("orderer/q.0.a", 9, 1, True, {})
    view.take(Heartbeat("host/1", 2, 9, 110, -1, False, {}, parts=(moved,)), 1.01)
    view.take(pulse(140, 100), 1.04)
    assert view.age_ms("orderer/q.0.a", 1.04) == pytest.approx(30)


@pytest.mark.parametrize("sent", [3600.0], indirect=True)
def test_an_interval_becomes_shorter_and_not_longer(sent: tuple[HeartbeatSender, Sent]) -> None:
    """Queries with replicas are applied after their host's start."""
    sender, records = sent
    sender.add_part("orderer/q.0.a")
    full = records.until(lambda beat: len(beat.parts) == 1)
    sender.shorten_interval(0.01)
    sender.shorten_interval(3600.0)
    first = records.until(lambda beat: beat.at > full.at)
    records.until(lambda beat: beat.at > first.at and not beat.parts)


@pytest.mark.parametrize("sent", [0.005], indirect=True)
def test_an_unchanged_state_is_not_sent_each_time(sent: tuple[HeartbeatSender, Sent]) -> None:
    sender, records = sent
    part = sender.add_part("orderer/q.0.a")
    full = records.until(lambda beat: len(beat.parts) == 1)
    first = records.until(lambda beat: beat.repeats > full.at - 1)
    assert not first.parts
    part.update(detail={"readings": 8})
    again = records.until(lambda beat: len(beat.parts) == 1)
    assert again.at > first.at, "counters are sent in time"
    reported = [decode_heartbeat(value) for _, value in records.records]
    assert len([beat for beat in reported if beat.parts]) < len(reported) / 2
    named = {beat.at for beat in reported if beat.parts}
    assert {beat.repeats for beat in reported if not beat.parts} <= named


@pytest.mark.parametrize(
    "change",
    [
        lambda part: part.update(states={"o": "STABLE"}),
        lambda part: part.update(holes=(Hole("sw.deltas.r.0", 0, 9),)),
        lambda part: part.update(inc=3),
        lambda part: part.update(ready=True),
    ],
    ids=["states", "holes", "inc", "ready"],
)
@pytest.mark.parametrize("sent", [3600.0], indirect=True)
def test_a_changed_state_is_sent_at_once(
    sent: tuple[HeartbeatSender, Sent], change: Callable[[HeartbeatState], None]
) -> None:
    sender, records = sent
    part = sender.add_part("orderer/q.0.a")
    records.until(lambda beat: len(beat.parts) == 1)
    before = len(records.records)
    change(part)
    full = records.until(lambda _: len(records.records) > before)
    assert len(full.parts) == 1


@pytest.mark.parametrize("sent", [3600.0], indirect=True)
def test_a_part_that_stands_still_is_left_out_at_once(sent: tuple[HeartbeatSender, Sent]) -> None:
    """Pulses of the record before would keep it alive."""
    sender, records = sent
    sender.add_part("orderer/r.0.a")
    part = sender.add_part("orderer/q.0.a")
    records.until(lambda beat: len(beat.parts) == 2)
    part.is_silent = True
    assert set(parts(records.until(lambda beat: len(beat.parts) == 1))) == {"orderer/r.0.a"}
    part.is_silent = False
    records.until(lambda beat: len(beat.parts) == 2)


def test_a_listener_that_is_to_hear_sooner_asks_the_broker_to_gather_for_less_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    transport, asked = MemoryBroker(), list[int]()
    transport.create_topic(transport.names.heartbeats)
    reader = transport.reader

    def asked_reader(*, prefetch_kib_max: int, gather_ms: int) -> object:
        asked.append(gather_ms)
        return reader(prefetch_kib_max=prefetch_kib_max, gather_ms=gather_ms)

    monkeypatch.setattr(transport, "reader", asked_reader)
    listener = HeartbeatListener(transport, gather_ms=50).start()
    eventually(lambda: asked == [50])
    listener.shorten_gather(20)
    eventually(lambda: asked == [50, 20])
    listener.shorten_gather(100)  # another fragment hears soon enough
    assert listener.wait_for(lambda _: True)
    listener.stop()
    assert asked == [50, 20]
