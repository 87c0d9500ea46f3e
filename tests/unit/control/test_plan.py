"""What a machine does so that it runs what the record wants."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slackwater.control.plan import Apply, SetState, State, changes

STATES: list[State] = ["running", "paused", "deleted"]
NAMES = st.sampled_from("abcdef")
RECORDS = st.dictionaries(NAMES, st.sampled_from(STATES))
STAGES = {name: place // 2 for place, name in enumerate("abcdef")}


def made(change: Apply | SetState, registered: dict[str, State]) -> None:
    """Make a change as a stack does."""
    match change:
        case Apply(name):
            assert name not in registered, "it runs already, or its name is used up"
            registered[name] = "running"
        case SetState(name, state):
            assert registered[name] not in {state, "deleted"}
            registered[name] = state


@given(wanted=RECORDS, registered=RECORDS)
def test_what_is_wanted_is_reached_in_two_rounds(
    wanted: dict[str, State], registered: dict[str, State]
) -> None:
    before = dict(registered)
    for _round in range(2):
        for change in changes(wanted, registered, STAGES):
            made(change, registered)
    assert changes(wanted, registered, STAGES) == []
    for name, state in wanted.items():
        if before.get(name) == "deleted":
            assert registered[name] == "deleted", "a deleted query does not come back"
        elif state == "deleted":
            assert registered.get(name, "deleted") == "deleted"
        else:
            assert registered[name] == state
    assert {n: s for n, s in registered.items() if n not in wanted} == {
        n: s for n, s in before.items() if n not in wanted
    }


@given(wanted=RECORDS, registered=RECORDS, stop=st.integers(0, 10))
def test_an_agent_that_crashes_goes_on_where_it_was(
    wanted: dict[str, State], registered: dict[str, State], stop: int
) -> None:
    other = dict(registered)
    for change in changes(wanted, registered, STAGES)[:stop]:
        made(change, registered)
    for state in (registered, other):
        for _round in range(2):
            for change in changes(wanted, state, STAGES):
                made(change, state)
    assert registered == other


def test_a_query_is_applied_after_those_that_it_reads_and_deleted_before_them() -> None:
    stages = {"source": 2, "reader": 4, "last": 6}
    wanted: dict[str, State] = dict.fromkeys(stages, "running")
    assert changes(wanted, {}, stages) == [Apply("source"), Apply("reader"), Apply("last")]
    gone: dict[str, State] = dict.fromkeys(stages, "deleted")
    assert changes(gone, wanted, stages) == [
        SetState(name, "deleted") for name in ("last", "reader", "source")
    ]
