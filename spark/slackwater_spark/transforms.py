"""From ordered records to deltas: the aggregator as a function of DataFrames.

At each cut a child node of Fargo sends the delta group of its share of the sensors (section 3.4.4).
Here a bucket takes the place of a cut. Its readings are a columnar record grouped by key, and the
delta group is again a columnar record: for each field and key the count, the sum, the sum of
squared deviations from the mean, the minimum and the maximum. **Every input record yields exactly
one record in every part, with its offset as seq** (rule-19), so a reader detects missing records by
their seqs. A record that does not decode yields VOID, which has its seq and changes nothing
(trace-9). START and BOUNDARY pass with empty columns.

The transform is a pure function of one record in native expressions, which real-time mode requires.
A second run, by a zombie or after a take-over, is therefore harmless. The alternative, Spark's
grouped aggregation, needs state, a shuffle and micro-batches, whose latency is too high.

Three properties are essential for speed or correctness:

* *Figures are folds over the values in their order in the record*, in double precision, so that
  replicas agree bit for bit (trace-28). A value is read by index: Spark's ``slice`` costs ten times
  as much per reading.
* *NaN is detected by the sum*: a sum without missing values is not NaN, so only keys with missing
  values need ``filter``. (Infinities that cancel also take this path; they are kept unchanged.)
* *Stages are selected one after the other and must not be collapsed*. Otherwise a lambda would
  decode the record once per key. The session disables that optimisation, and a test counts the
  evaluations.

A record in which each key has one reading is not folded: its columns are the sums and the extremes,
and the count is 1 (`_copied`). Such a key takes a fifth of the time. The figures are those of the
fold, bit for bit; zeros may keep their sign, which readers of deltas drop.

One DataFrame serves the ordered topics of many queries. Their differences (target topics of the
deltas, required figures) are a table of literals, looked up once per record by topic.

A figure that no aggregate of the query needs is not computed: its place in the record is empty, and
readers of the delta treat it as absent. Figures that only some aggregates bring along make a record
of a wider schema (``codec/delta_records.py``); they are in the plan only if a route has them.
States of variable length are made by the orderer (``primitives/states.py``) and copied here, for
each part those of its keys.

The listings of Fargo's thesis compute several figures wrongly: a maximum starts from 0, sums
skip zeros, and merges mix positive with negative parts. Here minimum and maximum start without a
value (NaN if the count is 0), and every number counts.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.avro.functions import from_avro, to_avro

from slackwater.codec import fingerprint, older_versions, schema_json
from slackwater.primitives.figures import ALWAYS, BASIC, FIGURE_NAMES, Figure

_HEADER_BYTES = 10
_INT_MAX = 2**31 - 1

# Fields copied from the ordered record.
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
_EMPTY_ARRAY = b"\0"
_COLUMNS = "array<array<double>>"
_STATES = f"array<struct<name:string,lengths:{_COLUMNS},ids:{_COLUMNS},weights:{_COLUMNS}>>"
_OPTIONAL = tuple(name for name in FIGURE_NAMES if name not in ALWAYS)
# Values of these fields in a VOID record. frontier_piece -1: no frontier.
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
    """Targets and figures of one child's ordered topic.

    ``delta_topics``: one for each part. ``figures`` are the basic ones that the query's aggregates
    need, ``aggregates.figures_of``, and ``others`` those that they bring along,
    ``aggregates.others_of``; ``states`` are the names of their states.
    """

    ordered_topic: str
    delta_topics: tuple[str, ...]
    child: int
    replicas: int
    figures: tuple[str, ...] = FIGURE_NAMES
    others: tuple[Figure, ...] = ()
    states: tuple[str, ...] = ()

    @property
    def is_wide(self) -> bool:
        """Whether its deltas have figures or states beside the basic figures."""
        return bool(self.others or self.states)

    def __post_init__(self) -> None:
        assert self.replicas >= 1
        assert self.child >= 0
        assert self.delta_topics
        assert set(ALWAYS) <= set(self.figures) <= set(FIGURE_NAMES)


def deltas(records: DataFrame, routes: Collection[Route]) -> DataFrame:
    """Transform Kafka records of ordered logs into Kafka records of the parts' delta logs.

    ``records`` has ``topic``, ``partition``, ``offset`` and ``value`` as from Spark's Kafka source,
    for the topics of ``routes`` only. The result has ``topic``, ``partition``, ``value``.
    """
    others = tuple(dict.fromkeys(figure for route in routes for figure in route.others))
    states = any(route.states for route in routes)
    decoded = _decode(records, routes, states=states)
    guarded = decoded.select(
        "*",
        _ok(states=states).alias("ok"),
        _is_single(others).alias("has_ones"),
        _ints("r.offsets").alias("o"),
    )
    no_states = f"cast(array() as {_STATES})"
    own = f"if(ok, r.states, {no_states})" if states else no_states
    figured = guarded.select(
        "partition",
        "seq",
        "to",
        sf.expr(_SINGLE).alias("single"),
        *(_passed(name).alias(name) for name in _PASSED),
        sf.expr("if(ok, r.keys, cast(array() as array<string>))").alias("keys"),
        _figures(others).alias("figures"),
        sf.expr(f"if({_SINGLE}, r.columns, cast(array() as {_COLUMNS}))").alias("columns"),
        sf.expr(own).alias("states"),
    )
    value = _encoded("delta", _delta())
    if any(route.is_wide for route in routes):
        wide = _encoded("wide_delta", _delta(_columns_of(others), sf.col("states")))
        value = sf.when(sf.expr("to.is_wide"), wide).otherwise(value)
    if all(len(route.delta_topics) == 1 for route in routes):
        topic = sf.expr("to.topics[0]")
    else:
        topic, figured = sf.col("topic"), _parted(figured)
    return figured.select(topic.alias("topic"), "partition", value.alias("value"))


def _encoded(schema: str, record: Column) -> Column:
    return sf.concat(sf.lit(_header(schema)), to_avro(record, schema_json(schema)))


def _table(routes: Collection[Route]) -> Column:
    """Return the values that depend on a record's topic."""
    entries: list[Column] = []
    for route in routes:
        wanted = [sf.lit(name in route.figures).alias(name) for name in _OPTIONAL]
        if any(each.is_wide for each in routes):
            others = sf.array(*(sf.lit(figure.name) for figure in route.others))
            wanted.append(others.cast("array<string>").alias("others"))
            wanted.append(sf.lit(route.is_wide).alias("is_wide"))
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


def _decode(records: DataFrame, routes: Collection[Route], *, states: bool) -> DataFrame:
    """Decode to one row per record, with ``r`` null where the bytes are not an ordered record.

    ``states``: some have states. The others are then read as if theirs were empty.
    """
    header = sf.expr(f"substring(value, 1, {_HEADER_BYTES})")
    body = sf.expr(f"substring(value, {_HEADER_BYTES + 1}, {_INT_MAX})")
    schema, added = ("wide_ordered", _EMPTY_ARRAY) if states else ("ordered", b"")
    ours = header == sf.lit(_header(schema))
    lacking = {header: more + added for header, more in older_versions("ordered").items()}
    if states:
        lacking[_header("ordered")] = added
    for older, more in lacking.items():
        # A log may still hold records of an older version.
        body = sf.when(header == sf.lit(older), sf.concat(body, sf.lit(more))).otherwise(body)
        ours = ours | (header == sf.lit(older))
    record = from_avro(body, schema_json(schema), {"mode": "PERMISSIVE"})
    routed = records.select(
        sf.element_at(_table(routes), sf.col("topic")).alias("to"), "partition", "offset", "value"
    )
    return routed.select(
        "to",
        # Two partitions per replica in both topics: the stable log's is even, the live log's odd.
        sf.expr("to.first + partition").alias("partition"),
        sf.expr("cast(partition div 2 as int)").alias("of_replica"),
        sf.col("offset").alias("seq"),
        sf.when(ours, record).alias("r"),
    )


_HAS_ONES = "r.offsets = cast(sequence(0, size(r.keys)) as array<double>)"
_SINGLE = "ok and has_ones"
_OFFSETS_RISE = (
    "r.offsets[0] = 0D and sort_array(r.offsets) = r.offsets"
    # Integers below 2^31 survive a cast to int and back; NaN does not.
    " and cast(cast(r.offsets as array<int>) as array<double>) = r.offsets"
)


def _ok(*, states: bool) -> Column:
    """Whether a record is consistent, which is checked once and before it is used.

    The conditions are those of the codec, so no delta is made from a record that its readers would
    refuse. They are evaluated by compiled code over whole arrays, not per key.
    """
    conditions: tuple[str, ...] = (
        "r.kind is not null",
        "r.bucket_start <= r.bucket_end",
        "r.piece >= 0 and r.piece < greatest(r.pieces, 1)",
        "size(r.offsets) = size(r.keys) + 1",
        "size(r.columns) = size(r.fields)",
        f"({_HAS_ONES}) or ({_OFFSETS_RISE})",
        "forall(r.columns, c -> size(c) = r.offsets[size(r.keys)])",
        # Invalid UTF-8 decodes here, but a reader of the delta would refuse it. The separator
        # prevents that two partial characters form a valid one.
        "is_valid_utf8(array_join(r.keys, ','))",
        "is_valid_utf8(array_join(r.fields, ','))",
        "is_valid_utf8(array_join(r.missing, ','))",
        "is_valid_utf8(array_join(r.gap.stream, ','))",
    )
    if states:
        conditions += ("is_valid_utf8(array_join(r.states.name, ','))", _STATES_FIT)
    return sf.expr(f"coalesce({' and '.join(f'({c})' for c in conditions)}, false)")


_STATES_FIT = (
    "forall(r.states, s -> size(s.lengths) = size(r.fields)"
    " and size(s.ids) = size(r.fields) and size(s.weights) = size(r.fields)"
    " and forall(arrays_zip(s.lengths, s.ids, s.weights), z -> "
    "size(z.lengths) = size(r.keys) and size(z.ids) = size(z.weights)"
    " and aggregate(z.lengths, 0D, (a, n) -> a + n) = size(z.ids)"
    " and forall(z.lengths, n -> n >= 0D and cast(cast(n as int) as double) = n)"
    " and forall(z.ids, v -> not isnan(v)) and forall(z.weights, v -> not isnan(v))))"
)
"""The conditions of the codec on states."""


def _ints(doubles: str) -> Column:
    return sf.expr(f"cast({doubles} as array<int>)")


def _passed(name: str) -> Column:
    return sf.expr(f"if(ok, r.{name}, {_VOID[name]})")


def _figures(others: Collection[Figure]) -> Column:
    """Return per field and key a struct of the needed figures; the rest are 0."""
    no_values = "cast(array() as array<double>)"
    # An empty range must be excluded: the sequence from a to a - 1 counts downwards.
    of_key = f"if(o[i + 1] > a, transform(sequence(a, o[i + 1] - 1), j -> c[j]), {no_values})"
    of_keys = f"transform(slice(o, 1, size(r.keys)), (a, i) -> {of_key})"
    without_nan = _summed("y", "u", _of_values("y", "u", others))
    without_nan = f"transform(array(filter(x, v -> not isnan(v))), y -> {without_nan})[0]"
    of_values = _of_values("x", "t", others)
    figures = _summed("x", "t", f"if(isnan(t), {without_nan}, {of_values})")
    columns = f"if(ok and not has_ones, r.columns, cast(array() as {_COLUMNS}))"
    return sf.expr(f"transform({columns}, c -> transform({of_keys}, x -> {figures}))")


def _is_single(others: Collection[Figure]) -> Column:
    """Whether each key of an undamaged record has one reading.

    A record with figures of a query's own is always folded.
    """
    basic = " and size(to.others) = 0" if others else ""
    return sf.expr(f"coalesce({_HAS_ONES}{basic}, false)")


def _summed(values: str, total: str, then: str) -> str:
    """Return ``then``, an expression over ``total``, the sum of ``values``."""
    return f"aggregate({values}, 0D, (s, v) -> s + v, {total} -> {then})"


def _of_values(values: str, total: str, others: Collection[Figure]) -> str:
    members = []
    for figure in (*BASIC, *others):
        number = figure.of_values.format(values=values, total=total)
        if figure.name not in ALWAYS:
            number = f"if({_is_needed(figure)}, {number}, 0D)"
        members.append(f"'{figure.name}', {number}")
    return f"named_struct({', '.join(members)})"


def _is_needed(figure: Figure) -> str:
    if figure in BASIC:
        return f"to.{figure.name}"
    return f"array_contains(to.others, '{figure.name}')"


def _parted(figured: DataFrame) -> DataFrame:
    """Return each record once for every part, with the keys of that part, even if there are none.

    The exploded array, the parts' topics, is never empty: otherwise the record would be lost.
    ``at`` are the places of the part's keys.
    """
    one = "size(to.topics) = 1"
    no_places = "cast(array() as array<int>)"
    placed = figured.select(
        "*",
        sf.expr(
            f"if({one}, {no_places},"
            " transform(keys, k -> cast(pmod(xxhash64(k), size(to.topics)) as int)))"
        ).alias("part_of"),
        sf.posexplode("to.topics").alias("part", "topic"),
    )
    # The sequence counts downwards without keys.
    places = "filter(sequence(0, size(keys) - 1), i -> part_of[i] = part)"
    located = placed.select(
        "*", sf.expr(f"if({one} or size(keys) = 0, {no_places}, {places})").alias("at")
    )
    return located.select(
        "topic",
        "partition",
        "seq",
        "to",
        "single",
        *_PASSED,
        sf.expr(f"if({one}, keys, transform(at, i -> keys[i]))").alias("keys"),
        *(
            sf.expr(f"if({one}, {name}, transform({name}, f -> transform(at, i -> f[i])))").alias(
                name
            )
            for name in ("figures", "columns")
        ),
        sf.expr(f"if({one}, states, {_states_of_part()})").alias("states"),
    )


def _states_of_part() -> str:
    """Return the states of the keys of a part; ``at`` has the part of each entry of a field."""
    at = "flatten(transform(l, (n, i) -> array_repeat(part_of[i], cast(n as int))))"

    def of(column: str) -> str:
        kept = f"filter(s.{column}[f], (x, j) -> at[j] = part)"
        return f"transform(s.lengths, (l, f) -> transform(array({at}), at -> {kept})[0])"

    lengths = "transform(s.lengths, l -> filter(l, (n, i) -> part_of[i] = part))"
    return (
        f"transform(states, s -> named_struct('name', s.name, 'lengths', {lengths},"
        f" 'ids', {of('ids')}, 'weights', {of('weights')}))"
    )


def _delta(*others: Column) -> Column:
    absent = f"cast(array() as {_COLUMNS})"
    figures = {
        name: f"if(single, {_copied(name)}, transform(figures, f -> f.{name}))"
        for name in FIGURE_NAMES
    }
    for name in _OPTIONAL:
        figures[name] = f"if(to.{name}, {figures[name]}, {absent})"
    return sf.struct(
        *_PASSED,
        "seq",
        "keys",
        sf.xxhash64("keys").alias("keys_hash"),
        *(sf.expr(figures[name]).alias(name) for name in FIGURE_NAMES),
        *others,
    )


_IS_PLAIN = "array_max(c) < double('Infinity') and array_min(c) > double('-Infinity')"
"""Whether all numbers of ``c`` are finite; Spark orders NaN after infinity."""
_OF_PLAIN = {"count": "array_repeat(1D, size(c))", "m2": "array_repeat(0D, size(c))"}
"""Figures of finite readings, one for each key; the others are the readings."""
_OF_READING = {
    "count": "if(isnan(v), 0D, 1D)",
    "sum": "if(isnan(v), 0D, v)",
    "m2": "if(isnan(v), 0D, (v - v) * (v - v))",
    "min": "if(isnan(v), double('NaN'), v)",
    "max": "if(isnan(v), double('NaN'), v)",
}
"""Figures of a reading ``v``: of a missing value those of no values. m2 of an infinity is NaN."""


def _copied(name: str) -> str:
    """Return a figure's columns of records in which each key has one reading."""
    plain = _OF_PLAIN.get(name, "c")
    of_each = f"transform(c, v -> {_OF_READING[name]})"
    # Without keys the condition is null.
    return f"transform(columns, c -> if({_IS_PLAIN}, {plain}, {of_each}))"


def _columns_of(others: Collection[Figure]) -> Column:
    """Return the names and columns of those of these figures that a record's route has."""
    if not others:
        empty = f"cast(array() as array<struct<name:string,columns:{_COLUMNS}>>)"
        return sf.expr(empty).alias("others")
    entries = (
        f"named_struct('name', '{figure.name}', "
        f"'columns', transform(figures, f -> f.{figure.name}))"
        for figure in others
    )
    needed = "e -> array_contains(to.others, e.name)"
    return sf.expr(f"filter(array({', '.join(entries)}), {needed})").alias("others")


def _header(schema: str) -> bytes:
    """Return Avro's single-object header, which identifies records of the schema."""
    return b"\xc3\x01" + fingerprint(schema)
