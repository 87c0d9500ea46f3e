"""The child of each log, as it is declared and as it is registered."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.model.child_logs import (
    ChildLogs,
    ChildrenError,
    LogGroups,
    LogRange,
    check_groups,
    dealt,
    named,
    of_sources,
)

COUNTS = st.lists(st.integers(1, 20), min_size=1, max_size=5).map(
    lambda counts: {f"s{i}": count for i, count in enumerate(counts)}
)


@st.composite
def dealt_out(draw: st.DrawFn) -> tuple[Mapping[str, int], int, ChildLogs]:
    counts = draw(COUNTS)
    children = draw(st.integers(1, min(8, sum(counts.values()))))
    return counts, children, dealt(counts, children, in_order=draw(st.booleans()))


@given(dealt_out())
def test_children_have_all_logs_in_order_and_evenly(
    made: tuple[Mapping[str, int], int, ChildLogs],
) -> None:
    counts, children, found = made
    of_all = [child for source in counts for child in found.there(source)]
    assert of_all == sorted(of_all)
    assert {source: len(of) for source, of in found.logs} == counts
    sizes = [of_all.count(child) for child in range(children)]
    assert 1 <= min(sizes) >= max(sizes) - 1
    found.check([*counts], children)


@given(dealt_out(), st.integers(0, 30))
def test_each_log_that_is_added_is_in_one_child_that_has_another_one(
    made: tuple[Mapping[str, int], int, ChildLogs], more: int
) -> None:
    counts, children, found = made
    for source, count in counts.items():
        number = count + more
        of = [found.of_child(child, source, number) for child in range(children)]
        assert sorted(log for logs in of for log in logs) == [*range(number)]
        there = {child for child, logs in enumerate(of) if logs}
        assert there == {c for c in range(children) if source in found.streams_of(c)}


@given(dealt_out(), st.integers(0, 30))
def test_a_child_knows_the_next_log_that_is_its_own(
    made: tuple[Mapping[str, int], int, ChildLogs], number: int
) -> None:
    counts, children, found = made
    for source in counts:
        for child in range(children):
            coming = found.next_of(child, source, number)
            own = [log for log in found.of_child(child, source, 200) if log >= number]
            assert coming == (own[0] if own else None)


@given(COUNTS, st.integers(1, 8), st.integers(0, 20))
def test_equal_times_keep_the_order_of_the_logs(
    counts: dict[str, int], children: int, more: int
) -> None:
    found = dealt(counts, min(children, sum(counts.values())), in_order=True)
    of_all = [found.child_of(s, log) for s, count in counts.items() for log in range(count + more)]
    assert of_all == sorted(of_all)


@given(st.integers(1, 40), st.integers(1, 40))
def test_without_an_assignment_each_source_has_one_child(streams: int, children: int) -> None:
    names = tuple(f"s{i}" for i in range(streams))
    found = of_sources(names, children)
    shares = [found.streams_of(child) for child in range(children)]
    assert sum(shares, ()) == names
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert all(found.child_of(name, 7) == found.child_of(name, 0) for name in names)


def test_added_logs_are_dealt_out_in_turn() -> None:
    found = dealt({"lab": 4}, 2, in_order=False)
    assert dict(found.logs) == {"lab": (0, 0, 1, 1)}
    assert [found.child_of("lab", log) for log in range(4, 9)] == [0, 1, 0, 1, 0]
    assert all(found.takes_in("lab", log) for log in range(9))


def test_where_order_counts_the_child_of_the_last_log_takes_the_added_ones() -> None:
    found = dealt({"lab": 4, "room": 1}, 3, in_order=True)
    assert dict(found.logs) == {"lab": (0, 0, 1, 1), "room": (2,)}
    assert [found.child_of("lab", log) for log in (4, 5)] == [1, 1]


GROUPS: LogGroups = (("north", ("room-1", "lab/0-1")), ("south", ("lab/2-",)))


def test_named_children_have_the_logs_that_are_named() -> None:
    found = named(GROUPS, {"lab": 4, "room-1": 1}, in_order=False)
    assert dict(found.logs) == {"lab": (0, 0, 1, 1), "room-1": (0,)}
    assert [found.child_of("lab", log) for log in (4, 9)] == [1, 1]
    assert [found.streams_of(child) for child in (0, 1)] == [("lab", "room-1"), ("lab",)]


def test_without_an_open_range_an_added_log_is_not_taken_in() -> None:
    groups = (("south", ("lab/2-3",)), ("north", ("lab/0", "lab/1")))
    found = named(groups, {"lab": 4}, in_order=False)
    assert dict(found.logs) == {"lab": (1, 1, 0, 0)}
    assert not found.takes_in("lab", 4)
    assert [found.child_of("lab", log) for log in (4, 9)] == [0, 0], "it is tentative"
    assert found.next_of(0, "lab", 4) == 4
    assert found.next_of(1, "lab", 4) is None


@pytest.mark.parametrize(
    ("groups", "place", "reason"),
    [
        ({"a": ["lab/0-3", "room"], "b": ["lab/3"]}, ("b", 0), "lab/3 is also in a"),
        ({"a": ["lab", "room"], "b": ["room"]}, ("b", 0), "room is also in a"),
        ({"a": ["lab", "lab/0", "room"]}, ("a", 1), "lab/0 is twice in it"),
        ({"a": ["lab/0-1", "room"]}, (), "lab/2 is in no child: lab has 4 logs"),
        ({"a": ["lab/0", "room"], "b": ["lab/2-"]}, ("b", 0), "lab/1 is in no child"),
        ({"a": ["lab/1-", "room"]}, ("a", 0), "lab/0 is in no child"),
        ({"a": ["lab"]}, (), "room is in no child"),
        ({"a": ["lab", "room"], "b": []}, ("b",), "must have at least one log"),
        ({"a": ["lab", "room", "hall"]}, ("a", 2), "'hall' is not in from"),
        ({"a": ["lab/0-4", "room"]}, ("a", 0), "there is no lab/4: lab has 4 logs, 0 to 3"),
        ({"a": ["lab/0-3", "room"], "b": ["lab/4-"]}, ("b", 0), "there is no lab/4"),
        ({"a": ["lab", "room/0-1"]}, ("a", 1), "there is no room/1: room has 1 log"),
        ({"a": ["lab/3-2", "room"]}, ("a", 0), "'lab/3-2' ends before it begins"),
        ({"a": ["lab/x", "room"]}, ("a", 0), "'lab/x' is not a stream or its logs"),
        ({"a": ["lab/", "room"]}, ("a", 0), "'lab/' is not a stream or its logs"),
    ],
)
def test_named_children_are_checked(
    groups: dict[str, list[str]], place: tuple[str | int, ...], reason: str
) -> None:
    made = tuple((name, tuple(of)) for name, of in groups.items())
    with pytest.raises(ChildrenError, match=reason) as raised:
        named(made, {"lab": 4, "room": 1}, in_order=False)
    assert raised.value.place == place


def test_what_does_not_depend_on_the_number_of_partitions_is_checked_without_it() -> None:
    check_groups(GROUPS, {"lab": None, "room-1": 1}, in_order=False)
    with pytest.raises(ChildrenError, match="in the order of from"):
        check_groups(GROUPS, {"lab": None, "room-1": 1}, in_order=True)
    check_groups(GROUPS, {"room-1": 1, "lab": None}, in_order=True)
    with pytest.raises(ChildrenError, match="5 children, but only 4 logs for them: s has 4"):
        dealt({"s": 4}, 5, in_order=False)


@pytest.mark.parametrize("text", ["lab", "lab/3", "lab/0-15", "lab/16-"])
def test_a_range_is_written_as_it_is_read(text: str) -> None:
    assert str(LogRange.parse(text)) == text


def test_an_assignment_travels_as_json() -> None:
    found = named(GROUPS, {"lab": 4, "room-1": 1}, in_order=False)
    assert ChildLogs.from_json(json.loads(json.dumps(found.to_json()))) == found


@pytest.mark.parametrize(
    ("logs", "added"),
    [
        ({"s": (0, 0)}, {}),
        ({"s": (0, 2)}, {}),
        ({"t": (0, 1)}, {}),
        ({"s": (0, 1), "t": ()}, {}),
        ({"s": (0, 1)}, {"s": ()}),
        ({"s": (0, 1)}, {"s": (2,)}),
        ({"s": (0, 1)}, {"t": (0,)}),
    ],
)
def test_an_assignment_of_others_is_refused(
    logs: dict[str, tuple[int, ...]], added: dict[str, tuple[int, ...]]
) -> None:
    with pytest.raises(ValueError, match="log"):
        ChildLogs.of(logs, added).check([*logs] if "t" in logs and logs["t"] == () else ["s"], 2)
