"""Messages with several readings: each element is parsed like a ``json`` message."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.reader_that_dies import install

from slackwater.deployment.parse import parse_deployment
from slackwater.formats.elements import elements_max, slices, without_first
from slackwater.formats.guarded import reader_of
from slackwater.formats.json_input import JsonReader, MessageReading
from slackwater.formats.json_text import MESSAGE_BYTES_MAX
from slackwater.formats.messages import MESSAGE, Bad, MessageReader, Parsed
from slackwater.formats.positions import ELEMENTS_MAX, next_positions, position_of, split_position
from slackwater.model.deployment import (
    FieldSpec,
    KeySpec,
    StreamSpec,
    TimeSpec,
    TopicFormat,
    TopicSpec,
)
from slackwater.model.errors import SlackwaterError

LAB = StreamSpec(
    "lab",
    KeySpec(field="mote"),
    TimeSpec(field="at", unit="ms"),
    (FieldSpec("t", "v.t"), FieldSpec("h", "h")),
)
Form = Literal["json-array", "json-columns"]
FORMS: tuple[Form, ...] = ("json-array", "json-columns")
Found = dict[tuple[int, int], Any]


def reading(spec: StreamSpec, form: Form) -> MessageReader:
    """Return the reader of a stream with this format."""
    return reader_of(on_topic(spec, form))


def on_topic(spec: StreamSpec, form: Form) -> StreamSpec:
    """Return a stream of messages of this format."""
    return replace(spec, topic=TopicSpec("lab", form))


def by_element(parsed: Parsed) -> Found:
    """Return (message, element) to (time, key, values), a boundary, or the refusal's reason."""
    elements = parsed.elements
    assert elements is not None
    seen: dict[int, Any] = {bad.index: bad.detail for bad in parsed.bad} | dict(parsed.boundaries)
    for i, at in enumerate(parsed.indices.tolist()):
        key = parsed.keys[int(parsed.key_index[i])]
        values = tuple("" if np.isnan(v[i]) else float(v[i]).hex() for v in parsed.values)
        assert at not in seen
        seen[at] = (int(parsed.stimes[i]), key, values)
    assert sorted(seen) == list(range(len(elements)))
    places = zip(elements.messages.tolist(), elements.indices.tolist(), strict=True)
    return {place: seen[i] for i, place in enumerate(places)}


def defined(outcome: MessageReading | int | Bad) -> Any:
    """Return the same for an outcome of the definition."""
    match outcome:
        case MessageReading(stime, key, values):
            return stime, key, tuple("" if v != v else v.hex() for v in values)  # noqa: PLR0124
        case Bad(detail=detail):
            return detail
        case int() as watermark:
            return watermark


VALUE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["1.5", " 2 ", "nan", "", "x", "1e400", "},{", "}\n{", 'a"},{"b', "\ud800"]),
    st.sampled_from([[], [1], {}, {"a": [{"b": 1}, {"b": 2}]}]),
)
KEY = st.one_of(st.sampled_from(["m", "n", "},{", "", 'q"', "\\", "é", 7, 2**80]), VALUE)
TIME = st.one_of(st.integers(0, 10**13), st.floats(0, 1e13), st.sampled_from(["5", "x"]), VALUE)
ROW = st.fixed_dictionaries(
    {}, optional={"mote": KEY, "at": TIME, "v": st.one_of(st.just({}), VALUE), "h": VALUE}
)
GOOD = st.fixed_dictionaries(
    {
        "mote": st.sampled_from(["m", "n"]),
        "at": st.integers(0, 10**13),
        "v": st.fixed_dictionaries({"t": st.floats(-1e9, 1e9)}),
        "h": st.one_of(st.none(), st.integers(0, 9)),
    }
)
STYLE = st.sampled_from([(",", ":", None), (", ", ": ", None), (",\n", ":", None), (",", ":", 1)])


def written(value: Any, style: tuple[str, str, int | None]) -> bytes:
    comma, colon, indent = style
    return json.dumps(value, separators=(comma, colon), indent=indent).encode()


NO_ARRAYS = [
    b"", b"{}", b"[", b"[1", b"null", b'"a"', b'[{"mote":}]', b"[{}]x", b"\xff", b"[\xff]",
    b'[{"mote":"a","at":1}', b'{"mote":"a","at":1}]', b'[{"a":1},]', b'[{"a":nano}]',
    b'[{"mote":"\xff","at":1}]', b'[{"a":"x},{y"},{"b":2]', b"[" * 70 + b"]" * 70,
]  # fmt: skip


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.lists(st.one_of(GOOD, ROW, VALUE), max_size=6), STYLE), max_size=8),
    st.lists(st.tuples(st.integers(0, 8), st.sampled_from(NO_ARRAYS)), max_size=2),
)
@example([([{"mote": "},{", "at": 5}], (",", ":", None))] * 3, [])
@example([([{"mote": "m", "at": 5, "o": [{}, {}]}], (",", ":", None))] * 2, [])
@example([([{"boundary": 5}, {"mote": "m", "at": 4}], (",", ":", None))], [])
def test_an_array_is_read_as_its_elements_are_alone(
    arrays: list[tuple[list[Any], tuple[str, str, int | None]]], odd: list[tuple[int, bytes]]
) -> None:
    messages = [written(elements, style) for elements, style in arrays]
    for at, message in odd:
        messages.insert(at, message)
    rows = JsonReader(LAB)
    wanted: Found = {}
    for i, message in enumerate(messages):
        if message in NO_ARRAYS:
            continue
        for j, element in enumerate(json.loads(message)):
            outcome = rows.reading_of(json.dumps(element).encode())
            wanted[i, j] = "not an object" if not isinstance(element, dict) else defined(outcome)
    found = by_element(reading(LAB, "json-array").parse(messages))
    refused = {place for place in found if place[1] == MESSAGE}
    assert refused == {(i, MESSAGE) for i, m in enumerate(messages) if m in NO_ARRAYS}
    assert {place: found[place] for place in found if place not in refused} == wanted


COLUMN_LENGTH = st.integers(0, 5)


@st.composite
def columns(draw: st.DrawFn) -> dict[str, Any]:
    """An object of columns; most have equal lengths."""
    n = draw(COLUMN_LENGTH)

    def column(element: st.SearchStrategy[Any]) -> Any:
        kind = draw(st.integers(0, 9))
        if kind == 0:
            return draw(element)
        length = draw(COLUMN_LENGTH) if kind == 1 else n
        return draw(st.lists(element, min_size=length, max_size=length))

    good = draw(st.booleans())
    made = {
        "mote": column(st.sampled_from(["m", "n"]) if good else KEY),
        "at": column(st.integers(0, 10**13) if good else TIME),
        "v": {"t": column(st.floats(-1e9, 1e9) if good else VALUE)},
        "h": column(st.one_of(st.none(), st.integers(0, 9)) if good else VALUE),
        "ignored": draw(VALUE),
    }
    for name in draw(st.sets(st.sampled_from(sorted(made)), max_size=1)):
        del made[name]
    return made


@settings(max_examples=300)
@given(st.lists(columns(), max_size=8))
@example([{"mote": "m", "at": [1, 2], "v": {"t": [1.5, None]}}])
@example([{"mote": ["m"] * 3, "at": 7, "h": "2"}] * 2)
@example([{"mote": ["m"], "at": [1], "h": [0.0]}, {"mote": "m", "at": [1, 2], "h": 1}])
@example([{"mote": ["m"] * 2, "at": [1, 1.5]}, {"mote": ["m"] * 2, "at": [1.25, 2]}])
@example([{"mote": ["m"], "at": [1], "h": [-0.0]}, {"boundary": 5}])
def test_columns_are_read_as_their_rows_are_alone(batch: list[dict[str, Any]]) -> None:
    rows = JsonReader(LAB)
    wanted: Found = {}
    for i, message in enumerate(batch):
        if list(message) == ["boundary"]:
            wanted[i, MESSAGE] = defined(rows.reading_of(json.dumps(message).encode()))
            continue
        outer = message.get("v")
        inner = outer.get("t") if isinstance(outer, dict) else None
        given_ = {n: message.get(n) for n in ("mote", "at", "h")} | {"t": inner}
        lengths = sorted({len(c) for c in given_.values() if isinstance(c, list)})
        if len(lengths) != 1:
            texts = " and ".join(map(str, lengths))
            wanted[i, MESSAGE] = (
                f"columns of {texts} values" if lengths else "no column is an array"
            )
            continue
        for j in range(lengths[0]):
            at = {n: c[j] if isinstance(c, list) else c for n, c in given_.items()}
            row = {"mote": at["mote"], "at": at["at"], "v": {"t": at["t"]}, "h": at["h"]}
            wanted[i, j] = defined(rows.reading_of(json.dumps(row).encode()))
    messages = [json.dumps(message).encode() for message in batch]
    assert by_element(reading(LAB, "json-columns").parse(messages)) == wanted


@pytest.mark.parametrize("message", [b"", b"[]", b"{", b'{"mote":NaN}', b"\xff", b'{"at":[1,}'])
def test_what_is_no_object_is_refused_as_one(message: bytes) -> None:
    good = b'{"mote":"m","at":[1,2]}'
    found = by_element(reading(LAB, "json-columns").parse([good, message, good]))
    assert [place for place in found if place[1] == MESSAGE] == [(1, MESSAGE)]
    assert len(found) == 5


@pytest.mark.parametrize(
    "time",
    # The last two: pyarrow returns 0, and each half of the guard prevents one of them.
    [b'"1.%s"' % (b"0" * 42), b"0e-400", b'"%s"' % (b"0" * 300)],
    ids=["digits", "exponent", "zeros"],
)
def test_a_time_that_pyarrow_reads_and_the_definition_refuses_is_refused(time: bytes) -> None:
    message = b'{"mote":"m","at":[1.5,%s]}' % time
    found = by_element(reading(LAB, "json-columns").parse([message]))
    assert found == {(0, 0): (1_500, "m", ("", "")), (0, 1): "time"}


@pytest.mark.parametrize("form", FORMS)
def test_a_clean_batch_takes_the_quick_way(form: Form) -> None:
    reader: Any = reading(LAB, form)
    messages = clean(form, 3, 10)
    assert isinstance(reader._quick(messages, 0), Parsed)
    assert not isinstance(reader._quick([*messages, b"["], 0), Parsed)


def clean(form: Form, messages: int, elements: int) -> list[bytes]:
    rows = [
        {"mote": f"m{i % 3}", "at": i, "v": {"t": i / 10}, "h": None}
        for i in range(messages * elements)
    ]
    made = []
    for first in range(0, len(rows), elements):
        some = rows[first : first + elements]
        made.append(some if form == "json-array" else as_columns(some))
    return [json.dumps(message).encode() for message in made]


def as_columns(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "mote": [row["mote"] for row in rows],
        "at": [row["at"] for row in rows],
        "v": {"t": [row["v"]["t"] for row in rows]},
        "h": [row["h"] for row in rows],
    }


@pytest.mark.parametrize("form", FORMS)
def test_a_message_of_more_elements_than_a_position_can_name_is_refused_as_one(form: Form) -> None:
    spec = replace(LAB, key=KeySpec(value="m"), fields=())
    reader = reading(spec, form)
    times = [1] * ELEMENTS_MAX

    def message(times: list[int]) -> bytes:
        rows: Any = [{"at": t} for t in times] if form == "json-array" else {"at": times}
        return json.dumps(rows, separators=(",", ":")).encode()

    most = message(times)
    assert len(most) < MESSAGE_BYTES_MAX
    found = reader.parse([most, message([1, *times]), message([2])])
    assert len(found.stimes) == ELEMENTS_MAX + 1
    assert [bad.detail for bad in found.bad] == ["65537 readings, at most 65536"]
    assert found.elements is not None
    assert found.elements.indices[found.bad[0].index] == MESSAGE


def test_absent_fields_do_not_multiply_the_memory_of_a_message() -> None:
    fields = tuple(FieldSpec(f"f{i}", f"f{i}") for i in range(1_000))
    reader = reading(replace(LAB, fields=fields), "json-columns")
    most = elements_max(1_000)
    assert most * 1_000 * 8 < 2**26, "bytes"
    found = reader.parse([json.dumps({"mote": "m", "at": [1] * (most + 1)}).encode()])
    assert not len(found.stimes)
    assert "at most" in found.bad[0].detail


@given(st.lists(st.binary(max_size=30).map(lambda b: b.replace(b"x", b",")), min_size=1))
def test_slices_are_all_of_a_batch_in_order(messages: list[bytes]) -> None:
    found = list(slices(messages, 100_000))
    assert [i for start, end in found for i in range(start, end)] == list(range(len(messages)))
    for start, end in found:
        commas = sum(message.count(b",") + 1 for message in messages[start:end])
        assert end - start == 1 or commas * 100_000 <= 524_288


@pytest.mark.parametrize("form", FORMS)
def test_a_message_that_crashes_its_reader_is_refused_as_one(tmp_path: Path, form: Form) -> None:
    """It is found in a child process, and is a dead letter from then on."""
    script = f"""
if __name__ == "__main__":  # the child process, which reads this too, needs none of it
    import json
    from pathlib import Path
    import numpy as np
    from slackwater.formats.dead_letters import DeadLetters, Faults
    from slackwater.formats.guarded import GuardedReader
    from tests.support.reader_that_dies import RAISING
    from tests.unit.formats.test_formats import LAB, clean, on_topic

    folder = Path({str(tmp_path)!r})
    dead_letters = DeadLetters.open(folder, "lab", Faults.open(folder, "lab"))
    sent = clean({form!r}, 6, 3)
    for at in (1, 4):
        sent[at] = sent[at].replace(b"m1", RAISING)
    offsets = np.arange(100, 106)
    for _ in range(2):
        parsed = GuardedReader(on_topic(LAB, {form!r}), dead_letters).parse("lab:0", offsets, sent)
        at = parsed.elements.messages
        bad = [(int(at[b.index]), b.reason) for b in parsed.bad]
        print(json.dumps([parsed.stimes.tolist(), at[parsed.indices].tolist(), bad]))
"""
    (tmp_path / "script.py").write_text(script)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "script.py")],
        cwd=Path(__file__).parents[3],
        env=os.environ | {"PYTHONPATH": install(tmp_path / "patched")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    times = [i * 1_000 for i in range(18) if i // 3 not in (1, 4)]
    messages = [i // 3 for i in range(18) if i // 3 not in (1, 4)]
    wanted = [times, messages, [[1, "crash"], [4, "crash"]]]
    assert [json.loads(line) for line in done.stdout.splitlines()] == [wanted, wanted]


@pytest.mark.parametrize("form", FORMS)
def test_the_text_of_an_element_has_its_numbers_as_they_were_written(form: Form) -> None:
    row = '{"mote": "m", "at": 1.10, "v": {"t": 1e400}, "h": 12345678901234567890123}'
    text: dict[Form, str] = {
        "json-array": f"[{{}}, {row}]",
        "json-columns": '{"mote": "m", "at": [1, 1.10], "v": {"t": 1e400}, '
        '"h": [2, 12345678901234567890123]}',
    }
    found = reading(LAB, form).texts(text[form].encode())(1)
    wanted = {
        "json-array": row,
        "json-columns": '{"mote": "m", "at": 1.10, "v.t": 1e400, "h": 12345678901234567890123}',
    }
    assert found == wanted[form]


@given(st.integers(0, 2**47 - 2), st.integers(1, ELEMENTS_MAX), st.data())
def test_a_position_names_the_next_element(offset: int, n: int, data: st.DataObject) -> None:
    element = data.draw(st.integers(0, n - 1))
    last = element == n - 1
    position = next_positions(np.array([offset]), np.array([element]), np.array([last]))[0]
    assert split_position(int(position)) == ((offset + 1, 0) if last else (offset, element + 1))
    assert position_of(*split_position(int(position))) == position
    assert 0 <= position < 2**63


def test_an_offset_beyond_the_bits_of_a_position_is_an_error() -> None:
    with pytest.raises(SlackwaterError, match="at most"):
        next_positions(np.array([2**47 - 1]), np.array([0]), np.array([True]))


def test_elements_that_are_accounted_for_are_dropped_and_the_message_itself_is_not() -> None:
    reader = reading(LAB, "json-array")
    one = b'[{"mote":"m","at":1},{},{"mote":"m","at":3},{}]'
    left = without_first(reader.parse([one, one]), 2)
    assert left.stimes.tolist() == [3_000, 1_000, 3_000]
    assert [bad.index for bad in left.bad] == [3, 5, 7]
    refused = reader.parse([b"[", one])
    assert without_first(refused, 2).bad == refused.bad


PAGE = (Path(__file__).parents[3] / "docs/howto/topic-formats.md").read_text()
EXAMPLES = re.findall(r"```yaml\n([^`]*)```\n\n```json\n([^`]*)```", PAGE)
QUERY = """
queries:
  q: {from: [lab], window: {size: 1s}, aggregate: [count], bound: 2s}
"""


def test_the_page_shows_each_format() -> None:
    declared = re.findall(r"```yaml\nstreams:\n(.*?)```", PAGE, re.DOTALL)
    formats = set()
    for text in declared:
        checked = parse_deployment("apiVersion: slackwater/v1\nstreams:\n" + text + QUERY, "d.yaml")
        topic = checked.deployment.streams["lab"].topic
        assert topic is not None
        formats.add(topic.format)
    assert formats == {*get_args(TopicFormat)} - {"json"}
    assert len(EXAMPLES) == len(FORMS)


@pytest.mark.parametrize(("declared", "message"), EXAMPLES, ids=FORMS)
def test_what_the_page_shows_is_taken(declared: str, message: str) -> None:
    text = "apiVersion: slackwater/v1\n" + declared + QUERY
    spec = parse_deployment(text, "shown.yaml").deployment.streams["lab"]
    parsed = reader_of(spec).parse([message.encode()])
    assert len(parsed.stimes) == 2
    assert not parsed.bad
