"""The query as a Spark batch job over accepted readings: join, ``where``, ``select``, windows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from slackwater.judge.calendars import judged_windows
from slackwater.model.deployment import Deployment, QuerySpec, WindowSpec
from slackwater.primitives.aggregates import AGGREGATES
from slackwater.primitives.expression_sql import KEY_COLUMN
from slackwater.primitives.expressions import compile_predicate, compile_projection
from slackwater_spark.audit.source_logs import source_topics
from slackwater_spark.expressions import with_columns

_DAY_US = 86_400_000_000


def input_rows(
    records: DataFrame,
    taken: DataFrame,
    deployment: Deployment,
    spec: QuerySpec,
    start_time_us: int,
) -> DataFrame:
    """Return the query's input: its readings, or the pairs of a join."""
    names = deployment.input_fields(spec)
    join = spec.join
    if join is None:
        logs = _places(deployment, deployment.streams_of(spec))
        return _readings(records, taken, names, logs).where(f"stime >= {start_time_us}")
    sides = []
    place = 0
    for side, stream in (("left", join.left), ("right", join.right)):
        mine = sf.col("topic").rlike(f"^{source_topics(stream, deployment)}$")
        fields = deployment.fields_of(stream)
        logs = _places(deployment, (stream,))
        readings = _readings(records.where(mine), taken, fields, logs, place)
        place += len(fields)
        readings = readings.where(f"stime >= {start_time_us}").drop("floor")
        for name, of_side in (("stime", f"stime_{side}"), ("order_", f"order_{side}")):
            readings = readings.withColumnRenamed(name, of_side)
        sides.append(readings)
    near = sf.expr(f"abs(stime_left - stime_right) <= {join.within_us}L")
    pairs = sides[0].join(sides[1], KEY_COLUMN).where(near)
    pairs = pairs.withColumn("stime", sf.expr("greatest(stime_left, stime_right)"))
    sides_ = (f"struct(order_{side}.log, order_{side}.at) as {side}" for side in ("left", "right"))
    return pairs.withColumn("order_", sf.expr(f"struct(stime, {', '.join(sides_)})"))


def _places(deployment: Deployment, streams: Sequence[str]) -> Column:
    """Return the place of a record's log among those of the streams: by stream, then partition."""
    place = sf.lit(len(streams))
    for i, stream in enumerate(streams):
        mine = sf.col("topic").rlike(f"^{source_topics(stream, deployment)}$")
        place = sf.when(mine, i).otherwise(place)
    partition = sf.expr(r"coalesce(cast(regexp_extract(topic, '[.](\\d+)$', 1) as int), 0)")
    return sf.struct(place.alias("stream"), partition.alias("partition"))


def _readings(
    records: DataFrame, taken: DataFrame, fields: Sequence[str], log: Column, place: int = 0
) -> DataFrame:
    """Return a row per accepted reading: ``stime``, ``key_``, and the fields from c<place> on.

    ``order_`` has the order in which the orderer puts readings: by time, ``log`` and id.
    """
    joined = records.join(sf.broadcast(taken), ["topic", "offset"])
    names = [f"c{i}" for i in range(place, place + len(fields))]
    # A field that the record lacks is NULL, like a NaN.
    at = [f"array_position(r.fields, '{field}') - 1" for field in fields]
    columns = (
        sf.expr(f"r.columns[cast({of} as int)]").alias(name)
        for name, of in zip(names, at, strict=True)
    )
    times = "if(size(r.times) > 0, cast(r.times as array<double>), r.times64)"
    exploded = joined.select(
        "floor",
        sf.expr("r.base_time").alias("base"),
        sf.expr("r.keys").alias("keys"),
        sf.expr("r.key_index").alias("key_index"),
        log.alias("log"),
        "offset",
        *columns,
        sf.expr(f"posexplode({times})").alias("i", "after"),
    )
    return exploded.select(
        sf.expr("base + cast(after as bigint)").alias("stime"),
        sf.expr("keys[cast(key_index[i] as int)]").alias(KEY_COLUMN),
        *(sf.expr(f"nanvl({name}[i], null)").alias(name) for name in names),
        "floor",
        sf.expr(
            "struct(base + cast(after as bigint) as stime, log, struct(offset, i) as at) as order_"
        ),
    ).where("stime >= floor")


def aggregated(
    readings: DataFrame, deployment: Deployment, spec: QuerySpec, compared: tuple[int, int]
) -> DataFrame:
    """Return a row per window and key, with a column ``f0``, ``f1``, ... per field of the rows.

    Of windows that follow a calendar only those that start in ``compared``, [start, end).

    Each column is a struct of the aggregates, with the values from which the allowed rounding error
    is computed.
    """
    assert spec.window is not None
    readings = _selected(readings, deployment.input_fields(spec), spec)
    cells = (
        _in_calendar(readings, spec.window, compared)
        if spec.window.is_calendar
        else _in_progression(readings, spec.window)
    )
    grouped = cells.groupBy("window_start", KEY_COLUMN)
    places = {name: place for place, name in enumerate(deployment.output_fields(spec))}
    return grouped.agg(
        *(
            figures_column(f"c{places[field]}", names).alias(f"f{i}")
            for i, (field, names) in enumerate(spec.shown(places))
        )
    )


def _in_progression(readings: DataFrame, window: WindowSpec) -> DataFrame:
    """Return a row per reading and window that contains it."""
    size, slide, offset = window.size_us, window.slide_us, window.offset_us
    back = sf.expr(f"explode(sequence(0L, {-(-size // slide) - 1}L))")
    cells = readings.select("*", back.alias("back"))
    last = f"stime - pmod(stime - {offset}L, {slide}L)"
    return cells.select("*", sf.expr(f"{last} - back * {slide}L").alias("window_start")).where(
        f"window_start + {size}L > stime"
    )


def _in_calendar(readings: DataFrame, window: WindowSpec, compared: tuple[int, int]) -> DataFrame:
    """Return a row per reading in one of the windows that are compared.

    The windows are joined by the days (of UTC) that each touches. The rules of zones are those of
    this Python, since the JVM has a database of its own.
    """
    each, (at, stop) = judged_windows(window), compared
    rows = []
    while at < stop:
        end = each.end(at)
        rows += [(day, at, end) for day in range(at // _DAY_US, -(-end // _DAY_US))]
        at = end
    names = ("day", "window_start", "window_end")
    columns = np.array(rows, np.int64).reshape(-1, len(names)).T
    # As Arrow, which needs no Python process of Spark.
    table = pa.table(dict(zip(names, map(pa.array, columns), strict=True)))
    windows = sf.broadcast(readings.sparkSession.createDataFrame(table))
    by_day = readings.select("*", sf.expr(f"floor(stime / {_DAY_US})").alias("day"))
    return by_day.join(windows, "day").where("stime >= window_start and stime < window_end")


def _selected(readings: DataFrame, names: Sequence[str], spec: QuerySpec) -> DataFrame:
    """Return the rows kept by ``where``, with the columns of ``select`` as ``c0``, ``c1``, ..."""
    if spec.where is not None:
        root = compile_predicate(spec.where, names, names).root
        readings, conditions = with_columns(readings, names, [root])
        readings = readings.where(conditions[0])
    if spec.select is None:
        return readings
    numbers = [number for _, number in compile_projection(spec.select, names).fields]
    # Input columns have the same names as the output columns made here.
    columns = [f"c{i}" for i in range(len(names))]
    readings = readings.select("stime", "order_", KEY_COLUMN, *columns)
    readings, values = with_columns(readings, names, numbers)
    outputs = (value.cast("double").alias(f"c{i}") for i, value in enumerate(values))
    return readings.select("stime", "order_", KEY_COLUMN, *outputs)


def figures_column(name: str, aggregate: Sequence[str]) -> Column:
    """Return the aggregates of a column, with what their rounding is derived from, as a struct."""
    figures = [
        sf.expr(AGGREGATES[figure].audit.format(v=name)).alias(figure) for figure in aggregate
    ]
    value = sf.col(name)
    return sf.struct(
        *figures,
        sf.max(sf.abs(value)).alias("_scale"),
        sf.count(value).alias("_count"),
        sf.var_samp(value).alias("_var"),
    )
