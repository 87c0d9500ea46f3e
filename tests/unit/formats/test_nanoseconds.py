"""Times in nanoseconds: truncated to a microsecond towards the past, alike by every input."""

from __future__ import annotations

import math
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.every_input import INPUTS, MALFORMED, Outcome, Row, by_json, of_messages, timed

from slackwater.formats.columns import time_of, times
from slackwater.formats.json_input import JsonReader
from slackwater.formats.messages import Messages
from slackwater.formats.scan.scanner import Scanner
from slackwater.model.deployment import TimeSpec

SPEC = timed(TimeSpec(("t",), unit="ns"))
WRITTEN = st.one_of(
    st.integers(-(10**23), 10**23).map(str),
    st.integers(-(2**63) - 5, -(2**63) + 5).map(str),
    st.integers(2**63 - 5, 2**63 + 5).map(str),
    st.integers(-3_000, 3_000).map(str),
    st.decimals(-(10**19), 10**19, places=4, allow_nan=False).map(lambda d: f"{d:f}"),
    st.sampled_from(["", "1e18", "0x1F", "9" * 22, "0" * 30 + "7", "-0", "+5", "-.5", "1."]),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(WRITTEN, max_size=60))
def test_columns_agree_with_exact_fractions(cells: list[str]) -> None:
    found, bad = times(pa.array(cells, pa.string()), SPEC.time)
    for text, us, is_bad in zip(cells, found.tolist(), bad.tolist(), strict=True):
        digits = text.lstrip("+-0").partition(".")[0]
        if text == "" or set(text) - set("0123456789.-+") or len(digits) > 21:
            assert is_bad, text
            continue
        exact = math.floor(Fraction(text) / 1_000)
        if abs(exact) < 253_402_300_800_000_000:
            assert (us, is_bad) == (exact, False), text
        else:
            assert is_bad, text
        assert time_of(text, SPEC.time) == (None if is_bad else us)


ROWS: list[Row] = [
    {"k": "a", "t": t, "v": 1.5}
    for t in (1_458_031_648_545_999_999, 0, 999, -1, -1_000, -1_001, 2**63 - 1, -(2**63))
]


@pytest.mark.parametrize("by", INPUTS)
@pytest.mark.parametrize("copies", [1, 9])
def test_every_input_rounds_down_to_a_microsecond(by: str, copies: int) -> None:
    expected: list[Outcome] = [("a", row["t"] // 1_000) for row in ROWS]
    assert INPUTS[by](SPEC, ROWS * copies) == expected * copies


@pytest.mark.parametrize("by", sorted(set(INPUTS) - {"avro", "http arrow"}))
def test_beyond_64_bits_and_beyond_the_calendar(by: str) -> None:
    """The year 2262 is not the last one; an Avro long and an Arrow integer end there."""
    rows: list[Row] = [
        {"k": "a", "t": t, "v": 1.5}
        for t in (2**63, 10**19 + 1_999, 253_402_300_799_999_999_999, 253_402_300_800_000_000_000)
    ]
    found = INPUTS[by](SPEC, rows)
    assert found[:3] == [("a", row["t"] // 1_000) for row in rows[:3]]
    assert found[3] in ("time", MALFORMED)


def test_unsigned_nanoseconds_of_arrow_beyond_64_bits() -> None:
    rows: list[Row] = [{"k": "a", "t": t, "v": 1.5} for t in (2**63 + 1_999, 2**64 - 1)]
    assert INPUTS["http arrow"](SPEC, rows) == [("a", row["t"] // 1_000) for row in rows]


def test_the_scanner_reads_what_the_definition_reads() -> None:
    spec = of_messages(SPEC)
    messages = [
        b'{"k":"a","t":%s,"v":1}' % text
        for text in (b"1458031648545999999", b'"-1"', b"-9223372036854775807", b"1.5", b"-0.0001")
    ]
    assert not len(Scanner(spec).scan(Messages.of(messages)).left)
    reader = JsonReader(spec)
    parsed = reader.parse(messages)
    assert parsed.stimes.tolist() == [reader._slow([m], 0).stimes[0] for m in messages]


def test_a_number_with_an_exponent_is_exact() -> None:
    reader = JsonReader(of_messages(SPEC))
    message = b'{"k":"a","t":1.458031648545999999e18,"v":1}'
    assert reader.parse([message]).stimes.tolist() == [1_458_031_648_545_999]


def test_a_boundary_is_in_the_unit_of_the_stream() -> None:
    parsed = JsonReader(of_messages(SPEC)).parse([b'{"boundary":1458031648545999999}'])
    assert parsed.boundaries == ((0, 1_458_031_648_545_999),)


def test_texts_are_read_like_numbers() -> None:
    rows: list[Row] = [{"k": "a", "t": "1458031648545999999", "v": 1.5}]
    assert by_json(SPEC, rows) == [("a", 1_458_031_648_545_999)]
