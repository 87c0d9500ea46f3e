"""The checkers: a correct history passes, and each kind of fault in it is found and named."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.histories import Root, batch, expectations

from slackwater.codec.results import format_time
from slackwater.judge.batch import ExactAggregates, exact_aggregates
from slackwater.judge.check import Checker, Disturbance, Verdict, compare, to_us
from slackwater.judge.latency import latencies
from slackwater.primitives.aggregates import AGGREGATES

CELLS = batch(
    {
        (second, key): {"room-1": 2, "room-2": 3}
        for second in range(1_000, 1_010)
        for key in ("a", "b")
        if second != 1_007
    }
)
S = 1_000_000


def history() -> list[dict[str, Any]]:
    """Return two stable windows, three tentative, corrected in two transactions, and the rest."""
    root = Root(expectations(), CELLS)
    root.stable(2)
    root.tentative(3, ["room-2"])
    root.stable(1)
    root.stable(3)
    root.stable(1)
    root.empty_run(1)
    root.stable(2)
    return root.records


def judge(records: list[dict[str, Any]]) -> Verdict:
    checker = Checker(expectations(), CELLS)
    for record in records:
        checker.feed(record)
    return checker.finish()


def renumbered(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [record | {"seq": seq} for seq, record in enumerate(records)]


def test_a_faultless_history_passes() -> None:
    verdict = judge(history())
    assert verdict.findings == []
    assert verdict.ok
    assert (verdict.windows, verdict.n_tentative, verdict.undone) == (10, 3, 3)


@given(st.lists(st.tuples(st.sampled_from(["stable", "tentative"]), st.integers(1, 4)), max_size=9))
def test_whatever_a_faultless_root_does_passes(steps: list[tuple[str, int]]) -> None:
    agreed = expectations()
    root = Root(agreed, CELLS)
    behind = agreed.first + agreed.windows * agreed.window.slide_us
    for step, windows in steps:
        if step == "tentative":
            root.tentative(min(windows, (behind - root.answered_to) // S), ["room-1"])
        elif (n := min(windows, (behind - root.stable_from) // S)) > 0:
            root.stable(n)
    if root.stable_from < behind:
        root.stable((behind - root.stable_from) // S)
    verdict = judge(root.records)
    assert verdict.findings == []


def index(records: list[dict[str, Any]], **wanted: Any) -> int:
    return next(
        i for i, r in enumerate(records) if all(r.get(name) == v for name, v in wanted.items())
    )


def drop_row(records: list[dict[str, Any]]) -> None:
    at = index(records, kind="stable", key="b")
    del records[at]
    records[index(records, kind="boundary")]["keys"] = 1


def double_row(records: list[dict[str, Any]]) -> None:
    at = index(records, kind="stable", key="b")
    records.insert(at, copy.deepcopy(records[at]))


def double_window(records: list[dict[str, Any]]) -> None:
    at = index(records, kind="boundary") + 1
    records[at:at] = copy.deepcopy(records[:at])


def no_undo(records: list[dict[str, Any]]) -> None:
    del records[index(records, kind="undo")]


def undo_after(records: list[dict[str, Any]]) -> None:
    at = index(records, kind="undo")
    records.insert(at + 3, records.pop(at))


def no_rec_done(records: list[dict[str, Any]]) -> None:
    del records[index(records, kind="rec_done")]


def early_rec_done(records: list[dict[str, Any]]) -> None:
    at = index(records, kind="rec_done")
    records.insert(index(records, kind="undo"), copy.deepcopy(records[at]))


def never_corrected(records: list[dict[str, Any]]) -> None:
    del records[index(records, kind="undo") :]


def other_figure(records: list[dict[str, Any]]) -> None:
    records[index(records, kind="stable")]["fields"]["x"]["sum"] += 1e-6


def other_count(records: list[dict[str, Any]]) -> None:
    records[index(records, kind="stable")]["fields"]["x"]["count"] = 4


def unknown_key(records: list[dict[str, Any]]) -> None:
    records[index(records, kind="stable", key="b")]["key"] = "c"


def mislabelled(records: list[dict[str, Any]]) -> None:
    for record in records:
        if record["kind"] == "tentative" or record.get("label") == "tentative":
            record["missing"] = ["room-1"]


def early(records: list[dict[str, Any]]) -> None:
    at = index(records, kind="boundary", label="tentative")
    records[at]["emitted_at"] = records[0]["emitted_at"]


def stable_future(records: list[dict[str, Any]]) -> None:
    at = index(records, kind="boundary", label="stable")
    records[at]["emitted_at"] = format_time(to_us(records[at]["emitted_at"]) - 10_000)


def second_tentative(records: list[dict[str, Any]]) -> None:
    at = index(records, kind="boundary", label="tentative")
    records.insert(at, copy.deepcopy(records[at]) | {"keys": 2})


def missing_when_stable(records: list[dict[str, Any]]) -> None:
    records[0]["missing"] = records[1]["missing"] = ["room-1"]
    records[2]["missing"] = ["room-1"]


def wrong_keys(records: list[dict[str, Any]]) -> None:
    records[index(records, kind="boundary")]["keys"] = 7


def out_of_key_order(records: list[dict[str, Any]]) -> None:
    records[0]["key"], records[1]["key"] = "b", "a"


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (drop_row, "lost"),
        (double_row, "doubled"),
        (double_window, "doubled"),
        (no_undo, "uncorrected"),
        (undo_after, "uncorrected"),
        (never_corrected, "uncorrected"),
        (never_corrected, "lost"),
        (no_rec_done, "wrong"),
        (early_rec_done, "wrong"),
        (other_figure, "wrong"),
        (other_count, "wrong"),
        (unknown_key, "wrong"),
        (unknown_key, "lost"),
        (mislabelled, "wrong"),
        (early, "wrong"),
        (stable_future, "wrong"),
        (second_tentative, "doubled"),
        (missing_when_stable, "wrong"),
        (wrong_keys, "wrong"),
        (out_of_key_order, "wrong"),
    ],
)
def test_each_fault_is_found(fault: Any, kind: str) -> None:
    records = copy.deepcopy(history())
    fault(records)
    verdict = judge(renumbered(records))
    assert not verdict.ok
    assert getattr(verdict, kind) > 0, verdict.findings


def test_a_window_is_stable_before_its_end_where_the_inputs_have_ended() -> None:
    records = history()
    records[-1]["emitted_at"] = format_time(to_us(records[-1]["emitted_at"]) - S)
    ended = expectations(last_reading=1_008 * S)
    for allowed, wrong in ((ended, 0), (expectations(early=S), 0), (expectations(), 1)):
        checker = Checker(allowed, CELLS)
        for record in records:
            checker.feed(record)
        assert checker.finish().wrong == wrong, checker.verdict.findings


def skipping() -> list[dict[str, Any]]:
    """Return five overdue, skipped windows, answers for the next, and corrections of all."""
    root = Root(expectations(), CELLS)
    root.stable(2)
    root.skip(5, ["room-2"])
    root.tentative(1, ["room-2"])
    root.stable(4)
    root.stable(4)
    return root.records


def test_windows_that_are_skipped_are_tentative_answers_without_content() -> None:
    verdict = judge(skipping())
    assert verdict.findings == []
    assert (verdict.n_tentative, verdict.undone) == (6, 6)


def test_a_skipped_window_is_a_late_first_answer() -> None:
    checker = Checker(expectations(), CELLS)
    for record in skipping():
        checker.feed(record)
    late = latencies(checker, ()).ms
    assert (late[2:7] >= 500).all()
    assert (late[[0, 1]] < 10).all()


def skipped_in_time(records: list[dict[str, Any]]) -> None:
    run = records[index(records, skipped=True)]
    run["emitted_at"] = format_time(to_us(run["due_at"]) + expectations().bound - 2_000)


def skipped_as_if_empty(records: list[dict[str, Any]]) -> None:
    del records[index(records, skipped=True)]["skipped"]


def skipped_with_keys(records: list[dict[str, Any]]) -> None:
    records[index(records, skipped=True)]["keys"] = 2


def skipped_for_good(records: list[dict[str, Any]]) -> None:
    records[index(records, kind="boundary", label="stable")]["skipped"] = True


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (skipped_in_time, "wrong"),
        (skipped_as_if_empty, "wrong"),
        (skipped_with_keys, "wrong"),
        (skipped_for_good, "wrong"),
        (no_undo, "uncorrected"),
        (never_corrected, "uncorrected"),
    ],
)
def test_each_fault_of_a_skipped_run_is_found(fault: Any, kind: str) -> None:
    records = skipping()
    fault(records)
    verdict = judge(renumbered(records))
    assert getattr(verdict, kind) > 0, verdict.findings


def test_a_hole_in_seq_is_lost_and_a_repeat_is_doubled() -> None:
    records = history()
    assert judge([*records[:4], *records[5:]]).lost
    assert judge([*records[:5], records[4], *records[5:]]).doubled


def test_two_parts_answer_together() -> None:
    agreed = expectations(parts=2)
    roots = [Root(agreed, CELLS, 0, ["a"]), Root(agreed, CELLS, 1, ["b"])]
    roots[0].tentative(2, ["room-2"])
    roots[0].stable(10)
    roots[1].stable(9)
    checker = Checker(agreed, CELLS)
    for root in roots:
        for record in root.records:
            checker.feed(record)
    verdict = checker.finish()
    assert verdict.lost == 1
    assert verdict.n_tentative == 2
    found = latencies(checker, [])
    assert len(found.ms) == 10
    assert [round(ms) for ms in found.ms[2:9]] == [2] * 7


def test_latency_is_that_of_the_first_answer_and_faults_touch_until_it_is_stable() -> None:
    agreed = expectations()
    root = Root(agreed, CELLS)
    root.stable(2)
    root.now = int(agreed.due(1_003 * S)) + 400_000
    root.tentative(3, ["room-2"])
    root.now += 100_000
    root.stable(8)
    checker = Checker(agreed, CELLS)
    for record in root.records:
        checker.feed(record)
    assert checker.finish().ok
    # Silent from the third window on, healed before the sixth is due.
    fault = Disturbance(int(agreed.due(1_002 * S)) + 500_000, int(agreed.due(1_005 * S)))
    found = latencies(checker, [fault])
    assert found.touched.tolist() == [False, False, True, True, True] + [False] * 5
    assert round(found.ms[2], 3) == 402.0
    figures = found.figures()
    assert figures["touched"]["n"] == 3
    assert figures["all"]["n"] == 10


@pytest.mark.parametrize("offset", [0.0, 1e9])
def test_rounding_is_no_difference_and_more_is(offset: float) -> None:
    values = [offset + v for v in (4.0, 7.0, 13.0, 16.0)]
    figures = of(*values)
    given = {"count": 4, "sum": sum(values) * (1 + 1e-15), "var": 30.0000000001}
    assert compare({"x": figures}, {"x": given}, ["count", "sum", "var"]) is None
    assert compare({"x": figures}, {"x": given | {"var": 30.1}}, ["var"]) is not None
    assert compare({"x": figures}, {"x": given | {"sum": None}}, ["sum"]) is not None
    assert compare({"x": figures}, {"y": given}, ["sum"]) is not None


def of(*values: float) -> ExactAggregates:
    """Return the exact aggregates of these readings of one stream."""
    return exact_aggregates([(("s",), value) for value in values], 0.0, AGGREGATES)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_an_exact_average_lies_between_the_extremes(values: list[float]) -> None:
    found = of(*values)
    average = found.numbers["avg"]
    if average is None:
        assert found.numbers["sum"] is None
    else:
        assert min(values) <= average <= max(values)


def test_a_sum_beyond_doubles_is_null_and_its_neighbours_are_not() -> None:
    found = of(1.5e308, 1.5e308)
    assert [found.numbers[name] for name in ("count", "sum", "avg", "max", "var", "stddev")] == [
        2, None, None, 1.5e308, None, None,
    ]  # fmt: skip
    assert of(-1.5e308, -1.5e308).numbers["sum"] is None
    assert of(-1.5e308, 1.5e308).numbers["range"] is None
    squares = of(1e200, 2e200)
    assert (squares.numbers["sum"], squares.numbers["var"]) == (3e200, None)
    # A partial sum is beyond doubles, the sum is not.
    assert of(1e308, 1e308, -1e308).numbers["sum"] == 1e308


def test_a_null_is_right_only_where_the_figure_may_overflow() -> None:
    found = {"x": of(1e308, 1e308, -1e308)}
    names = ["count", "sum", "avg", "var"]
    null = {"count": 3, "sum": None, "avg": None, "var": None}
    assert compare(found, {"x": null}, names, ["x"]) is None
    assert compare({"x": of(1.0, 2.0, 3.0)}, {"x": null}, names) == "x.sum is None, not 6.0"
    unnamed = "x has nulls for values in ['sum', 'avg', 'var'], overflow names []"
    assert compare(found, {"x": null}, names) == unnamed
    there = {"x": of(1.0, 2.0)}
    right = {"count": 2, "sum": 3.0, "avg": 1.5, "var": 0.5}
    unfounded = "x has nulls for values in [], overflow names ['x']"
    assert compare(there, {"x": right}, names, ["x"]) == unfounded
    assert compare(there, {"x": right}, names, ["y"]) == "overflow of ['y'], fields ['x']"
    single = {"count": 1, "sum": 1.0, "avg": 1.0, "var": None}
    assert compare({"x": of(1.0)}, {"x": single}, names) is None
    overflowed = {"x": of(1.5e308, 1.5e308)}
    given_ = {"count": 2, "sum": 1.7e308, "avg": None, "var": None}
    assert compare(overflowed, {"x": given_}, names) == "x.sum is 1.7e+308, not None"


def test_a_row_has_the_declared_figures_and_no_others() -> None:
    found = {"x": of(1.0, 2.0)}
    assert compare(found, {"x": {"count": 2, "sum": 3.0}}, ["count", "sum"]) is None
    for given_ in ({"count": 2}, {"count": 2, "sum": 3.0, "max": 2.0}):
        assert compare(found, {"x": given_}, ["count", "sum"]) is not None


def test_an_average_outside_of_the_extremes_beside_it_is_wrong() -> None:
    found = {"x": of(0.1, 0.1, 0.1)}
    given_ = {"avg": 0.10000000000000002, "min": 0.1, "max": 0.1}
    assert compare(found, {"x": given_ | {"avg": 0.1}}, list(given_)) is None
    wrong = compare(found, {"x": given_}, list(given_))
    assert wrong == "x.avg is 0.10000000000000002, outside of 0.1 to 0.1"
