"""A deployment's names never reach Spark: the audit is correct for any names of fields."""

import math

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from tests.support.sql_words import OURS, cases_of, sql_words

from slackwater.codec import encode_source
from slackwater.model.deployment import (
    Deployment,
    FieldSpec,
    JoinSpec,
    KeySpec,
    QuerySpec,
    StreamSpec,
    TimeSpec,
    WindowSpec,
)
from slackwater.model.names import Names
from slackwater.model.records import Kind, SourceColumns, SourceRecord
from slackwater.primitives.expression_sql import KEY_COLUMN
from slackwater.primitives.expressions import compile_projection
from slackwater_spark.audit.query import aggregated, input_rows
from slackwater_spark.audit.source_logs import decoded, read_headers
from slackwater_spark.expressions import with_columns

# Names become positions before Spark, so these are the names of its own columns.
NAMES = [*sorted(OURS), "KEY", "T", "STIME", "BASE", "C0", "KEY_", "select", "date", "timestamp"]
STIMES = [10, 20, 110]
KEYS = ("a", "b")


def stream(name: str) -> StreamSpec:
    fields = tuple(FieldSpec(field, field) for field in NAMES)
    return StreamSpec(name, KeySpec(column="k"), TimeSpec(("t",), unit="us"), fields)


def value(field: int, reading: int) -> float:
    return 1000.0 * field + reading


def log(session: SparkSession, *streams: str) -> DataFrame:
    """Return source logs in which reading 1 lacks every third field."""
    columns = tuple(
        np.array([value(f, 0), math.nan if f % 3 == 0 else value(f, 1), value(f, 2)])
        for f in range(len(NAMES))
    )
    content = SourceColumns(
        np.array(STIMES, np.int64), np.array([0, 0, 1], np.int32), KEYS, tuple(NAMES), columns
    )
    records = [
        SourceRecord(Kind.INSERTION, name, 0, 0, 2, 110, 10, 110, columns=content)
        for name in streams
    ]
    raw = pa.table(
        {
            "topic": [Names().source(name) for name in streams],
            "offset": pa.array([0] * len(streams), pa.int64()),
            "value": [encode_source(record) for record in records],
        }
    )
    return decoded(session.createDataFrame(raw))


def computed(
    session: SparkSession, query: QuerySpec, compared: tuple[int, int] = (0, 1_000)
) -> dict[tuple[int, str], list[list[object]]]:
    """Return (window, key) -> the figures of each field."""
    deployment = Deployment("data", {n: stream(n) for n in query.sources}, {query.name: query})
    records = log(session, *query.sources)
    taken = read_headers(session, records, deployment).accepted
    readings = input_rows(records, taken, deployment, query, 0)
    frame = aggregated(readings, deployment, query, compared)
    width = len(query.aggregate)
    return {
        (row.window_start, row.key_): [list(figures[:width]) for figures in row[2:]]
        for row in frame.collect()
    }


def test_fields_of_any_name(spark: SparkSession) -> None:
    where = " and ".join(f'("{name}" is null or "{name}" >= 0)' for name in NAMES[:40])
    select = tuple((name, f'"{name}" * 1') for name in NAMES)
    query = QuerySpec("q", ("s",), where, select, WindowSpec(100, 100), ("count", "sum"), 2_000_000)
    found = computed(spark, query)
    for f in range(len(NAMES)):
        in_first = [value(f, 0)] if f % 3 == 0 else [value(f, 0), value(f, 1)]
        assert found[0, "a"][f] == [len(in_first), sum(in_first)], NAMES[f]
        assert found[100, "b"][f] == [1, value(f, 2)], NAMES[f]


def test_the_readings_of_a_day_of_a_zone(spark: SparkSession) -> None:
    hour = 3_600_000_000
    berlin = WindowSpec(24 * hour, 24 * hour, 0, 0, "Europe/Berlin")
    query = QuerySpec("q", ("s",), None, None, berlin, ("count",), 2_000_000)
    found = computed(spark, query, (-25 * hour, 47 * hour))
    assert found.keys() == {(-hour, "a"), (-hour, "b")}
    assert found[-hour, "b"][0] == [1]
    assert computed(spark, query, (23 * hour, 47 * hour)) == {}


def test_fields_of_any_name_in_a_join(spark: SparkSession) -> None:
    query = QuerySpec(
        "q",
        ("one", "two"),
        "left_stime = right_stime",
        (("stime", "left_T + right_t"), ("STIME", "right_base")),
        WindowSpec(100, 100),
        ("max",),
        2_000_000,
        join=JoinSpec("one", "two", 0),
    )
    at = {name: f for f, name in enumerate(NAMES)}
    found = computed(spark, query)
    assert found[100, "b"] == [[value(at["T"], 2) + value(at["t"], 2)], [value(at["base"], 2)]]


def test_every_word_of_spark_and_of_sql_is_a_name(spark: SparkSession) -> None:
    spark_words = {row.keyword for row in spark.sql("SELECT keyword FROM sql_keywords()").collect()}
    words = list(dict.fromkeys([*cases_of(spark_words), *sql_words()]))
    assert len(words) > 1_000
    select = [(word, f'- "{word}"') for word in words]
    trees = [number for _, number in compile_projection(select, words).fields]
    cells = {f"c{i}": [float(i)] for i in range(len(words))}
    frame = spark.createDataFrame(pa.table({**cells, KEY_COLUMN: ["k"]}))
    frame, columns = with_columns(frame, words, trees)
    assert list(frame.select(*columns).collect()[0]) == [-float(i) for i in range(len(words))]
