"""The logs of a stage: cursors' sources, requested ends, suppression after a start."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from slackwater.protocols.common.inputs import InputLog, Inputs
from slackwater.protocols.common.line import LineName

STABLE, LIVE = LineName


def never(_end: int) -> int | None:
    """No deadline is known."""
    return None


@dataclass
class Place:
    """A cursor that accepts every record."""

    offset: int = 0
    attached: bool = False
    boundary: int = 0
    skipped: list[int] = field(default_factory=list)
    jumped: list[int] = field(default_factory=list)

    def jump(self, beginning: int) -> None:
        self.jumped.append(beginning)
        self.offset = beginning

    def skip_to(self, offset: int) -> None:
        self.skipped.append(offset)
        self.offset = offset


def of_one_log(
    live: int = 0, stable: int = 0, ahead_max: int = 10, *, has_markers: bool = False
) -> tuple[Inputs[str, Place], Place, Place]:
    places = Place(live), Place(stable)
    return Inputs({"a": InputLog(*places, ahead_max, has_markers)}, [["a"]], {}), *places


def lines(readers: object) -> list[LineName]:
    assert isinstance(readers, list)
    return [line for line, _ in readers]


def test_a_cursor_that_the_live_consumer_has_passed_begins_parked() -> None:
    inputs, live, stable = of_one_log(live=7, stable=3)
    assert (live.attached, stable.attached) == (True, False)
    assert inputs.positions == {"a": 7}
    assert inputs.parked(STABLE) == [("a", stable)]
    assert inputs.parked(LIVE) == []


def test_the_live_consumer_feeds_attached_cursors_and_one_that_stands_where_it_is() -> None:
    inputs, live, stable = of_one_log(live=7, stable=3)
    assert lines(inputs.receive("a", 7, 8)) == [LIVE]
    live.offset, stable.offset = 8, 8
    assert lines(inputs.receive("a", 8, 9)) == [LIVE, STABLE]
    assert stable.attached
    assert live.skipped == []


def test_an_attached_cursor_skips_what_is_not_in_the_log_any_more() -> None:
    inputs, live, stable = of_one_log(live=7, stable=3)
    assert lines(inputs.receive("a", 12, 13)) == [LIVE]
    assert (live.skipped, stable.skipped) == ([12], [])


def test_where_nothing_needs_a_record_the_live_consumer_passes_it_all_the_same() -> None:
    inputs, live, stable = of_one_log(live=7, stable=7)
    live.offset = stable.offset = 20
    assert not inputs.needs("a", 8)
    inputs.pass_by("a", 8)
    assert inputs.needs("a", 20)
    assert inputs.positions == {"a": 9}


def test_in_a_log_of_transactions_the_next_record_may_lie_beyond_the_next_offset() -> None:
    inputs, live, stable = of_one_log(live=7, stable=3, has_markers=True)
    stable.offset = 8  # a marker: there is no record for readers
    live.offset = 8
    assert lines(inputs.receive("a", 9, 12)) == [LIVE, STABLE]
    live.attached = stable.attached = False
    live.offset, stable.offset = 12, 11
    inputs.read_to("a", 15)
    assert (live.attached, live.offset) == (True, 15)
    assert (stable.attached, stable.offset) == (False, 11)
    assert inputs.positions == {"a": 15}


def test_a_catch_up_reader_of_such_a_log_passes_markers_too() -> None:
    inputs, _, stable = of_one_log(live=9, stable=3, has_markers=True)
    assert inputs.replaying(STABLE, "a", 1, 3) is None, "read already"
    assert inputs.replaying(STABLE, "a", 5, 7) is stable
    stable.offset = 7
    inputs.caught_up_to(STABLE, "a", 8)
    assert (stable.offset, stable.attached) == (8, False)
    inputs.caught_up_to(STABLE, "a", 9)
    assert stable.attached
    inputs.caught_up_to(STABLE, "a", 12)
    assert stable.offset == 9, "the live consumer feeds it now"


def test_every_record_of_such_a_log_is_needed_and_one_that_is_not_taken_moves_no_position() -> None:
    inputs, live, stable = of_one_log(live=7, stable=7, has_markers=True)
    live.offset = stable.offset = 20
    assert inputs.needs("a", 8)
    assert inputs.positions == {"a": 7}


def test_a_parked_cursor_is_attached_where_it_has_reached_the_live_consumer() -> None:
    inputs, _, stable = of_one_log(live=7, stable=3)
    assert inputs.replaying(STABLE, "a", 4, 5) is None, "parked elsewhere"
    for offset in range(3, 7):
        assert inputs.replaying(STABLE, "a", offset, offset + 1) is stable
        stable.offset = offset + 1
        inputs.attach(STABLE, "a")
    assert stable.attached
    assert inputs.has_reached_consumer(STABLE, "a")
    assert inputs.replaying(STABLE, "a", 7, 8) is None, "the live consumer returns it"


def test_a_newcomer_s_cursors_are_parked_behind_and_far_beyond_its_host() -> None:
    inputs, live, stable = of_one_log(live=7, stable=3)
    inputs.live_at("a", 5)
    assert (live.attached, stable.attached) == (True, False)
    live.offset = 16
    inputs.live_at("a", 5)
    assert not live.attached


def test_a_loss_by_retention_is_passed_to_the_cursors_that_needed_it() -> None:
    inputs, live, stable = of_one_log(live=7, stable=3)
    inputs.begin_at({"a": 5})
    assert (live.jumped, stable.jumped) == ([], [5])
    assert (live.attached, stable.attached) == (True, False)
    inputs.position_gone(STABLE, "a", 6)
    inputs.position_gone(LIVE, "a", 9)
    assert (live.jumped, stable.jumped) == ([], [5, 6]), "records advance an attached cursor"
    inputs.begin_at({"a": 9})
    assert (live.attached, stable.attached) == (True, True)
    assert inputs.positions == {"a": 9}


def test_an_input_is_read_through_when_all_its_logs_are_read_to_their_ends() -> None:
    one, two = Place(), Place()
    logs = {"a": InputLog(one, None), "b": InputLog(two, None)}
    inputs = Inputs(logs, [["a", "b"]], {})
    assert inputs.probe(["a", "b"]) == ("a", "b")
    assert inputs.probe(["a", "b"]) == (), "a response is pending"
    inputs.answer({"a": 2, "b": 3}, fetched_at=50)
    one.offset = 2
    assert list(inputs.read_through(never)) == []
    assert inputs.probe(["a", "b"]) == ("a",), "another end may be requested"
    inputs.answer({"a": 2}, fetched_at=60)
    two.offset = 3
    assert set(inputs.read_through(never)) == {(0, 50)}
    assert not inputs.awaited


@pytest.mark.parametrize(
    ("attached", "boundary", "is_read"),
    [(False, 60, True), (False, 50, False), (True, 60, False)],
)
def test_a_log_parked_beyond_all_that_was_due_need_not_be_read_to_its_end(
    attached: bool, boundary: int, is_read: bool
) -> None:
    inputs, live, _ = of_one_log()
    inputs.probe(["a"])
    inputs.answer({"a": 5}, fetched_at=150)
    live.attached, live.boundary = attached, boundary
    found = inputs.read_through(lambda end: end + 100)
    assert list(found) == ([(0, 150)] if is_read else [])


def test_a_parked_log_is_read_to_its_end_while_the_end_is_unknown() -> None:
    inputs, live, _ = of_one_log()
    inputs.probe(["a"])
    live.attached, live.boundary = False, 1_000
    assert list(inputs.read_through(lambda end: end)) == []


@pytest.mark.parametrize(("offset", "boundary"), [(4, 0), (0, 100)])
def test_output_is_suppressed_until_the_log_is_read_or_read_far_enough(
    offset: int, boundary: int
) -> None:
    place = Place()
    inputs = Inputs({"a": InputLog(place, None)}, [["a"]], {"a": 4})
    assert inputs.has_unread
    assert inputs.is_unread(100)
    assert inputs.awaited == {"a"}
    place.offset, place.boundary = offset, boundary
    assert not inputs.is_unread(100)
    place.offset = place.boundary = 0
    assert not inputs.has_unread, "records remain read"
