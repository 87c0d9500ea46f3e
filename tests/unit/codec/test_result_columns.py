"""Many result lines as columns: the same as line by line, whatever the lines are."""

from __future__ import annotations

from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.codec import result_columns as module
from slackwater.codec.result_columns import joined, result_columns
from slackwater.codec.results import format_time

TIME = st.integers(-(2**50), 2**55).map(format_time)
FIGURE = st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False))
COUNTS = st.integers(0, 2**53 - 1)


@st.composite
def answers(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Return rows and boundaries, of a query with a window or of one without."""
    has_window = draw(st.booleans())
    fields = draw(st.lists(st.sampled_from(["x", "seq", "key", "count"]), unique=True, min_size=1))
    lines: list[dict[str, Any]] = []
    changed_at = draw(st.integers(0, 9))
    for seq in range(draw(st.integers(0, 6))):
        if seq == changed_at:
            fields = draw(st.permutations([*fields, "new"]))
        label = draw(st.sampled_from(["stable", "tentative"]))
        line: dict[str, Any] = {"query": "q", "part": 3, "seq": seq, "epoch": draw(COUNTS)}
        line |= {"missing": draw(st.lists(st.sampled_from(["room-1", "é"]), unique=True))}
        line |= {n: draw(TIME) for n in ("window_start", "window_end", "due_at", "emitted_at")}
        if seq >= changed_at:
            line |= {"generation": 4}
        if draw(st.booleans()):
            line |= {"lost": {"room-1": draw(COUNTS) // 4, "room-2": draw(COUNTS) // 4}}
        if draw(st.booleans()):
            line |= {"kind": "boundary", "label": label, "windows": draw(st.integers(1, 99))}
            line |= {"keys": draw(COUNTS)} | ({"skipped": True} if draw(st.booleans()) else {})
        elif has_window:
            figures = {f: {"count": draw(COUNTS), "avg": draw(FIGURE)} for f in fields}
            line |= {"kind": label, "key": draw(st.text(max_size=5)), "fields": figures}
        else:
            line |= {"kind": label, "key": draw(st.text(max_size=5)), "stime": draw(TIME)}
            line |= {"fields": {f: draw(FIGURE) for f in fields}}
        lines.append(line)
    return lines


def fail(index: int, reason: str) -> None:
    raise AssertionError(f"line {index}: {reason}")


@given(answers())
def test_together_and_one_by_one_are_equal(lines: list[dict[str, Any]]) -> None:
    values = [orjson.dumps(line) for line in lines]
    merged = module._in_bulk(values, "q", 3)
    alone = module._one_by_one(values, "q", 3, fail, "")
    assert merged.combine_chunks().to_pylist() == alone.to_pylist()
    assert merged.schema == alone.schema
    assert result_columns(values, "q", 3, fail).equals(merged)


GOOD: dict[str, Any] = {
    **dict.fromkeys(("part", "seq"), 3),
    "query": "q",
    "kind": "stable",
    "epoch": 0,
    "missing": [],
    **dict.fromkeys(("window_start", "window_end", "due_at", "emitted_at"), format_time(0)),
    "key": "a",
    "fields": {"x": {"count": 1, "avg": 0.5}},
}
END = {name: GOOD[name] for name in GOOD if name not in ("key", "fields")} | {
    "kind": "boundary",
    "label": "stable",
    "keys": 1,
    "windows": 1,
    "seq": 8,
}


BAD = [
    b"",
    b"null",
    b"5",
    b"{",
    b"{}",
    b"\xff",
    b"[" * 100_000,
    b'{"k":' * 100_000 + b"1" + b"}" * 100_000,
    *(
        orjson.dumps(GOOD | change)
        for change in (
            {"query": "other"},
            {"part": 4},
            {"part": "3"},
            {"seq": -1},
            {"seq": 2**60},
            {"kind": "undo"},
            {"kind": 1},
            {"key": None},
            {"fields": 5},
            {"fields": {"x": {"count": 0.5}}},
            {"fields": {"x": {"count": -1}}},
            {"fields": {"x": {"avg": "1.5"}}},
            {"fields": {"x": {"avg": True}}},
            {"fields": {"x": {"avg": [1]}}},
            {"missing": [5]},
            {"missing": None},
            {"emitted_at": "yesterday"},
            {"lost": 5},
            {"lost": {"room": "5"}},
            {"generation": "x"},
            {"generation": -1},
        )
    ),
    *(
        orjson.dumps(END | change)
        for change in ({"keys": -1}, {"windows": 0}, {"label": "undo"}, {"label": None})
    ),
    orjson.dumps(GOOD).replace(b'"a"', b'"\xff"'),
    orjson.dumps(GOOD).replace(b'"a"', b'"\\ud800"'),
]


@pytest.mark.parametrize("line", BAD, ids=map(str, range(len(BAD))))
def test_a_line_that_no_root_has_written_is_skipped_and_the_others_are_there(line: bytes) -> None:
    found: list[int] = []
    lines = [orjson.dumps(GOOD), line, orjson.dumps(END)]
    table = result_columns(lines, "q", 3, lambda index, _: found.append(index))
    assert table.column("seq").to_pylist() == [3, 8]
    assert found == [1]
    only = result_columns([line], "q", 3, lambda index, _: found.append(index))
    assert (only.num_rows, found) == (0, [1, 0])


def test_a_figure_that_a_line_lacks_is_null_and_the_newest_line_gives_the_order() -> None:
    tables = [
        result_columns([orjson.dumps(GOOD | {"fields": fields})], "q", 3, fail)
        for fields in ({"x": {"avg": 1.0}, "y": {"avg": 2.0}}, {"y": {"avg": 3.0}, "z": {}})
    ]
    table = joined(tables)
    assert module.figures_of(table) == ("y_avg", "x_avg")
    assert table.column("figure:x_avg").to_pylist() == [1.0, None]
    assert joined([]).schema == module.LINES
    assert table.schema.field("figure:y_avg").type == pa.float64()
