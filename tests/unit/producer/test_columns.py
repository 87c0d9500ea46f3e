"""Columns of callers: what is converted to what, and errors with the column and the row."""

from __future__ import annotations

import datetime as dt
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.producer import ProducerError
from slackwater.producer.batches import as_table, pieces_of

ASCII = st.text(st.characters(max_codepoint=0x7F), max_size=8)
NAN = float("nan")


class Series:
    """The interface of a column of any library."""

    def __init__(self, values: Any) -> None:
        self._values = pa.chunked_array([pa.array(values)])

    def __len__(self) -> int:
        return len(self._values)

    def __arrow_c_stream__(self, requested: object = None) -> Any:
        return self._values.__arrow_c_stream__(requested)


def column(values: Any) -> Any:
    return pieces_of({"t": values})["t"]


@given(st.lists(ASCII | st.text(max_size=8), min_size=1, max_size=9))
def test_texts_of_numpy_are_those_of_python(texts: list[str]) -> None:
    """Also with NUL characters inside; numpy itself removes those at the end."""
    array = np.array(texts)
    found = column(array)
    assert found.type == pa.string()
    assert found.to_pylist() == array.tolist()
    assert column(array[::-1]).to_pylist() == array.tolist()[::-1]


def test_texts_of_numpy_that_are_long_or_empty() -> None:
    texts = ["x" * 100, "", "é" * 33]
    assert column(np.array(texts)).to_pylist() == texts
    assert column(np.array(["", ""])).to_pylist() == ["", ""]
    assert column(np.array([], "U3")).type == pa.string()


def test_texts_of_numpy_keep_nul_characters_inside() -> None:
    for texts in (["a\0b", "c"], ["\0a", "b"], ["ab", "\0c"]):
        assert column(np.array(texts)).to_pylist() == texts


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array(["a", None, NAN], object), ["a", None, None]),
        (["a", NAN, None], ["a", None, None]),
        (np.array([1, None, 2.5], object), [1.0, None, 2.5]),
        ([None, None], [None, None]),
        (np.array([None], object), [None]),
        (np.array([1, 2], ">i4"), [1, 2]),
        (np.array([1.5, 2.5], ">f8"), [1.5, 2.5]),
        (np.arange(6)[::2], [0, 2, 4]),
        (np.array([0.1], np.float32), [float(np.float32(0.1))]),
        (np.ma.array([1, 2], mask=[True, False]), [None, 2]),
        (pa.chunked_array([[1], [], [2, 3]]), [1, 2, 3]),
        (pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
        (Series([1.5, None]), [1.5, None]),
        (np.array([86_400_000_000], "datetime64[us]"), [dt.datetime.fromisoformat("1970-01-02")]),
        ([dt.datetime(2026, 1, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))],
         [dt.datetime(2026, 1, 1, tzinfo=dt.UTC)]),
    ],
    ids=["object", "list", "numbers", "nulls", "null objects", "big-endian int",
         "big-endian float", "strided", "float32", "masked", "chunked", "dictionary", "series",
         "datetime64", "time zone"],
)  # fmt: skip
def test_columns_of_many_forms(values: Any, expected: list[Any]) -> None:
    found = column(values)
    assert found.to_pylist() == expected
    assert not pa.types.is_null(found.type)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, 2.5, "x", "y"], "column 't', row 2, cannot be converted: Could not convert 'x'"),
        (np.array([1.0, None, "x"], object), "column 't', row 2, cannot be converted"),
        (["a", "b", 3], "column 't', row 2, cannot be converted"),
        ([1, 2**70], "column 't', row 1, cannot be converted"),
        (["a", "\ud800"], "column 't', row 1, cannot be converted"),
        (np.array(["a", "\ud800"]), "column 't', row 1, cannot be converted"),
        (np.zeros((2, 2)), "column 't' cannot be converted: only handle 1-dimensional"),
        (np.array([1j, 2]), "column 't', row 0, cannot be converted"),
        (pa.array([b"ok", None, b"\xff"]).view(pa.string()), "column 't', row 2, is not UTF-8"),
    ],
    ids=str,
)
def test_an_error_names_the_column_and_the_row(values: Any, message: str) -> None:
    with pytest.raises(ProducerError, match=message):
        pieces_of({"node": ["n"] * len(values), "t": values})


def test_an_error_names_the_column_of_a_single_value() -> None:
    with pytest.raises(ProducerError, match="column 't' cannot be converted"):
        pieces_of({"ts": [1, 2], "t": 2**70})


def test_an_error_names_the_lengths() -> None:
    with pytest.raises(ProducerError, match="of different lengths: 'ts' 2, 't' 3"):
        pieces_of({"ts": [1, 2], "node": "n", "t": [1, 2, 3]})


def test_an_error_of_single_readings_names_the_column_and_the_row() -> None:
    readings = [{"ts": 1, "t": 1.0}, {"ts": 2}, {"ts": 3, "t": "warm"}]
    with pytest.raises(ProducerError, match="differ in their types: column 't', row 2,"):
        as_table(pieces_of(readings))


def test_a_single_value_that_is_missing_is_a_number() -> None:
    assert pieces_of({"ts": [1, 2], "t": None})["t"].type == pa.float64()
