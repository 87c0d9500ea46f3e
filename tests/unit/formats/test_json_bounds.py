"""Adversarial JSON: each message is a reading or malformed with a reason.

Some of these crash a process with a faulty reader, so they are read in a child process.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slackwater.formats.columns import TIME_CHARS_MAX
from slackwater.formats.json_input import JsonReader, MessageReading
from slackwater.formats.json_text import (
    MESSAGE_BYTES_MAX,
    NESTING_DEPTH_MAX,
    are_objects,
    has_large_exponent,
)
from slackwater.formats.messages import Bad
from slackwater.model.deployment import FieldSpec, KeySpec, StreamSpec, TimeSpec

SPEC = StreamSpec(
    "lab", KeySpec(field="mote"), TimeSpec(field="at", unit="us"), (FieldSpec("t", "t"),)
)
GOOD = b'{"mote":"m","at":5,"t":1}'
ARRAYS = b'{"mote":"m","at":5,"t":1,"more":%s}'
FATAL = {
    b'{"mote":"m","at":1e-99999999,"t":1}': "time",
    b'{"mote":"m","at":1.5e-76,"t":1}': "time",
    b'{"mote":"m","at":1.' + b"0" * 30 + b'e-19,"t":1}': "time",
    b'{"mote":"m","at":5,"t":1e9999999999999999999}': "field t",
    ARRAYS % (b"[" * 1_000 + b"]" * 1_000): "nested deeper than 64",
    ARRAYS % (b'{"a":' * 1_000 + b"1" + b"}" * 1_000): "nested deeper than 64",
    ARRAYS % (b"[" * 500_000): "nested deeper than 64",
    b'{"mote":"m","at":5,"t":[1]}': "field t is an array",
    b"[" + GOOD + b"]": "an array: each reading is a message of its own",
    b'{"mote":"m\xff","at":5,"t":1}': "not UTF-8",
    b'{"mote":"m","at":5,"t":1,"note":"\xff"}': "not UTF-8",
    GOOD.decode().encode("utf-16"): "is UTF-16: write UTF-8",
    b'{"mote":"m","at":5,"t":1,"note":"%s"}' % (b"x" * MESSAGE_BYTES_MAX): (
        "longer than 1048576 bytes"
    ),
    b'{"mote":"m","at":1.' + b"0" * 42 + b',"t":1}': "time",
    b'{"mote":"m","at":1.' + b"9" * 4_000 + b',"t":1}': "time",
    b'{"mote":"m","at":"1.' + b"0" * 42 + b'","t":1}': "time",
    b'{"mote":"m","at":5,"t":' + b"1" * 1_001 + b"}": "field t",
}
IN_A_PROCESS = """
import json, sys
from tests.unit.formats.test_json_bounds import FATAL, GOOD, JsonReader, SPEC

found = []
for message in FATAL:
    for batch in ([message], [message] + [GOOD] * 40, [GOOD] * 40 + [message] * 2):
        parsed = JsonReader(SPEC).parse(batch)
        assert len(parsed.stimes) == batch.count(GOOD) and set(parsed.stimes.tolist()) <= {5}
        assert len(parsed.bad) == len(batch) - batch.count(GOOD)
    found.append(parsed.bad[0].detail)
print(json.dumps(found))
"""


def test_what_has_ended_a_proxy_is_malformed_and_its_neighbours_are_read() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", IN_A_PROCESS],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    assert json.loads(done.stdout) == list(FATAL.values())


TEXTS = ("1e-99999999", "1e-76", "8.1e-5", "1." + "0" * 30 + "e-19", "1e5", "1." + "0" * 38)
TEXTS_IN_A_PROCESS = """
from tests.unit.formats.test_json_bounds import JsonReader, SPEC, TEXTS

near = b'{"mote":"m","at":5.5,"t":1}'
for text in TEXTS:
    parsed = JsonReader(SPEC).parse([near] * 20 + [b'{"mote":"m","at":"%s","t":1}' % text.encode()])
    assert len(parsed.stimes) == 20 and [bad.detail for bad in parsed.bad] == ["time"], text
"""


def test_a_time_as_text_among_decimals_is_what_it_is_alone() -> None:
    """Where pyarrow expects a decimal it accepts a text, with any exponent."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", TEXTS_IN_A_PROCESS],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]


def test_a_message_behind_a_nul_is_not_lost() -> None:
    """A NUL ends pyarrow's input: two rows, and the second message is neither of them."""
    two = b'{"mote":"a","at":1,"t":1}{"mote":"b","at":2,"t":1}\0{}'
    parsed = JsonReader(SPEC).parse([two, GOOD])
    assert parsed.stimes.tolist() == [5]
    assert [(bad.index, bad.detail) for bad in parsed.bad] == [(0, "not JSON")]


@pytest.mark.parametrize("note", ["nano", "--Infinity", "+NaN", "infinit", "Nan,NaN", "1nan"])
def test_what_is_no_json_is_none_also_where_nobody_looks(note: str) -> None:
    message = b'{"mote":"m","at":5,"t":1,"note":%s}' % note.encode()
    parsed = JsonReader(SPEC).parse([GOOD] * 20 + [message])
    assert [bad.detail for bad in parsed.bad] == ["not JSON"]


def test_the_bounds_are_where_they_are_said_to_be() -> None:
    reader = JsonReader(SPEC)
    deep = [ARRAYS % (b"[" * n + b"]" * n) for n in (NESTING_DEPTH_MAX - 1, NESTING_DEPTH_MAX)]
    long = [GOOD[:-1] + b" " * (MESSAGE_BYTES_MAX + n - len(GOOD)) + b"}" for n in (0, 1)]
    times = [b'{"mote":"m","at":5.%s,"t":1}' % (b"0" * n) for n in (37, 38)]
    numbers = [b'{"mote":"m","at":5,"t":%s}' % (b"0." + b"1" * n) for n in (998, 999)]
    for inside, outside in (deep, long, times, numbers):
        assert isinstance(reader.reading_of(inside), MessageReading)
        assert isinstance(reader.reading_of(outside), Bad)
        parsed = reader.parse([GOOD] * 20 + [inside, outside])
        assert (len(parsed.stimes), len(parsed.bad)) == (21, 1)


@pytest.mark.parametrize("zeros", [256, 257, 320, 999])
def test_a_time_as_text_is_as_long_among_fractional_ones_as_by_itself(zeros: int) -> None:
    """Found by fuzzing: read as a decimal, a text of any number of zeros is 0."""
    spec = replace(SPEC, time=TimeSpec(field="at", unit="s"))
    message = b'{"mote":"m","at":"%s","t":1}' % (b"0" * zeros)
    alone = JsonReader(spec).parse([message])
    among = JsonReader(spec).parse([b'{"mote":"m","at":5.5,"t":1}', message] * 10)
    assert len(alone.bad) == int(zeros > TIME_CHARS_MAX)
    assert len(among.bad) == 10 * len(alone.bad)
    assert among.stimes.tolist() == [5_500_000, *alone.stimes.tolist()] * 10


def test_a_number_that_nobody_reads_may_be_of_any_length() -> None:
    message = ARRAYS % (b"[" + b"9" * 100_000 + b",1e9999999999999999999]")
    assert JsonReader(SPEC).parse([GOOD, message]).stimes.tolist() == [5, 5]


def test_a_clean_batch_still_takes_the_quick_way() -> None:
    """Bytes that the bounds search for may be in text, or harmless, without a cost."""
    reader = JsonReader(SPEC)
    for note in (
        '"a0e000f"',
        '"4e549408422875958476160732390de"',
        '"Info"',
        "1.2e-17",
        '"' + "9" * 300 + '"',
        "[[1],[2]]",
        '"\u00b0C"',
    ):
        message = (ARRAYS.decode() % note).encode()
        assert are_objects(b"\n".join([message] * 50), 50)
        assert reader._quick([message] * 50, 0) is not None


# Exponents that pyarrow must not receive, one place at a time.
EXPONENT = re.compile(rb"[0-9][eE](?:[+-]?[0-9]{3}|\+?[0-9]{2}|-[2-9][0-9])[0-9]*[\s,\]}]")
MANTISSA = re.compile(rb"[0-9.]{19}[eE](?:[+-]|[0-9])")
QUOTED = re.compile(rb'"[+-]?[0-9.]{1,18}[eE][+-]?[0-9]+"')
NEARLY_NUMBERS = st.text('0123456789..eE+-" ,]}na', max_size=60).map(str.encode)


@given(NEARLY_NUMBERS)
@example(b'"1.5e3"')
@example(b" 1e-19,")
@example(b" 1e-20,")
@example(b"1234567890123456.78e1")
@example(b"12345678901234567.89e1")
@example(b"5e" + b"1" * 18 + b"n")
@example(b"5e" + b"1" * 19 + b"n")
@example(b"5e" + b"1" * 19 + b" ")
@example(b"5e" + b"1" * 40 + b",")
def test_an_exponent_is_large_where_it_is_by_its_definition(text: bytes) -> None:
    joined = b"{" + text + b"}"
    wanted = [p.search(joined) for p in (EXPONENT, MANTISSA, QUOTED)]
    assert has_large_exponent(joined) == any(wanted)


@given(st.lists(st.text("{[x", max_size=200), min_size=1, max_size=5))
@example(["{" * (NESTING_DEPTH_MAX - 1), "[" * NESTING_DEPTH_MAX])
@example(["[" * NESTING_DEPTH_MAX])
@example(["x" * 400 + "[" * (NESTING_DEPTH_MAX - 1), "{" * (NESTING_DEPTH_MAX - 1)])
def test_a_batch_is_refused_if_one_message_opens_too_much(texts: list[str]) -> None:
    messages = [b'{"' + text.encode() + b'"}' for text in texts]
    opens = [message.count(b"{") + message.count(b"[") for message in messages]
    assert are_objects(b"\n".join(messages), len(messages)) == (max(opens) <= NESTING_DEPTH_MAX)


def test_a_batch_is_looked_through_to_its_end_whatever_its_size() -> None:
    """Passes go block by block: an end of line, a bracket or an exponent may be at a boundary."""
    for size in range(64 * 1024 - 3, 64 * 1024 + 4):
        pad = b'{"o":"' + b"x" * (size - 8) + b'"}'
        deep = b'{"o":' + b"[" * NESTING_DEPTH_MAX + b"]" * NESTING_DEPTH_MAX + b"}"
        assert are_objects(pad + b"\n" + pad, 2)
        assert not are_objects(pad + b"\n" + deep, 2)
        assert not has_large_exponent(pad[:-2] + b'5","o":1e9}')
        assert has_large_exponent(b'{"o":"' + b"x" * (size - 12) + b'","o":1e10}')
