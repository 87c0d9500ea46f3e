"""The state of a rule for a key: what each row does, for all sequences of rows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slackwater.delivery.progress import KeyProgress
from slackwater.delivery.records import Firing


def row(window: int, *, tentative: bool = False) -> Firing:
    return Firing(f"w{window}", window, window + 1, {"t": 1.0}, (), tentative=tentative)


def states(windows: int, truths: list[bool]) -> list[str]:
    """Return the changes that exact rows lead to."""
    progress = KeyProgress()
    found: list[str] = []
    for at, is_true in enumerate(truths):
        progress, change = progress.exact_row(windows, row(at), is_true=is_true, is_forked=False)
        found += [change.state] if change else []
    return found


@given(st.integers(1, 4), st.lists(st.booleans(), max_size=30))
def test_it_fires_after_so_many_true_rows_and_ends_with_a_false_one(
    windows: int, truths: list[bool]
) -> None:
    expected, run, fires = [], 0, False
    for is_true in truths:
        run = run + 1 if is_true else 0
        if run >= windows and not fires:
            fires = True
            expected.append("firing")
        elif not is_true and fires:
            fires = False
            expected.append("ended")
    assert states(windows, truths) == expected


@given(st.integers(1, 3), st.lists(st.booleans(), min_size=1, max_size=30))
def test_tentative_rows_begin_at_most_one_alert_and_end_none(
    windows: int, truths: list[bool]
) -> None:
    progress, changes = KeyProgress(), []
    for at, is_true in enumerate(truths):
        began = row(at, tentative=True)
        progress, change = progress.tentative_row(windows, began, is_true=is_true)
        changes += [change.state] if change else []
    assert changes in ([], ["firing"])
    assert (progress.tentative is not None) == bool(changes)


@given(st.booleans(), st.integers(0, 5))
def test_a_tentative_alert_ends_when_its_window_is_exact(fires: bool, exact_to: int) -> None:
    progress, _ = KeyProgress().tentative_row(1, row(3, tentative=True), is_true=True)
    if fires:
        progress, _ = progress.exact_row(1, row(3), is_true=True, is_forked=True)
    after, change = progress.judged(exact_to, {"t": 2.0})
    if exact_to < 3:
        assert (after, change) == (progress, None)
    else:
        assert change is not None
        assert change.state == ("confirmed" if fires else "withdrawn")
        assert (change.began.values, change.exact) == ({"t": 1.0}, {"t": 2.0})
        assert after.judged(exact_to, None)[1] is None, "it ends once"


@given(st.integers(1, 3), st.lists(st.tuples(st.booleans(), st.booleans()), max_size=20))
def test_what_is_stored_is_all_there_is(windows: int, rows: list[tuple[bool, bool]]) -> None:
    progress = KeyProgress()
    for at, (is_exact, is_true) in enumerate(rows):
        if is_exact:
            progress, _ = progress.exact_row(windows, row(at), is_true=is_true, is_forked=True)
        else:
            began = row(at, tentative=True)
            progress, _ = progress.tentative_row(windows, began, is_true=is_true)
    stored = progress.to_json()
    assert (KeyProgress() if stored is None else KeyProgress.from_json(stored)) == progress
