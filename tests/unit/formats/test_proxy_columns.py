"""Columns of text: the fast paths agree with the definition, for any cells."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.formats.columns import key_chars_max, number_of, numbers, time_of, times
from slackwater.formats.json_input import JsonReader, MessageReading
from slackwater.formats.messages import Bad
from slackwater.model.deployment import FieldSpec, KeySpec, StreamSpec, TimeSpec

NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-(10**25), 10**25).map(str),
    st.sampled_from(
        [
            "",
            "nan",
            "NaN",
            "null",
            "inf",
            "-inf",
            "1e999",
            "0x10",
            "1_0",
            "+5",
            "-.5",
            "5.",
            ".",
            "1e",
            "abc",
            "1,5",
            "1.5",
            "--1",
            "1 2",
            "\u0661",
        ]
    ),
)


@settings(max_examples=150)
@given(st.lists(NUMBERS, max_size=80), st.sampled_from([".", ","]))
def test_numbers_are_what_their_text_says(cells: list[str], decimal: str) -> None:
    texts = [c.strip() for c in cells]
    values, bad = numbers(pa.array(texts, pa.string()), decimal)
    for text, value, is_bad in zip(texts, values, bad, strict=True):
        wanted = number_of(text, decimal)
        assert is_bad == (wanted is None), text
        if wanted is not None:
            assert value == wanted or (np.isnan(value) and np.isnan(wanted)), text


UNIX = st.one_of(
    st.integers(-(10**13), 10**13).map(str),
    st.decimals(-(10**10), 10**10, places=7, allow_nan=False).map(lambda d: f"{d:f}"),
    st.sampled_from(["", "1e3", "0x1F", "abc", "5.", "+7", "9" * 30, "1.5.5", "nan", "-1.9999999"]),
)
DATES = st.one_of(
    st.datetimes().map(lambda d: d.isoformat(sep=" ")),
    st.datetimes().map(lambda d: d.replace(microsecond=0).isoformat()),
    st.datetimes().map(lambda d: d.replace(microsecond=0).isoformat() + "Z"),
    st.datetimes().map(lambda d: d.replace(microsecond=0).isoformat() + "+02:00"),
    st.sampled_from(["", "2015-02-30 00:00:00", "2015-07-10", "yesterday", "2015-07-10T24:30:00"]),
)
FORMATTED = st.one_of(
    st.datetimes().map(lambda d: d.strftime("%d/%m/") + f"{d.year:04d}" + d.strftime(" %H.%M.%S")),
    st.sampled_from(
        [
            "31/02/2004 18.00.00",
            "1/3/2004 18.00.00",
            "",
            "10/03/2004 25.00.00",
            "10/03/2004 18:00:00",
            "10/03/0000 18.00.00",
            "10/03/2004 18.00.00 ",
        ]
    ),
)


@settings(max_examples=100)
@given(st.data())
def test_times_are_what_their_text_says(data: st.DataObject) -> None:
    cells, spec = data.draw(
        st.sampled_from(
            [(UNIX, TimeSpec(("t",), unit=unit)) for unit in ("s", "ms", "us")]
            + [(DATES, TimeSpec(("t",), unit="iso"))]
            + [(FORMATTED, TimeSpec(("t",), format="%d/%m/%Y %H.%M.%S"))]
        ).flatmap(lambda pair: st.tuples(st.lists(pair[0], max_size=70), st.just(pair[1])))
    )
    texts = [cell.strip() for cell in cells]
    values, bad = times(pa.array(texts, pa.string()), spec)
    for text, value, is_bad in zip(texts, values, bad, strict=True):
        wanted = time_of(text, spec)
        assert is_bad == (wanted is None), text
        assert is_bad or value == wanted, text


@pytest.mark.parametrize(
    ("text", "unit", "us"),
    [
        ("1458031648.5459999", "s", 1458031648545999),
        ("1458031648545.9999", "ms", 1458031648545999),
        ("-0.0000001", "s", -1),
        ("1458031648545000", "us", 1458031648545000),
        ("2015-07-10 14:24:00.1234569", "iso", 1436538240123456),
        ("2015-07-10T16:24:00+02:00", "iso", 1436538240000000),
    ],
)
def test_fractions_of_a_microsecond_are_cut_off(text: str, unit: Any, us: int) -> None:
    spec = TimeSpec(("t",), unit=unit)
    assert time_of(text, spec) == us
    values, bad = times(pa.array([text] * 100), spec)
    assert not bad.any()
    assert set(values.tolist()) == {us}


@pytest.mark.parametrize("rows", [1, 20])
@pytest.mark.parametrize(
    "text",
    [
        "0000-01-01T07:08:09.5",
        "0000-12-31T23:00:00-05:00",
        "0001-01-01T00:00:00+05:00",
        "0001-01-01",
    ],
)
def test_the_first_year_is_one(text: str, rows: int) -> None:
    spec = TimeSpec(("t",), unit="iso")
    stimes, bad = times(pa.array([text] * rows), spec)
    wanted = time_of(text, spec)
    assert bad.tolist() == [wanted is None] * rows
    assert stimes.tolist() == [wanted or 0] * rows
    assert (wanted is None) == text.startswith("0000")


def test_strptime_with_fractions_of_any_length() -> None:
    spec = TimeSpec(("t",), format="%Y-%m-%d %H:%M:%S.%f")
    for fraction, us in (("5", 500_000), ("000123", 123), ("25", 250_000)):
        values, bad = times(pa.array([f"2015-07-10 14:24:00.{fraction}"] * 40), spec)
        assert not bad.any()
        assert set(values.tolist()) == {1436538240000000 + us}


# JSON.

LAB = StreamSpec(
    "lab",
    KeySpec(field="mote"),
    TimeSpec(field="at", unit="s"),
    (FieldSpec("t", "v.t"), FieldSpec("h", "h")),
)
VALUE: st.SearchStrategy[Any] = st.sampled_from(
    [1, 1.5, -2, 0, "3.5", "", "nan", "x", None, True, [], {}, 10**400, "1e5", 1e300, -0.0]
)
MESSAGE = st.one_of(
    st.fixed_dictionaries(
        {},
        optional={
            "mote": st.sampled_from(["a", "b", "", 7, -7, 10**30, None, True, 1.5, []]),
            "at": st.sampled_from(
                [1, 1458031648, 1458031648.545, "1458031648", "x", None, 10**30, True, -3]
            ),
            "v": st.one_of(st.fixed_dictionaries({"t": VALUE}), VALUE),
            "h": VALUE,
            "more": st.just([1, {"a": 2}]),
        },
    ).map(lambda d: json.dumps(d).encode()),
    st.sampled_from(
        [
            b"",
            b" ",
            b"{",
            b"nonsense",
            b"[1]",
            b"5",
            b'{"boundary": 12}',
            b'{"boundary": "x"}',
            b'{"mote":"a","at":5}{"mote":"b","at":6}',
            b'{"mote":"a",\n"at":5}',
            b"\xff\xfe",
            b'{"mote":"a","at":NaN}',
            b'{"a":[{"b":1}',
            b'{"b":2}]}',
            b'{"mote":"a","mote":"b","at":1}',
        ]
    ),
)
GOOD = b'{"mote":"m%d","at":%d,"v":{"t":%.1f},"h":null}'


@settings(max_examples=150)
@given(st.lists(MESSAGE, max_size=40), st.integers(0, 60))
def test_batches_of_json_read_as_message_by_message(odd: list[bytes], good: int) -> None:
    messages = [GOOD % (i % 5, 100 + i, i / 10) for i in range(good)] + odd
    messages = messages[good // 2 :] + messages[: good // 2]
    reader = JsonReader(LAB)
    parsed = reader.parse(messages)
    seen: dict[int, Any] = {b.index: "bad" for b in parsed.bad} | dict(parsed.boundaries)
    for i, at in enumerate(parsed.indices.tolist()):
        key = parsed.keys[int(parsed.key_index[i])]
        seen[at] = (int(parsed.stimes[i]), key, [float(v[i]) for v in parsed.values])
    assert sorted(seen) == list(range(len(messages)))
    for i, message in enumerate(messages):
        match reader.reading_of(message):
            case MessageReading(stime, key, values):
                assert seen[i][:2] == (stime, key), message
                np.testing.assert_array_equal(seen[i][2], values)
            case Bad():
                assert seen[i] == "bad", message
            case int() as watermark:
                assert seen[i] == watermark


def test_a_clean_batch_takes_the_quick_way() -> None:
    reader = JsonReader(LAB)
    messages = [GOOD % (i % 5, 100 + i, i / 10) for i in range(1000)]
    assert reader._quick(messages, 0) is not None
    assert reader._quick([*messages, b'{"mote":"a","at":'], 0) is None


def test_keys_are_strings_or_whole_numbers_in_decimal() -> None:
    reader = JsonReader(LAB)
    parsed = reader.parse([b'{"mote":7,"at":1}'] * 20 + [b'{"mote":"7","at":1}'] * 20)
    assert parsed.keys == ["7"]
    assert len(parsed.stimes) == 40
    assert [b.detail for b in reader.parse([b'{"mote":1.5,"at":1}', b'{"at":1}']).bad] == [
        "key",
        "key",
    ]


@pytest.mark.parametrize("key", ["\\ud800", "a\\udfffb", "\\ud83d"])
def test_a_key_that_is_no_text_is_malformed(key: str) -> None:
    """JSON can contain half a character; no record can, and its writer would end each time."""
    message = b'{"mote":"%s","at":1}' % key.encode()
    reader = JsonReader(LAB)
    assert [bad.detail for bad in reader.parse([message]).bad] == ["key"]
    complete = reader.parse([message, b'{"mote":"\\ud83d\\ude00","at":2}'])
    assert complete.keys == ["\N{GRINNING FACE}"]
    assert len(complete.bad) == 1


def test_a_key_of_megabytes_is_malformed_both_ways() -> None:
    message = b'{"mote":"%s","at":1}'
    longest, longer = (message % (b"m" * n) for n in (key_chars_max, key_chars_max + 1))
    reader = JsonReader(LAB)
    assert reader._quick([longest], 0) is not None
    parsed = reader.parse([longest, longer] * 20)
    assert len(parsed.stimes) == 20
    assert {bad.detail for bad in parsed.bad} == {"key"}


@pytest.mark.parametrize("time", ["1e999999999999", "-1e999999999999", "1e-999999999999"])
def test_a_time_with_a_huge_exponent_is_none(time: str) -> None:
    reader = JsonReader(LAB)
    parsed = reader.parse([b'{"mote":"a","at":%s}' % time.encode()])
    assert [bad.detail for bad in parsed.bad] == ["time"]
