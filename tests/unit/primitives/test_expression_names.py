"""Any name of a field works in ``where`` and ``select``, with the same meaning for the oracle."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.sql_words import sql_words

from slackwater.judge.oracle import evaluate
from slackwater.primitives.expression_text import RESERVED_WORDS, ExpressionError
from slackwater.primitives.expressions import compile_predicate, compile_projection

WORDS = sql_words()
TEXT = "case when {0} between {1} and 3 then abs({0}) % {1} when {0} in ({0}) then -{0} end"


def written(name: str, *, always_quoted: bool) -> str:
    quoted = always_quoted or name.upper() in RESERVED_WORDS
    return f'"{name}"' if quoted else name


@pytest.mark.parametrize("always_quoted", [False, True], ids=["plain", "quoted"])
def test_every_word_of_sql_is_a_name(always_quoted: bool) -> None:
    """In small letters and in capitals, one beside the other."""
    values = [[2.5, -3.0, np.nan, 7.0], [1.25, np.nan, 7.0, 9.0], [-1.0, 0.0, 2.5, 8.0]]
    columns = {word: np.array(values[i % 3]) for i, word in enumerate(WORDS)}
    keys = ["a", "a", "b", "a"]
    spelt = [written(word, always_quoted=always_quoted) for word in WORDS]
    select = [
        (word, TEXT.format(*pair)) for word, *pair in zip(WORDS, spelt, spelt[1:], strict=False)
    ]

    made = compile_projection(select, WORDS).apply(columns, np.arange(4), keys)

    rows = [(key, tuple(of[i] for of in columns.values())) for i, key in enumerate(keys)]
    for i, cells in evaluate(None, select, WORDS, rows):
        ours = {word: made[word][i] for word, _ in select}
        theirs = dict(zip(ours, cells, strict=True))
        assert theirs == {word: None if np.isnan(x) else x for word, x in ours.items()}
    for word, name in zip(WORDS, spelt, strict=True):
        predicate = compile_predicate(f"not {name} > 1", WORDS)
        mask = predicate.mask(columns, np.arange(4), keys)
        assert mask.tolist() == (columns[word] <= 1).tolist()


@pytest.mark.parametrize("word", sorted(RESERVED_WORDS))
def test_a_reserved_word_means_itself_or_names_the_quotes(word: str) -> None:
    name = word.lower()
    assert compile_projection([("x", f'"{name}" * 2')], [name]).reads == {name}
    advice = f'write the field {name} in double quotes: "{name}"'
    try:
        reported, reads = "", compile_predicate(f"{name} > 1", [name]).reads
    except ExpressionError as error:
        reported, reads = str(error), frozenset()
    # IN, IS and END are not valid there, and are read as the field of this name.
    assert advice in reported or reads == {name} or word == "NULL"


def test_a_quoted_name_that_is_no_field_is_refused_in_its_place() -> None:
    with pytest.raises(ExpressionError, match="no field '#0', only a, key") as error:
        compile_predicate('a > "#0"', ["a"])
    assert error.value.position == 5


def test_a_name_before_a_bracket_is_a_function() -> None:
    assert compile_projection([("x", "abs(abs) + floor(floor)")], ["abs", "floor"]).reads == {
        "abs",
        "floor",
    }
    with pytest.raises(ExpressionError, match="SIN"):
        compile_predicate("sin(1) > 1", ["sin"])


def test_the_fields_there_are_are_named_up_to_a_number() -> None:
    with pytest.raises(ExpressionError, match=r"only f0, .*f19 and 9981 more"):
        compile_predicate("x > 1", [f"f{i}" for i in range(10_000)])
