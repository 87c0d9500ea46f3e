"""Messages of JSON: the bytes are those of the definition, a ``to_pydict`` of each message."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.producer import ProducerError
from slackwater.producer import json_messages as module
from slackwater.producer.batches import pieces_of
from slackwater.producer.json_messages import messages

BYTES_MAX = 1_000_000
TEXTS = st.text(max_size=6) | st.sampled_from(
    [
        '"',
        "\\",
        '\\"',
        "\\n",
        "\n\t\b\f\r",
        "\0",
        "\x7f\x1f",
        "é\u2028",
        "",
        "null",
        "😀",
        "k" * 300,
    ]
)
FLOATS = st.floats() | st.floats(width=32) | st.sampled_from([0.1, -0.0, 1e22, 5e-324, 2.0**53])


def integers(low: int, high: int) -> st.SearchStrategy[int]:
    return st.integers(low, high) | st.sampled_from([low, high])


KINDS: dict[Any, st.SearchStrategy[Any]] = {
    pa.string(): TEXTS,
    pa.large_string(): TEXTS,
    pa.string_view(): TEXTS,
    pa.dictionary(pa.int8(), pa.string()): TEXTS,
    pa.float64(): FLOATS,
    pa.float32(): st.floats(width=32),
    pa.float16(): st.floats(width=16),
    pa.int64(): integers(-(2**63), 2**63 - 1),
    pa.uint64(): integers(0, 2**64 - 1),
    pa.int8(): integers(-128, 127),
    pa.bool_(): st.booleans(),
    pa.null(): st.none(),
    pa.list_(pa.float64()): st.lists(FLOATS | st.none(), max_size=3),
    pa.struct([("a", pa.int64()), ("b", pa.string())]): st.fixed_dictionaries(
        {"a": st.none() | integers(-5, 5), "b": TEXTS}
    ),
}


@st.composite
def tables(draw: st.DrawFn) -> Any:
    """Return a table of chunks, of which it sees a part."""
    n = draw(st.integers(1, 12))
    cuts = sorted(draw(st.lists(st.integers(0, n), max_size=2)))
    columns = {}
    for name in draw(st.lists(TEXTS, min_size=1, max_size=4, unique=True)):
        kind = draw(st.sampled_from(list(KINDS)))
        value = KINDS[kind] if draw(st.booleans()) else KINDS[kind] | st.none()
        values = draw(st.lists(value, min_size=n, max_size=n))
        chunks = [values[a:b] for a, b in zip([0, *cuts], [*cuts, n], strict=True)]
        columns[name] = pa.chunked_array([pa.array(chunk, kind) for chunk in chunks], kind)
    start = draw(st.integers(0, n - 1))
    return pa.table(columns).slice(start, draw(st.integers(1, n - start)))


@given(tables(), st.integers(1, 13))
@settings(max_examples=400)
def test_columns_are_written_as_by_the_definition(table: Any, rows_max: int) -> None:
    table = pieces_of(table)
    expected = [
        orjson.dumps(table.slice(start, rows_max).to_pydict())
        for start in range(0, len(table), rows_max)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "READINGS_A_MESSAGE_MAX", rows_max)
        assert list(messages(table, "json-columns", BYTES_MAX)) == expected


@given(tables())
def test_readings_are_written_one_by_one_or_as_an_array(table: Any) -> None:
    table = pieces_of(table)
    readings = list(map(orjson.dumps, table.to_pylist()))
    assert list(messages(table, "json", BYTES_MAX)) == readings
    (array,) = messages(table, "json-array", BYTES_MAX)
    assert array == b"[" + b",".join(readings) + b"]"


def test_a_message_has_a_maximum_of_readings() -> None:
    table = pa.table({"ts": np.arange(10_000), "node": [f"n{i}" for i in range(10_000)]})
    found = [orjson.loads(each) for each in messages(table, "json-columns", BYTES_MAX)]
    assert [len(each["ts"]) for each in found] == [4_096, 4_096, 1_808]
    assert [node for each in found for node in each["node"]] == table["node"].to_pylist()


@pytest.mark.parametrize("format_", ["json-columns", "json-array"])
def test_a_message_that_is_too_large_is_divided(format_: Any) -> None:
    table = pa.table({"ts": range(9), "node": ["x" * (100 if i % 3 else 500) for i in range(9)]})
    found = list(messages(table, format_, 700))
    assert max(map(len, found)) <= 700
    assert len(found) < 9
    times: list[int] = []
    for each in map(orjson.loads, found):
        times += each["ts"] if format_ == "json-columns" else [one["ts"] for one in each]
    assert times == list(range(9))


@pytest.mark.parametrize("format_", ["json", "json-array", "json-columns"])
def test_a_reading_that_is_too_large_is_an_error(format_: Any) -> None:
    table = pa.table({"ts": range(5), "node": ["a", "b", "c", "x" * 500, "d"]})
    with pytest.raises(ProducerError, match=r"row 3 of a batch has 5\d\d bytes"):
        list(messages(table, format_, 400))


@pytest.mark.parametrize("format_", ["json", "json-array", "json-columns"])
@pytest.mark.parametrize("value", [b"\xff", decimal.Decimal("1.5"), [b"\xff"]], ids=str)
def test_a_value_that_json_cannot_represent_names_column_and_row(format_: Any, value: Any) -> None:
    """At once, so that no message of the batch is written."""
    table = pa.table({"ts": [1, 2], "t": [None, value]})
    with pytest.raises(ProducerError, match=r"column 't', row 1: Type is not JSON serializable"):
        messages(table, format_, BYTES_MAX)


@pytest.mark.parametrize("format_", ["json", "json-array", "json-columns"])
@pytest.mark.parametrize(
    "time",
    [np.datetime64(1, "ms"), np.timedelta64(1, "ms"), dt.date(2026, 1, 1), dt.time(1)],
    ids=["timestamp", "duration", "date", "time"],
)
def test_times_are_numbers(format_: Any, time: Any) -> None:
    with pytest.raises(ProducerError, match=r"column 'ts' is .* send times as numbers"):
        messages(pa.table({"ts": [time]}), format_, BYTES_MAX)
