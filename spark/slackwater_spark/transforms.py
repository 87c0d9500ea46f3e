"""From ordered records to deltas: the aggregator as a function of DataFrames.

Fargo's child node (section 3.4.4) sends at each cut the delta group of its share of the sensors.
Here a cut is a bucket, its readings come as one columnar record, grouped by key, and the delta
group is one columnar record again: per field and key how many values, their sum, the sum of squared
deviations from their own mean, the smallest and the largest. **Every input record gives exactly one
record to every part, with its offset as seq** (rule-19), so that a reader who knows the next seq
knows whether anything is missing; a record that does not decode gives VOID, which takes its seq and
changes nothing (trace-9). START and BOUNDARY pass with empty columns.

It is a pure function of one record, in native expressions only: that is what real-time mode asks
for, and it makes a second run, a zombie's or a take-over's, harmless. The alternative, Spark's
grouped aggregation, needs state, a shuffle and micro-batches; it is right for sketches and very
many keys (the merger), not for the last 50 ms.

Three things decide whether this is quick or right, and none of them shows:

* *Figures are folds in the order of the slice*, in double precision, so that replicas agree bit for
  bit (trace-28). A value is read through its index: ``slice`` costs ten times as much per reading.
* *NaN is found by the sum*: a sum of values that are all there is not NaN, so only the keys that
  miss one pay for ``filter``. (Infinities that cancel also come here; they are kept as they are.)
* *Stages are selected one after the other and must not be collapsed*, or a lambda would decode the
  record once for each key; the session switches that optimisation off, and a test counts.

One DataFrame serves the ordered topics of many queries. What differs between them (where the deltas
go, which figures are wanted) is a table of literals, looked up once a record by its topic.

A figure that no aggregate of the query is made of is not computed: its place in the record is
empty, and the reader of the delta takes it for absent.

The thesis' own listings get four of these figures wrong: a maximum that starts from 0, sums that
skip zeros, and merges that mix positive with negative parts. Here the extremes start from no value
(NaN where count is 0), and every number counts.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.avro.functions import from_avro, to_avro

from slackwater.codec import FIGURES, fingerprint, older_versions, schema_json

_HEADER_BYTES = 10
_INT_MAX = 2**31 - 1

# What passes from the ordered record as it is.
_PASSED = (
    "kind",
    "child",
    "replica",
    "inc",
    "bucket_start",
    "bucket_end",
    "piece",
    "pieces",
    "first_id",
    "last_id",
    "frontier_bucket",
    "frontier_piece",
    "missing",
    "gap",
    "fields",
)
_OPTIONAL = tuple(name for name in FIGURES if name not in {"count", "sum"})
# What stands in their place in a VOID record. frontier_piece -1: no frontier.
_VOID = {
    "kind": "'VOID'",
    "child": "to.child",
    "replica": "of_replica",
    "inc": "0L",
    "bucket_start": "0L",
    "bucket_end": "0L",
    "piece": "0",
    "pieces": "1",
    "first_id": "0L",
    "last_id": "-1L",
    "frontier_bucket": "0L",
    "frontier_piece": "-1",
    "missing": "cast(array() as array<string>)",
    "gap": "cast(array() as array<struct<stream:string,lost:bigint>>)",
    "fields": "cast(array() as array<string>)",
}


@dataclass(frozen=True, slots=True)
class Route:
    """Where the deltas of one child's ordered topic go, and which figures are in them.

    ``delta_topics``: one for each part. ``figures`` are those that the query's aggregates are made
    of, ``results.figures_of``.
    """

    ordered_topic: str
    delta_topics: tuple[str, ...]
    child: int
    replicas: int
    figures: tuple[str, ...] = FIGURES

    def __post_init__(self) -> None:
        assert self.replicas >= 1
        assert self.child >= 0
        assert self.delta_topics
        assert {"count", "sum"} <= set(self.figures) <= set(FIGURES)


def deltas(records: DataFrame, routes: Collection[Route]) -> DataFrame:
    """Kafka records of ordered logs -> Kafka records of the parts' delta logs.

    ``records`` has ``topic``, ``partition``, ``offset`` and ``value`` as Spark's Kafka source gives
    them, and no topic but those of ``routes``. The result has ``topic``, ``partition``, ``value``.
    """
    decoded = _decode(records, routes)
    guarded = decoded.select("*", _ok().alias("ok"), _ints("r.offsets").alias("o"))
    figured = guarded.select(
        "partition",
        "seq",
        "to",
        *(_passed(name).alias(name) for name in _PASSED),
        sf.expr("if(ok, r.keys, cast(array() as array<string>))").alias("keys"),
        _figures().alias("figures"),
    )
    return _parted(figured).select(
        "topic",
        "partition",
        sf.concat(sf.lit(_header("delta")), to_avro(_delta(), schema_json("delta"))).alias("value"),
    )


def _table(routes: Collection[Route]) -> Column:
    """What is known of a record by its topic."""
    entries: list[Column] = []
    for route in routes:
        wanted = (sf.lit(name in route.figures).alias(name) for name in _OPTIONAL)
        entries += [
            sf.lit(route.ordered_topic),
            sf.struct(
                sf.lit(route.child).alias("child"),
                sf.lit(2 * route.child * route.replicas).alias("first"),
                sf.array(*map(sf.lit, route.delta_topics)).alias("topics"),
                *wanted,
            ),
        ]
    return sf.create_map(*entries)


def _decode(records: DataFrame, routes: Collection[Route]) -> DataFrame:
    """One row for each record, with ``r`` null where the bytes are none of ours."""
    header = sf.expr(f"substring(value, 1, {_HEADER_BYTES})")
    body = sf.expr(f"substring(value, {_HEADER_BYTES + 1}, {_INT_MAX})")
    ours = header == sf.lit(_header("ordered"))
    for older, lacking in older_versions("ordered").items():
        # A log may still hold what the program before this one wrote.
        body = sf.when(header == sf.lit(older), sf.concat(body, sf.lit(lacking))).otherwise(body)
        ours = ours | (header == sf.lit(older))
    record = from_avro(body, schema_json("ordered"), {"mode": "PERMISSIVE"})
    routed = records.select(
        sf.element_at(_table(routes), sf.col("topic")).alias("to"), "partition", "offset", "value"
    )
    return routed.select(
        "to",
        # Two partitions a replica, on both sides: the stable log's is even, the live log's odd.
        sf.expr("to.first + partition").alias("partition"),
        sf.expr("cast(partition div 2 as int)").alias("of_replica"),
        sf.col("offset").alias("seq"),
        sf.when(ours, record).alias("r"),
    )


def _ok() -> Column:
    """Whether a record may be sliced: asked once, before anything is.

    The same conditions as the codec's, so that no reader meets a delta made from a record that it
    would have refused itself. All of it runs as compiled code over whole arrays, nothing per key.
    """
    conditions = (
        "r.kind is not null",
        "r.bucket_start <= r.bucket_end",
        "r.piece >= 0 and r.piece < greatest(r.pieces, 1)",
        "size(r.offsets) = size(r.keys) + 1",
        "size(r.columns) = size(r.fields)",
        "r.offsets[0] = 0D",
        "sort_array(r.offsets) = r.offsets",
        # Whole numbers below 2^31 come back from an int unchanged; NaN does not.
        "cast(cast(r.offsets as array<int>) as array<double>) = r.offsets",
        "forall(r.columns, c -> size(c) = r.offsets[size(r.keys)])",
        # Damaged text decodes, and would stop the reader of the delta instead. The separator
        # keeps two broken halves from making one whole character.
        "is_valid_utf8(array_join(r.keys, ','))",
        "is_valid_utf8(array_join(r.fields, ','))",
        "is_valid_utf8(array_join(r.missing, ','))",
        "is_valid_utf8(array_join(r.gap.stream, ','))",
    )
    return sf.expr(f"coalesce({' and '.join(f'({c})' for c in conditions)}, false)")


def _ints(doubles: str) -> Column:
    return sf.expr(f"cast({doubles} as array<int>)")


def _passed(name: str) -> Column:
    return sf.expr(f"if(ok, r.{name}, {_VOID[name]})")


def _figures() -> Column:
    """Per field and key a struct of the wanted figures, in which the others are 0."""
    no_values = "cast(array() as array<double>)"
    # An empty range has no sequence: the one from a to a - 1 counts downwards.
    of_key = f"if(o[i + 1] > a, transform(sequence(a, o[i + 1] - 1), j -> c[j]), {no_values})"
    of_keys = f"transform(slice(o, 1, size(r.keys)), (a, i) -> {of_key})"
    without_nan = _summed("y", "u", _of_values("y", "u"))
    without_nan = f"transform(array(filter(x, v -> not isnan(v))), y -> {without_nan})[0]"
    figures = _summed("x", "t", f"if(isnan(t), {without_nan}, {_of_values('x', 't')})")
    columns = "if(ok, r.columns, cast(array() as array<array<double>>))"
    return sf.expr(f"transform({columns}, c -> transform({of_keys}, x -> {figures}))")


def _summed(values: str, total: str, then: str) -> str:
    """``then``, an expression over ``total``, the sum of ``values``."""
    return f"aggregate({values}, 0D, (s, v) -> s + v, {total} -> {then})"


def _of_values(values: str, total: str) -> str:
    # A lambda over an array of one is the only way to name a value within an expression. Without
    # values the mean is NULL, and nothing asks for it.
    m2 = f"aggregate({values}, 0D, (s, v) -> s + (v - m) * (v - m))"
    nan = "double('NaN')"
    figures = {
        "count": f"cast(size({values}) as double)",
        "sum": total,
        "m2": f"transform(array({total} / size({values})), m -> {m2})[0]",
        "min": f"coalesce(array_min({values}), {nan})",
        "max": f"coalesce(array_max({values}), {nan})",
    }
    for name in _OPTIONAL:
        figures[name] = f"if(to.{name}, {figures[name]}, 0D)"
    members = (f"'{name}', {figures[name]}" for name in FIGURES)
    return f"named_struct({', '.join(members)})"


def _parted(figured: DataFrame) -> DataFrame:
    """Each record once for each part, with that part's keys alone, also if there are none.

    What is exploded is never empty: a record without a part would be lost.
    """
    one = "size(to.topics) = 1"
    placed = figured.select(
        "*",
        sf.expr(
            f"if({one}, cast(array() as array<int>),"
            " transform(keys, k -> cast(pmod(xxhash64(k), size(to.topics)) as int)))"
        ).alias("part_of"),
        sf.posexplode("to.topics").alias("part", "topic"),
    )
    return placed.select(
        "topic",
        "partition",
        "seq",
        "to",
        *_PASSED,
        sf.expr(f"if({one}, keys, filter(keys, (k, i) -> part_of[i] = part))").alias("keys"),
        sf.expr(
            f"if({one}, figures, transform(figures, f -> filter(f, (x, i) -> part_of[i] = part)))"
        ).alias("figures"),
    )


def _delta() -> Column:
    absent = "cast(array() as array<array<double>>)"
    figures = {name: f"transform(figures, f -> f.{name})" for name in FIGURES}
    for name in _OPTIONAL:
        figures[name] = f"if(to.{name}, {figures[name]}, {absent})"
    return sf.struct(
        *_PASSED,
        "seq",
        "keys",
        sf.xxhash64("keys").alias("keys_hash"),
        *(sf.expr(figures[name]).alias(name) for name in FIGURES),
    )


def _header(schema: str) -> bytes:
    """Avro's single-object header: what tells our records from everything else."""
    return b"\xc3\x01" + fingerprint(schema)
