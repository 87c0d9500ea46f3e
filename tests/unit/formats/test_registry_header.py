"""JSON behind the five bytes of a schema registry."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fuzz.judge import judge_columns, judge_messages

from slackwater.formats.guarded import reader_of
from slackwater.formats.json_input import JsonReader
from slackwater.formats.json_text import MESSAGE_BYTES_MAX
from slackwater.formats.messages import Messages
from slackwater.formats.scan import scanner_of
from slackwater.model.deployment import FieldSpec, KeySpec, StreamSpec, TimeSpec, TopicSpec

SPEC = StreamSpec("s", KeySpec(field="k"), TimeSpec(field="t", unit="ms"), (FieldSpec("v", "v"),))
HEADER = b"\0\0\0\0\x11"
ONE = b'{"k":"a","t":1,"v":2}'


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ("json", ONE),
        ("json", b" " + ONE),
        ("json-array", b"[" + ONE + b"]"),
        ("json-array", b" [ " + ONE + b" ] "),
        ("json-columns", b'{"k":"a","t":[1],"v":[2]}'),
    ],
)
def test_the_header_is_skipped(form: Any, message: bytes) -> None:
    reader = reader_of(replace(SPEC, topic=TopicSpec("t", form)))
    parsed = reader.parse([HEADER + message, message, HEADER + message])
    assert (parsed.bad, parsed.values[0].tolist()) == ((), [2.0] * 3)
    assert reader.texts(HEADER + message)(0)


def test_the_scanner_skips_it() -> None:
    found = scanner_of(SPEC)
    assert found is not None
    assert not len(found.scan(Messages.of([HEADER + ONE])).left)


@pytest.mark.parametrize(
    "message", [b"\0", HEADER, HEADER[:4], HEADER + b"x", b"\1" + HEADER + ONE]
)
def test_a_header_alone_or_another_one_is_no_json(message: bytes) -> None:
    for form in ("json", "json-array", "json-columns"):
        spec = replace(SPEC, topic=TopicSpec("t", form))
        parsed = reader_of(spec).parse([message])
        assert [bad.detail for bad in parsed.bad] == ["not JSON"]


def test_the_header_counts_for_the_bound() -> None:
    full = ONE[:-1] + b" " * (MESSAGE_BYTES_MAX - len(HEADER) - len(ONE)) + b"}"
    for parse in (JsonReader(SPEC).parse, JsonReader(SPEC).parse_without_scanner):
        assert not parse([HEADER + full]).bad
        assert parse([HEADER + full + b" "]).bad


PIECE = st.sampled_from([HEADER, b"\0", b"\0\0\0\0", ONE, b"{", b"[1]", b" ", b'{"k":"a","t":[1]}'])


@given(st.lists(st.lists(PIECE, max_size=3).map(b"".join), min_size=1, max_size=20))
def test_batches_are_read_as_each_message_alone(messages: list[bytes]) -> None:
    assert judge_messages(SPEC, messages) == []
    assert judge_columns(SPEC, messages) == []


def test_text_of_an_element_has_no_header() -> None:
    reader = reader_of(replace(SPEC, topic=TopicSpec("t", "json-array")))
    message = HEADER + json.dumps([{"k": "a", "t": "x"}]).encode()
    assert reader.texts(message)(0) == '{"k": "a", "t": "x"}'
