"""Parts of the audit: acceptance by rule-10, and expressions with the pipeline's meaning."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as sf

from slackwater.primitives.expression_sql import KEY_COLUMN
from slackwater.primitives.expression_tree import Number, Truth
from slackwater.primitives.expressions import compile_predicate, compile_projection
from slackwater_spark.audit.comparison import _different
from slackwater_spark.audit.source_logs import Header, accepted
from slackwater_spark.expressions import with_columns

NAN = math.nan
Columns = dict[str, npt.NDArray[np.float64]]
NEVER = -(2**62)


def start(offset: int, next_id: int, boundary: int = NEVER) -> Header:
    return Header(offset, "START", offset, next_id, next_id - 1, boundary)


def data(offset: int, inc: int, first: int, last: int, boundary: int = NEVER) -> Header:
    return Header(offset, "INSERTION", inc, first, last, boundary)


def offsets(*headers: Header) -> list[int]:
    return [offset for offset, _ in accepted(headers)]


def test_takes_the_next_id_only() -> None:
    log = (start(0, 0), data(1, 0, 0, 4), data(2, 0, 0, 4), data(3, 0, 8, 9), data(4, 0, 5, 7))
    assert offsets(*log, data(5, 0, 8, 9)) == [1, 4, 5]


def test_a_zombie_behind_its_successors_start_does_not_count() -> None:
    # The zombie's ids are next, with other readings: distinct by id would include them.
    log = (start(0, 0), data(1, 0, 0, 4), start(2, 5), data(3, 0, 5, 9), data(4, 2, 5, 9))
    assert offsets(*log) == [1, 4]


def test_what_a_zombie_appended_before_start_counts() -> None:
    log = (start(0, 0), data(1, 0, 0, 4), data(2, 0, 5, 9), start(3, 10), data(4, 3, 10, 10))
    assert offsets(*log) == [1, 2, 4]


def test_the_promise_before_a_record_comes_from_accepted_records_alone() -> None:
    log = (
        start(0, 0),
        data(1, 0, 0, 4, boundary=100),
        data(2, 0, 9, 9, boundary=900),  # a hole before it: neither readings nor boundary count
        Header(3, "BOUNDARY", 0, 5, 4, 200),
        data(4, 0, 5, 5, boundary=150),
        data(5, 0, 6, 6, boundary=300),
    )
    assert list(accepted(log)) == [(1, NEVER), (4, 200), (5, 200)]


def void(offset: int) -> Header:
    return Header(offset, "VOID", 0, 0, 0, 0)


def test_damage_is_passed_over_as_the_readers_do() -> None:
    assert offsets(start(0, 0), data(1, 0, 0, 4), void(2), data(3, 0, 8, 9)) == [1, 3]
    assert offsets(start(0, 0), void(1), data(2, 0, 0, 4), data(3, 0, 8, 9)) == [2]
    # After a hole all is sent again, so nothing is lost.
    assert offsets(start(0, 0), data(1, 0, 5, 9), void(2), data(3, 0, 8, 9)) == []
    # At a log's end START marks the loss.
    assert offsets(start(0, 0), data(1, 0, 0, 4), void(2), start(3, 8), data(4, 3, 8, 9)) == [1, 4]


def test_ids_begin_again_where_start_marks_it() -> None:
    anew = start(2, 0)._replace(anew=True)
    assert offsets(start(0, 0), data(1, 0, 0, 4), anew, data(3, 2, 0, 9)) == [1, 3]


def test_a_log_whose_beginning_is_gone_begins_anywhere() -> None:
    assert offsets(data(7, 3, 40, 44), data(8, 3, 45, 46)) == [7, 8]


X = [NAN, -40.0, -0.0, 0.0, 0.5, 1.0, 2.675, 20.0, 1e200, -1e308, 710.0, 3.0]
Y = [1.0, NAN, 0.0, 3.0, -2.0, 7.0, 2.0, -3.0, 1e200, 2.0, 0.1, 20.0]
KEYS = ["a", "it's", "(b)", "c", "", "a", "Z", "z", "部", "a", "b", "c"]


def nested(text: str, depth: int) -> str:
    """Each level has the one below once, and is computed three times."""
    for _ in range(depth):
        text = f"case {text} when 1 then 2 when 2 then 3 when 3 then 1 end"
    return text


NUMBERS = [
    *("x", "x + y", "x - y", "x * y", "x / y", "x % y", "-x", "x * 1.8 + 32", "(x + y) / 3"),
    *("1/3 + x", "abs(x)", "round(x)", "round(x, 2)", "floor(x)", "ceil(x)", "sqrt(x)", "ln(x)"),
    *("exp(x)", "power(x, 2)", "power(x, y)", "least(x, y)", "greatest(x, y, 1)", "1 / exp(x)"),
    "case when x > y then x when x = y then 0 else y end",
    "case when key = 'a' then x end",
    "case key when '(b)' then 1 when 'it''s' then 2 end",
    "sqrt(abs(x * x + y * y) / (x - 20)) * ln(y)",
    '"Zug" + order',
    "least(x)",
    " + ".join(["x"] * 60),
    nested("x", 20),
]
CONDITIONS = [
    *("x > -40", "x >= y", "x = y", "x <> 0", "not x > 0", "x > 0 or y > 0", "x > 0 and y > 0"),
    *("x between 0 and 20", "x in (0, 1, 20)", "x not in (1, null)", "x is null", "y is not null"),
    *("key = 'it''s'", "key in ('a', '(b)')", "key > 'a'", "not (x > 0 or key = 'a')"),
    "x in (0, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000, 1100)",
    "-x between -y and y + 1 or (x + y) between 0 and 5",
    *("exp(x) > 5", "x / y > 0 or true", "case when x > 0 then y > 0 else x < -1 end", "1 / 0 = 1"),
]


@pytest.fixture
def columns() -> Columns:
    return {"x": np.array(X), "y": np.array(Y), "Zug": np.array(Y), "order": np.array(X)}


def evaluated(
    spark: SparkSession, trees: Sequence[Number | Truth], columns: Columns
) -> list[list[object]]:
    """Return Spark's value of each tree, for each reading."""
    cells = {f"c{i}": values for i, values in enumerate(columns.values())}
    frame = spark.createDataFrame(pa.table({**cells, KEY_COLUMN: KEYS}))
    frame = frame.select(*(sf.nanvl(n, sf.lit(None)).alias(n) for n in cells), KEY_COLUMN)
    frame, made = with_columns(frame, list(columns), trees)
    named = (column.alias(f"e{i}") for i, column in enumerate(made))
    return [list(values) for values in zip(*frame.select(*named).collect(), strict=True)]


def test_numbers_mean_the_same_to_spark(spark: SparkSession, columns: Columns) -> None:
    projection = compile_projection([(text, text) for text in NUMBERS], list(columns))
    ours = projection.apply(columns, np.arange(len(KEYS)), KEYS)
    trees = [number for _, number in projection.fields]
    for text, values in zip(NUMBERS, evaluated(spark, trees, columns), strict=True):
        theirs = [NAN if value is None else float(str(value)) for value in values]
        np.testing.assert_allclose(theirs, ours[text], rtol=1e-15, err_msg=text)


def test_conditions_mean_the_same_to_spark(spark: SparkSession, columns: Columns) -> None:
    predicates = [compile_predicate(text, list(columns)) for text in CONDITIONS]
    found = evaluated(spark, [predicate.root for predicate in predicates], columns)
    for predicate, values in zip(predicates, found, strict=True):
        ours = predicate.mask(columns, np.arange(len(KEYS)), KEYS)
        assert [value is True for value in values] == ours.tolist(), predicate.text


def difference(given: Mapping[str, float | None], **wanted: float) -> str | None:
    """Compare one field with what Spark computed."""
    row = Row(**wanted)
    names = [name for name in wanted if not name.startswith("_")]
    return _different({"t": row}, {"t": given}, {"t": names})


def test_a_sum_beyond_doubles_is_null_in_the_results_and_infinite_in_spark() -> None:
    overflowed = {"_scale": 1.5e308, "_count": 2, "_var": math.inf}
    null = {"sum": None, "avg": None}
    assert difference(null, sum=math.inf, avg=math.inf, **overflowed) is None
    # A partial sum depends on the order, in Spark and in the pipeline.
    assert difference(null, sum=1e308, avg=5e307, **overflowed) is None
    small = {"_scale": 2.0, "_count": 2, "_var": 0.5}
    assert difference(null, sum=3.0, avg=1.5, **small) == "t.sum is None, not 3.0"
    assert difference({"max": None}, max=2.0, **small) == "t.max is None, not 2.0"


def test_an_average_outside_of_the_extremes_beside_it_is_wrong() -> None:
    given = {"avg": 0.10000000000000002, "min": 0.1, "max": 0.1}
    equal = {"_scale": 0.1, "_count": 3, "_var": 0.0}
    assert difference(given | {"avg": 0.1}, avg=0.1, min=0.1, max=0.1, **equal) is None
    found = difference(given, avg=0.1, min=0.1, max=0.1, **equal)
    assert found == "t.avg is 0.10000000000000002, outside of 0.1 to 0.1"
