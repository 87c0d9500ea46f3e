"""State shared by the thread of an MQTT connection and the thread of its stream."""

from __future__ import annotations

import threading

from slackwater.proxy.mqtt.link import KEPT_US_MAX, SETTLE_US, TICK_US, Link, Message, Window


def message(mid: int = 0, payload: bytes = b"x", connection: int = 1) -> Message:
    return Message("t", payload, len(payload), mid=mid, connection=connection)


def opened(in_flight: int = 4, bytes_max: int = 1_000_000) -> Link:
    link = Link(in_flight, bytes_max)
    link.opened(lambda: None)
    link.subscribed()
    return link


def test_messages_go_one_way_and_acknowledgements_the_other() -> None:
    link = opened()
    for mid in (3, 4, 5):
        link.put(message(mid))
    taken, _ = link.take(2)
    assert [m.mid for m in taken] == [3, 4]
    assert link.waiting == 1
    link.acknowledge(taken)
    assert link.acknowledgements(0) == [3, 4]
    assert link.acknowledgements(0) == []


def test_a_connection_that_ends_takes_its_messages_with_it() -> None:
    link = opened()
    link.put(message(3))
    link.put(message(0))  # QoS 0: the broker does not send it again
    link.put(message(4))
    taken, _ = link.take(1)
    link.closed()
    assert not link.is_connected
    assert [m.mid for m in link.take(9)[0]] == [0]
    link.opened(lambda: None)
    link.acknowledge(taken)  # its id may be that of another message by now
    assert link.acknowledgements(0) == []


def test_bytes_are_bounded_and_room_wakes_the_connection() -> None:
    woken = []
    link = Link(4, bytes_max=2_000)
    link.opened(lambda: woken.append(1))
    full = []
    link.put(message(1, b"x" * 2_000))
    full.append((link.is_full, len(woken)))
    link.take(1)
    full.append((link.is_full, len(woken)))
    assert full == [(True, 0), (False, 1)]


def test_what_is_ignored_is_acknowledged() -> None:
    link = opened()
    link.ignored(7)
    link.ignored(0)
    assert link.acknowledgements(0) == [7]
    assert link.retained == 2


def test_a_wait_ends_with_enough_messages_or_an_answer() -> None:
    link = opened()
    link.wait(1, 0.0)
    for act in (lambda: link.put(message(1)), link.answered):
        link.take(9)
        link.ask()
        link.probe_is_due(10)
        thread = threading.Thread(target=act)
        thread.start()
        link.wait(1, 60.0)
        thread.join()
        assert link.waiting or link.take(9) == ([], 10)


# Probes.


def test_an_answered_probe_clears_the_time_at_which_it_was_sent() -> None:
    link = opened()
    assert not link.probe_is_due(5)  # none is requested
    link.ask()
    assert link.probe_is_due(10)
    assert not link.probe_is_due(11)  # one at a time
    assert link.take(9) == ([], None)
    link.answered()
    assert link.take(9) == ([], 10)
    assert link.take(9) == ([], None)


def test_a_time_is_clear_once_the_messages_before_it_are_taken() -> None:
    link = opened()
    link.put(message(1))
    link.put(message(2))
    link.ask()
    assert link.probe_is_due(10)
    link.answered()
    assert link.take(1) == ([message(1)], None)
    assert link.take(1) == ([message(2)], 10)


def test_it_is_not_clear_when_the_connection_ends_before() -> None:
    link = opened()
    link.put(message(1))
    link.ask()
    assert link.probe_is_due(10)
    link.answered()
    link.closed()
    assert link.take(9) == ([], None)


def test_no_probe_before_all_filters_are_subscribed() -> None:
    link = Link(4)
    link.opened(lambda: None)
    link.ask()
    assert not link.probe_is_due(1)
    link.subscribed()
    assert link.probe_is_due(2)


def test_a_full_window_clears_nothing() -> None:
    link = opened(in_flight=2)
    link.put(message(1))
    link.put(message(2))
    link.ask()
    assert link.probe_is_due(10)
    link.answered()
    assert link.take(9)[1] is None


def test_an_answer_of_an_earlier_connection_clears_nothing() -> None:
    link = opened()
    link.ask()
    assert link.probe_is_due(10)
    link.closed()
    link.opened(lambda: None)
    link.subscribed()
    link.answered()
    assert link.take(9)[1] is None


def test_an_acknowledgement_counts_until_it_has_arrived() -> None:
    window = Window(2)
    window.received()
    assert not window.may_be_full(2 * SETTLE_US)
    window.received()
    assert window.may_be_full(2 * SETTLE_US)
    window.acknowledged(2, now_us=3 * SETTLE_US)
    assert window.may_be_full(4 * SETTLE_US)
    assert not window.may_be_full(4 * SETTLE_US + TICK_US + 1)


def test_acknowledgements_are_not_remembered_for_ever() -> None:
    window, now_us = Window(5), 0
    for _ in range(20_000):
        now_us += 1_000
        window.received()
        window.acknowledged(1, now_us)
    assert len(window._under_way) <= 1 + KEPT_US_MAX // TICK_US
    assert window.may_be_full(now_us)
    assert not window.may_be_full(now_us + SETTLE_US + TICK_US)
    assert window.may_be_full(now_us - 2 * KEPT_US_MAX)  # before the recorded time
