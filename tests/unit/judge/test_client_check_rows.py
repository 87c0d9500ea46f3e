"""The checker of queries without a window: each wrong history is found, a correct one passes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from tests.unit.histories import Root, expectations

from slackwater.codec.results import format_time
from slackwater.judge.batch import Result, RowsResult
from slackwater.judge.check import Expectations, Verdict
from slackwater.judge.check_rows import RowChecker

S = 1_000_000
AGREED = {"aggregate": ()}
EXPECTED: RowsResult = {
    start * S: [
        Result(start * S + 1, "a", {"x": 1.5}, ("room-1",)),
        Result(start * S + 1, "b", {"x": None}, ("room-2",)),
        Result(start * S + 1, "a", {"x": 1.5}, ("room-2",)),
        Result(start * S + 9, "a", {"x": 3.0}, ("room-1",)),
    ]
    for start in (1_000, 1_002)
}


class Rows(Root):
    """A correct root of rows."""

    def __init__(self, agreed: Expectations, part: int = 0, owns: Iterable[str] = "ab") -> None:
        super().__init__(agreed, {}, part)
        self._owned = set(owns)

    def _window(self, start: int, label: str, epoch: int, lacking: Sequence[str]) -> None:
        rows = [
            row
            for row in EXPECTED.get(start, [])
            if row.key in self._owned and not set(lacking) & set(row.streams)
        ]
        for row in rows:
            self._put(
                kind=label,
                epoch=epoch,
                window_start=format_time(start),
                window_end=format_time(start + self.expectations.window.size_us),
                stime=format_time(row.stime),
                key=row.key,
                fields=dict(row.fields),
                missing=sorted(lacking),
                due_at=format_time(
                    int(self.expectations.due(start + self.expectations.window.size_us))
                ),
            )
        self._boundary(start, label, epoch, lacking, len(rows), 1)


def history() -> list[dict[str, Any]]:
    root = Rows(expectations(**AGREED))
    root.stable(2)
    root.tentative(2, ["room-2"])
    root.stable(2)
    root.empty_run(6)
    return root.records


def judge(records: list[dict[str, Any]]) -> Verdict:
    checker = RowChecker(expectations(**AGREED), EXPECTED)
    for record in records:
        checker.feed(record)
    return checker.finish()


def rows_of(records: list[dict[str, Any]], kind: str) -> list[int]:
    return [i for i, record in enumerate(records) if record["kind"] == kind]


def renumbered(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [record | {"seq": seq} for seq, record in enumerate(records)]


def test_a_faultless_history_passes() -> None:
    verdict = judge(history())
    assert verdict.ok, verdict.findings
    assert (verdict.windows, verdict.n_tentative) == (10, 2)


def test_parts_are_compared_by_the_keys_they_answered_for() -> None:
    agreed = expectations(**AGREED, parts=2)
    checker = RowChecker(agreed, EXPECTED)
    for part, owns in enumerate(("a", "b")):
        root = Rows(agreed, part, owns)
        root.stable(10)
        for record in root.records:
            checker.feed(record)
    assert checker.finish().ok


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"fields": {"x": 1.5000000000000002}}, "is next"),
        ({"fields": {"x": None}}, "is next"),
        ({"fields": {"y": 1.5}}, "is next"),
        ({"key": "c"}, "is next"),
        ({"stime": format_time(1_000 * S)}, "is next"),
        ({"stime": format_time(1_000 * S + 5)}, "out of order"),
    ],
)
def test_a_reading_that_is_not_the_batchs(change: dict[str, Any], sentence: str) -> None:
    records = history()
    first = rows_of(records, "stable")[0]
    records[first] = records[first] | change
    verdict = judge(records)
    assert verdict.wrong + verdict.lost
    assert any(sentence in finding for finding in verdict.findings), verdict.findings


def test_two_readings_of_one_time_the_other_way_round() -> None:
    records = history()
    a, b = rows_of(records, "stable")[:2]
    records[a], records[b] = records[b], records[a]
    assert judge(renumbered(records)).wrong == 1


@pytest.mark.parametrize("which", [0, 3])
def test_a_reading_that_is_lost(which: int) -> None:
    records = history()
    gone = rows_of(records, "stable")[which]
    boundary = next(i for i in range(gone, len(records)) if records[i]["kind"] == "boundary")
    records[boundary] = records[boundary] | {"keys": records[boundary]["keys"] - 1}
    del records[gone]
    verdict = judge(renumbered(records))
    assert verdict.lost + verdict.wrong


def test_a_key_that_nobody_answers_for() -> None:
    records = [r for r in history() if not (r["kind"] == "stable" and r["key"] == "b")]
    records = [r | {"keys": 3} if r.get("keys") == 4 else r for r in records]
    assert judge(renumbered(records)).lost == 2


def test_a_reading_twice() -> None:
    records = history()
    last = rows_of(records, "stable")[3]
    records.insert(last, records[last])
    records[last + 2] = records[last + 2] | {"keys": 5}
    assert judge(renumbered(records)).doubled == 1


def test_a_tentative_answer_lacks_what_its_missing_does_not_excuse() -> None:
    records = [
        r | {"missing": []} if "tentative" in (r["kind"], r.get("label")) else r for r in history()
    ]
    verdict = judge(records)
    assert any("its stream is not missing" in finding for finding in verdict.findings)


def test_a_tentative_reading_that_there_is_not() -> None:
    records = history()
    first = rows_of(records, "tentative")[0]
    records[first] = records[first] | {"key": "b"}
    verdict = judge(records)
    assert any("is unexpected" in finding for finding in verdict.findings)


def test_what_was_computed_is_rounded() -> None:
    records = history()
    first = rows_of(records, "stable")[0]
    records[first] = records[first] | {"fields": {"x": 1.5000000000000002}}
    checker = RowChecker(expectations(**AGREED), EXPECTED, computed=True)
    for record in records:
        checker.feed(record)
    assert checker.finish().ok
