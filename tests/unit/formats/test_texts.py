"""Fields that are texts: the same codes by every input and by the judge, for ``where`` only."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fuzz.judge import judge_columns, judge_messages
from tests.support.every_input import INPUTS, Row, Taken, of_messages, timed
from tests.unit.deployment.test_deployment_file import changed, errors

from slackwater.deployment.parse import parse_deployment
from slackwater.deployment.stored import read_stored, to_text
from slackwater.judge.oracle import evaluate
from slackwater.model.deployment import FieldSpec, HttpInputSpec, TimeSpec
from slackwater.model.text_codes import text_code, text_fields
from slackwater.primitives.expression_text import ExpressionError
from slackwater.primitives.expression_texts import check_texts
from slackwater.primitives.expressions import compile_predicate
from slackwater.proxy.http.bodies import reader_for
from slackwater.proxy.http.senml import MEDIA_TYPE as SENML
from slackwater.proxy.http.tables import ARROW
from slackwater.proxy.requests import UnusableBody

SPEC = replace(
    timed(TimeSpec(("t",), unit="ms")),
    fields=(FieldSpec("v", "v"), FieldSpec("s", "s", is_text=True)),
    missing=("unavailable",),
    values=(("on", 1.0),),
)
TEXTS: list[tuple[Any, str | None]] = [
    ("ok", "ok"),
    (" ok ", "ok"),
    ("OK", "OK"),
    ("on", "on"),
    ("größer", "größer"),
    ("21.5", "21.5"),
    ("Unavailable", None),
    ("NaN", None),
    ("", None),
    ("x" * 1_000, "x" * 1_000),
]


def rows_of(*texts: Any) -> list[Row]:
    return [{"k": "a", "t": i, "v": i, "s": text} for i, text in enumerate(texts)]


def codes(found: list[Any]) -> list[float | None]:
    assert all(isinstance(one, Taken) for one in found), found
    return [one.values[1] for one in found]


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("times", [1, 30])
def test_each_input_has_the_code_of_the_text(name: str, times: int) -> None:
    wanted = [None if text is None else text_code(text) for _, text in TEXTS] * times
    assert codes(INPUTS[name](SPEC, rows_of(*(given for given, _ in TEXTS)) * times)) == wanted


@pytest.mark.parametrize("name", INPUTS)
def test_booleans_and_numbers_are_the_texts_that_were_sent(name: str) -> None:
    usual = name not in ("file", "http csv", "judge")  # a cell has Python's word, True
    words = [text_code("true" if usual else "True"), text_code("false" if usual else "False")]
    assert codes(INPUTS[name](SPEC, rows_of(True, False))) == words
    if name == "http arrow":
        with pytest.raises(UnusableBody, match="a field of texts is text or boolean"):
            INPUTS[name](SPEC, rows_of(5, 7))
    else:
        assert codes(INPUTS[name](SPEC, rows_of(5, 7))) == [text_code("5"), text_code("7")]


@pytest.mark.parametrize("name", INPUTS)
def test_a_text_that_is_too_long_is_malformed(name: str) -> None:
    (found,) = INPUTS[name](SPEC, rows_of("x" * 1_001))
    assert found in ("malformed", "field s")


def test_senml_has_texts_as_string_values() -> None:
    spec = replace(SPEC, http=HttpInputSpec())
    pack = [
        {"bn": "a:", "bt": 1e9, "n": "v", "v": 1},
        {"n": "s", "vs": "ok"},
        {"n": "s", "t": 1, "vb": True},
        {"n": "s", "t": 2, "v": 5},
    ]
    read = reader_for(spec, SENML, 0)
    assert read is not None
    parsed = read(json.dumps(pack).encode()).parsed
    assert parsed.values[1].tolist() == [text_code("ok"), text_code("true")]
    assert [bad.index for bad in parsed.bad] == [3]
    assert reader_for(spec, ARROW, 0) is not None


VALUE: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(["ok", " ok", "nan", "unavailable", True, None, 5, 5.0, "\ud800", "x" * 1_001]),
    st.text(max_size=3),
    st.just([]),
)


@given(st.lists(VALUE, min_size=1, max_size=40))
def test_batches_are_read_as_each_message_alone(values: list[Any]) -> None:
    rows = [{"k": "a", "t": i, "v": i, "s": value} for i, value in enumerate(values)]
    spec = of_messages(SPEC)
    messages = [json.dumps(row).encode() for row in rows]
    assert judge_messages(spec, messages) == []
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    assert judge_columns(spec, [json.dumps(columns).encode(), *messages]) == []


def test_codes_are_doubles_and_differ() -> None:
    found = {text_code(f"state {i}") for i in range(100_000)}
    assert len(found) == 100_000
    assert all(code == int(code) and 0 <= code < 2**52 for code in found)
    # Logs have them: another version of the program must compute the same.
    assert (text_code("ok"), text_code("größer")) == (168_033_292_019_706, 387_429_452_533_347)


# Expressions.

COLUMNS = {
    "v": np.array([1.0, 2.0, 3.0, 4.0]),
    "s": np.array([text_code("ok"), text_code("fault"), np.nan, text_code("off")]),
}


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ("s = 'ok'", [0]),
        ("'ok' = s", [0]),
        ("s <> 'ok'", [1, 3]),
        ("s IN ('ok', 'off')", [0, 3]),
        ("s NOT IN ('ok', 'off')", [1]),
        ("s IS NULL", [2]),
        ("NOT (s = 'ok') AND v > 2", [3]),
        ("(s) = 'ok' OR s IS NULL", [0, 2]),
        ("CASE WHEN s = 'ok' THEN v ELSE 0 END > 0", [0]),
        ("s = 'OK'", []),
        ("key = 'a' AND s = 'fault'", [1]),
    ],
)
def test_conditions_on_texts(where: str, kept: list[int]) -> None:
    check_texts(where, ["v", "s"], {"s"})
    predicate = compile_predicate(where, ["v", "s"], {"s"})
    mask = predicate.mask(COLUMNS, np.zeros(4, np.int32), ["a"])
    assert np.flatnonzero(mask).tolist() == kept
    rows = [
        ("a", tuple(None if np.isnan(c[i]) else float(c[i]) for c in COLUMNS.values()))
        for i in range(4)
    ]
    assert [i for i, _ in evaluate(where, None, ["v", "s"], rows)] == kept


@pytest.mark.parametrize(
    "where",
    ["s > 'a'", "s + 1 > 0", "s = 1", "s = v", "s = s", "abs(s) > 1", "s IN (1)", "s",
     "s BETWEEN 'a' AND 'b'", "s = NULL", "CASE s WHEN 'ok' THEN 1 END = 1", "v IN (s)",
     "s IN ('a', 1)"],
)  # fmt: skip
def test_a_text_is_no_number(where: str) -> None:
    with pytest.raises(ExpressionError, match="'s' is a text and no number: s = 'ok'"):
        check_texts(where, ["v", "s"], {"s"})


def test_a_number_is_no_text() -> None:
    with pytest.raises(ExpressionError, match="a number cannot be compared with a string"):
        compile_predicate("v = 'ok'", ["v", "s"], {"s"})
    with pytest.raises(ExpressionError, match="a string where a number is needed"):
        compile_predicate("v IN ('ok')", ["v", "s"], {"s"})


# The deployment file.


def test_the_file_declares_them(tmp_path: Path) -> None:
    text = changed("    disorder: 1s", "    texts: {status: state}")
    deployment = parse_deployment(text.replace("from: [s]", "from: [s]\n    where: status = 'ok'"),
                                  "f.yaml").deployment  # fmt: skip
    spec, query = deployment.streams["s"], deployment.queries["q"]
    assert spec.fields[-1] == FieldSpec("status", "state", is_text=True)
    assert deployment.input_fields(query) == ("a", "b", "status")
    assert deployment.output_fields(query) == ("a", "b")
    assert text_fields(deployment, query) == {"status"}
    path = tmp_path / "x.recorded"
    path.write_text(to_text(deployment))
    assert read_stored(path).streams["s"] == spec


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("from: [s]", "from: [s]\n    where: status > 'ok'", "'status' is a text and no number"),
        ("from: [s]", "from: [s]\n    where: a = 'ok'", "a number cannot be compared with a strin"),
        ("from: [s]", "from: [s]\n    select: {x: status}", "'status' is a text and no number"),
        ("texts: {status: state}", "texts: {a: state}", "is declared as a number too, in fields"),
        ("texts: {status: state}", "texts: {key: state}", "a field cannot be called key"),
        ("texts: {status: state}", "texts: 5", "must be a mapping, name: value"),
    ],
)
def test_what_a_text_cannot_be_is_refused(old: str, new: str, reason: str) -> None:
    text = changed("    disorder: 1s", "    texts: {status: state}")
    assert any(reason in error for error in errors(text.replace(old, new)))


TWO = """\
apiVersion: slackwater/v1
streams:
  one: {key: {column: k}, time: {column: t, unit: s}, fields: [a], texts: [s]}
  two: {key: {column: k}, time: {column: t, unit: s}, fields: [a, OTHER], texts: [u]}
queries:
  q:
    from: [one, two]
    JOIN
    where: WHERE
    window: {size: 1s}
    aggregate: [count]
    bound: 2s
"""


def test_a_join_has_the_texts_of_both_sides() -> None:
    text = TWO.replace("OTHER", "b").replace("JOIN", "join: {left: one, right: two, within: 1s}")
    text = text.replace("WHERE", "left_s = 'ok' and right_u <> 'off'")
    deployment = parse_deployment(text, "f.yaml").deployment
    query = deployment.queries["q"]
    assert text_fields(deployment, query) == {"left_s", "right_u"}
    assert deployment.output_fields(query) == ("left_a", "right_a", "right_b")


def test_a_name_is_a_text_in_all_sources_or_in_none() -> None:
    text = TWO.replace("    JOIN\n", "").replace("WHERE", "s = 'ok'")
    (error,) = errors(text.replace("OTHER", "s"))
    assert "queries.q.from: 's' is a number in two, and a text in another source" in error
    union = parse_deployment(text.replace("OTHER", "b"), "f.yaml").deployment
    assert union.output_fields("q") == ("a", "b")
