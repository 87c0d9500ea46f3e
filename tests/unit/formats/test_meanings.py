"""Declared texts and booleans as missing values and numbers, by every input and by the judge."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fuzz.judge import judge_columns, judge_messages
from tests.support.every_input import INPUTS, Row, Taken, timed
from tests.unit.deployment.test_deployment_file import SMALL, changed, errors
from tests.unit.formats.test_avro_reader import framed, reader, record

from slackwater.deployment.parse import parse_deployment
from slackwater.deployment.stored import read_stored, to_text
from slackwater.formats.columns import number_of, numbers
from slackwater.formats.json_input import JsonReader
from slackwater.formats.messages import Messages
from slackwater.formats.scan import scanner_of
from slackwater.judge.readers.cells import Unusable, value_in
from slackwater.model.deployment import FieldSpec, StreamSpec, TimeSpec
from slackwater.model.meanings import meanings_of
from slackwater.proxy.http.bodies import reader_for
from slackwater.proxy.http.senml import MEDIA_TYPE as SENML
from slackwater.proxy.requests import UnusableBody

SPEC = replace(
    timed(TimeSpec(("t",), unit="ms")),
    fields=(FieldSpec("v", "v"), FieldSpec("h", "h")),
    missing=("unavailable", "N/A", "-999.9", "n. v."),
    values=(("true", 1.0), ("false", 0.0), ("on", 2.5), ("closed", math.nan)),
)


def rows_of(*values: Any) -> list[Row]:
    return [{"k": "a", "t": i, "v": value, "h": i} for i, value in enumerate(values)]


ROWS: dict[str, tuple[list[Row], list[float | None]]] = {
    "texts": (
        rows_of("1.5", "unavailable", "N/A", "n/a", " Unavailable ", "N. V.", "ON", "on", "-1"),
        [1.5, None, None, None, None, None, 2.5, 2.5, -1.0],
    ),
    "booleans": (rows_of(True, False, True), [1.0, 0.0, 1.0]),
    "booleans as texts": (rows_of("true", "False", "TRUE", "2"), [1.0, 0.0, 1.0, 2.0]),
    "numbers": (rows_of(-999.9, -999.0, 21.5), [None, -999.0, 21.5]),
    "numbers as texts": (rows_of("-999.90", "-99990e-2", "7"), [None, None, 7.0]),
}


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("times", [1, 30])
def test_each_input_reads_them_alike(name: str, kind: str, times: int) -> None:
    if name == "judge" and times > 1:
        pytest.skip("the judge reads a row at a time")
    rows, wanted = ROWS[kind]
    found = INPUTS[name](SPEC, rows * times)
    assert all(isinstance(one, Taken) for one in found), found
    assert [one.values[0] for one in found if isinstance(one, Taken)] == wanted * times
    hs = [float(row["h"]) for row in rows]
    assert [one.values[1] for one in found if isinstance(one, Taken)] == hs * times


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("value", ["unknown", "o n", "truex"])
def test_another_text_is_malformed(name: str, value: str) -> None:
    (found,) = INPUTS[name](SPEC, rows_of(value))
    assert found in ("malformed", "field v")


@pytest.mark.parametrize("name", INPUTS)
def test_without_a_declaration_they_are_malformed(name: str) -> None:
    spec = replace(SPEC, missing=(), values=())
    for value in ("unavailable", "on", "true"):
        assert INPUTS[name](spec, rows_of(value)) in (["malformed"], ["field v"])
    if name == "http arrow":
        with pytest.raises(UnusableBody, match=r"declare `values: \{true: 1, false: 0\}`"):
            INPUTS[name](spec, rows_of(True))
    else:
        assert INPUTS[name](spec, rows_of(True)) in (["malformed"], ["field v"])


@pytest.mark.parametrize("name", INPUTS)
def test_one_boolean_alone_may_be_declared(name: str) -> None:
    spec = replace(SPEC, values=(("true", 1.0),))
    found = INPUTS[name](spec, rows_of(True, False, True))
    assert [isinstance(one, Taken) for one in found] == [True, False, True]


def test_a_decimal_comma_is_no_part_of_a_text() -> None:
    spec = replace(SPEC, csv=replace(SPEC.csv, delimiter=";", decimal=","), missing=("n,a.", "-9"))
    for name in ("file", "http csv", "judge"):
        found = INPUTS[name](spec, rows_of("1,5", "N,A.", "-9,0", "on"))
        assert [one.values[0] for one in found if isinstance(one, Taken)] == [1.5, None, None, 2.5]


def test_symbols_of_an_enum_are_texts() -> None:
    kind = {"type": "enum", "name": "E", "symbols": ["on", "unavailable", "broken"]}
    schema = record({"k": "string", "t": "long", "v": kind, "h": ["null", "boolean"]})
    rows = [{"k": "a", "t": 1, "v": v, "h": True} for v in ("on", "unavailable", "broken")]
    parsed = reader(schema, spec=JSON_SPEC).parse([framed(schema, row) for row in rows])
    np.testing.assert_array_equal(parsed.values, [[2.5, np.nan], [1.0, 1.0]])
    assert [bad.index for bad in parsed.bad] == [2]


def test_senml_has_texts_and_booleans_too() -> None:
    spec = replace(SPEC, fields=(FieldSpec("v", "v"),))
    pack = [
        {"bn": "a:", "bt": 1e9, "bv": 100, "n": "v", "vb": True},
        {"n": "v", "t": 1, "vs": "unavailable"},
        {"n": "v", "t": 2, "v": -1099.9},
        {"n": "v", "t": 3, "vs": "broken"},
        {"n": "v", "t": 4, "v": 1},
    ]
    read = reader_for(spec, SENML, 0)
    assert read is not None
    parsed = read(json.dumps(pack).encode()).parsed
    np.testing.assert_array_equal(parsed.values[0], [1.0, np.nan, np.nan, 101.0])
    assert [(bad.index, bad.detail) for bad in parsed.bad] == [(3, "field v: no numeric value")]


JSON_SPEC = StreamSpec(
    "s",
    replace(SPEC.key, column=None, field="k"),
    TimeSpec(field="t", unit="ms"),
    SPEC.fields,
    missing=SPEC.missing,
    values=SPEC.values,
)
VALUE: st.SearchStrategy[Any] = st.sampled_from(
    [True, False, "true", "on", "ON", "unavailable", "x", -999.9, "-999.9", 1, None, [], "İ", "nan"]
)


@given(st.lists(st.tuples(VALUE, VALUE), min_size=1, max_size=40))
def test_batches_are_read_as_each_message_alone(values: list[tuple[Any, Any]]) -> None:
    rows = [{"k": "a", "t": i, "v": v, "h": h} for i, (v, h) in enumerate(values)]
    messages = [json.dumps(row).encode() for row in rows]
    assert judge_messages(JSON_SPEC, messages) == []
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    assert judge_columns(JSON_SPEC, [json.dumps(columns).encode(), *messages]) == []


TEXT = st.one_of(
    st.sampled_from(["N/A", "n/a", "ON", "-999.9", "1,5", "on.", "K", "nan"]), st.text()
)


@given(st.lists(TEXT, max_size=60), st.sampled_from(".,"))
def test_columns_agree_with_the_definition_and_the_judge(texts: list[str], decimal: str) -> None:
    texts = [text.strip().encode(errors="replace").decode() for text in texts]
    meanings = meanings_of(SPEC)
    values, bad = numbers(pa.array(texts, pa.string()), decimal, meanings)
    for text, value, is_bad in zip(texts, values.tolist(), bad.tolist(), strict=True):
        wanted = number_of(text, decimal, meanings)
        assert is_bad == (wanted is None)
        assert is_bad or value == wanted or (math.isnan(value) and math.isnan(wanted or 0))
        try:
            judged = value_in(text, decimal, SPEC)
            assert not is_bad
            assert value == judged or (judged is None or math.isnan(judged)) == math.isnan(value)
        except Unusable:
            assert is_bad


def test_booleans_are_read_by_the_scanner() -> None:
    found = scanner_of(JSON_SPEC)
    assert found is not None
    rows = [b'{"k":"a","t":1,"v":true,"h":false}', b'{"k":"a","t":1,"v":null,"h":true}']
    scanned = found.scan(Messages.of(rows))
    assert not len(scanned.left)
    np.testing.assert_array_equal(scanned.values, [[1.0, np.nan], [0.0, 1.0]])
    assert len(JsonReader(replace(JSON_SPEC, values=())).parse(rows).bad) == 2


# The deployment file.


def test_the_file_declares_them(tmp_path: Any) -> None:
    text = changed("    disorder: 1s", "    missing: [unavailable, N/A, -999]\n"
                   "    values: {true: 1, false: 0, auf: 2.5e1}")  # fmt: skip
    deployment = parse_deployment(text, "f.yaml").deployment
    spec = deployment.streams["s"]
    assert spec.missing == ("unavailable", "N/A", "-999")
    assert spec.values == (("true", 1.0), ("false", 0.0), ("auf", 25.0))
    path = tmp_path / "x.recorded"
    path.write_text(to_text(deployment))
    assert read_stored(path).streams["s"] == spec


@pytest.mark.parametrize(
    ("line", "place", "reason"),
    [
        ("missing: [N/A, n/a]", "missing[1]", "'n/a' is declared twice"),
        ("values: {on: 1, 'On ': 2}", "values.On ", "'On' is declared twice"),
        ("{missing}\n    values: {n/a: 1}", "values.n/a", "'n/a' is declared twice"),
        ("values: {nan: 1}", "values.nan", "'nan' is a missing value in every stream"),
        ("values: {'5': 1}", "values.5", "'5' is a number already"),
        ("values: {on: yes}", "values.on", "'yes' is not a number, as in true: 1"),
        ("values: {on: inf}", "values.on", "'inf' is not a number"),
        ("missing: N/A", "missing", "must be a list, [a, b]"),
        ("values: [on]", "values", "must be a mapping, name: value"),
        ("missing: []", "missing", "must not be empty"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_line(line: str, place: str, reason: str) -> None:
    given_ = line.replace("{missing}", "missing: [N/A]")
    (error,) = errors(changed("    disorder: 1s", f"    {given_}"))
    number = SMALL.split("\n").index("    disorder: 1s") + 1 + given_.count("\n")
    assert error.startswith(f"f.yaml:{number}: streams.s.{place}: ")
    assert reason in error
