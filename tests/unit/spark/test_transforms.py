"""Ordered records in, deltas out: compared with a naive fold, and with damage (rule-19, trace-9).

Both directions are tested at once: the codec's bytes are read by Spark's ``from_avro``, and those
of its ``to_avro`` are read by the codec.
"""

import io
import json
import math
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from tests.unit.primitives.test_keyparts import OF_SPARK

from slackwater.codec import (
    decode_delta,
    encode_delta,
    encode_ordered,
    fingerprint,
    older_versions,
    schema_json,
)
from slackwater.codec.avro_types import long_bytes
from slackwater.model.records import DeltaRecord, Gap, Kind, OrderedRecord, Position
from slackwater.primitives.aggregates import figures_of
from slackwater.primitives.deltas import Slice
from slackwater.primitives.figures import FIGURE_NAMES
from slackwater.primitives.key_table import KeyTable
from slackwater.primitives.keyparts import part_of, xxhash64
from slackwater_spark.transforms import Route, deltas

NAN = math.nan
FIRST_SEQ = 1000
HEADER = b"\xc3\x01" + fingerprint("ordered")
COMPLETE = Route("o", ("part-0",), child=2, replicas=2)
SPLIT = replace(COMPLETE, delta_topics=("part-0", "part-1", "part-2"))
ROUTES = pytest.mark.parametrize("route", [COMPLETE, SPLIT], ids=["whole", "split"])


def record(*slices: Sequence[float], kind: Kind = Kind.INSERTION, **more: Any) -> OrderedRecord:
    """Return one field ``t`` whose keys k0, k1, ... have these slices."""
    offsets = np.concatenate([[0.0], np.cumsum([float(len(s)) for s in slices])])
    values = np.array([value for s in slices for value in s], dtype=float)
    made = OrderedRecord(
        kind=kind,
        child=2,
        replica=1,
        inc=7,
        bucket_start=100,
        bucket_end=200,
        first_id=40,
        last_id=39 + len(values),
        keys=tuple(f"k{i}" for i in range(len(slices))),
        offsets=offsets,
        fields=("t",),
        values=(values,),
    )
    return replace(made, **more)


def source(
    spark: SparkSession, values: Sequence[bytes | None], line: int = 0, topic: str = "o"
) -> DataFrame:
    """Return the rows of Spark's Kafka source for these records."""
    count = len(values)
    return spark.createDataFrame(
        pa.table(
            {
                "topic": pa.array([topic] * count, pa.string()),
                "value": pa.array(values, pa.binary()),
                "offset": pa.array(range(FIRST_SEQ, FIRST_SEQ + count), pa.int64()),
                "partition": pa.array([2 + line] * count, pa.int32()),
            }
        )
    )


def run(
    spark: SparkSession, values: Sequence[bytes | None], route: Route = COMPLETE, line: int = 0
) -> list[list[DeltaRecord]]:
    """Return the deltas of each part, in the order of the sink."""
    topics = route.delta_topics
    rows = deltas(source(spark, values, line), [route]).collect()
    assert {row.partition for row in rows} <= {(2 * 2 + 1) * 2 + line}
    parts: list[list[DeltaRecord]] = [[] for _ in topics]
    for row in rows:
        delta = decode_delta(bytes(row.value))
        assert encode_delta(delta) == bytes(row.value), "the same bytes as our codec's"
        parts[topics.index(row.topic)].append(delta)
    return parts


def naive(values: Sequence[float]) -> tuple[float, float, float, float, float]:
    """Compute the five figures, one reading after the other."""
    there = [value for value in values if not math.isnan(value)]
    total = 0.0
    for value in there:
        total += value
    m2 = 0.0
    for value in there:
        m2 += (value - total / len(there)) * (value - total / len(there))
    return (float(len(there)), total, m2, min(there, default=NAN), max(there, default=NAN))


def check_figures(ordered: OrderedRecord, parts: Sequence[DeltaRecord]) -> None:
    """Check that every key is in exactly one part, with the naive figures bit for bit."""
    wanted = {
        key: [
            naive(column[int(ordered.offsets[i]) : int(ordered.offsets[i + 1])].tolist())
            for column in ordered.values
        ]
        for i, key in enumerate(ordered.keys)
    }
    found = {}
    for delta in parts:
        assert delta.fields == ordered.fields
        assert list(delta.keys) == [key for key in ordered.keys if key in set(delta.keys)]
        for i, key in enumerate(delta.keys):
            assert key not in found
            figures = (delta.count, delta.sum, delta.m2, delta.min, delta.max)
            found[key] = [tuple(f[n, i] for f in figures) for n in range(len(delta.fields))]
    assert found.keys() == wanted.keys()
    for key, figures_of_key in wanted.items():
        np.testing.assert_array_equal(found[key], figures_of_key, err_msg=key)


HARD_SLICES: dict[str, list[list[float]]] = {
    "negatives": [[-5.0, -1.0, -3.0]],
    "zeros": [[0.0, 0.0], [0.0, 4.0], [-0.0]],
    "empty groups": [[], [1.0], []],
    "all missing": [[NAN, NAN], [NAN]],
    "some missing": [[NAN, 2.0, NAN, -2.0], [3.0]],
    "far from zero": [[1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16]],
    "order of summing": [[1e16, 1.0, -1e16, 1.0]],
    "extremes": [[5e-324, 1.7976931348623157e308]],
    "no keys": [],
}


@ROUTES
def test_figures_of_hard_slices(spark: SparkSession, route: Route) -> None:
    records = [record(*slices) for slices in HARD_SLICES.values()]
    parts = run(spark, [encode_ordered(r) for r in records], route)
    for i, ordered in enumerate(records):
        check_figures(ordered, [part[i] for part in parts])


def test_variance_far_from_zero_is_exact(spark: SparkSession) -> None:
    ((delta,),) = run(spark, [encode_ordered(record([1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16]))])
    assert delta.m2[0, 0] == 90.0


values_of_key = st.lists(st.one_of(st.floats(-1e6, 1e6), st.just(NAN), st.just(0.0)), max_size=12)


@st.composite
def ordered_records(draw: st.DrawFn) -> OrderedRecord:
    slices = draw(st.lists(values_of_key, max_size=8))
    made = record(*slices, kind=draw(st.sampled_from([Kind.INSERTION, Kind.TENTATIVE])))
    columns = tuple(
        np.array([value * factor for value in made.values[0]])
        for factor in draw(st.sampled_from([(1.0,), (1.0, -3.0), ()]))
    )
    offsets = made.offsets if columns else np.zeros(len(slices) + 1)
    return replace(
        made, offsets=offsets, fields=tuple(f"f{i}" for i in range(len(columns))), values=columns
    )


@ROUTES
@settings(
    max_examples=4,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(records=st.lists(ordered_records(), min_size=20, max_size=60))
def test_figures_are_the_naive_ones(
    spark: SparkSession, route: Route, records: list[OrderedRecord]
) -> None:
    parts = run(spark, [encode_ordered(r) for r in records], route)
    for i, ordered in enumerate(records):
        check_figures(ordered, [part[i] for part in parts])


# --- one reading per key -------------------------------------------------------------------------

readings_of_key = st.tuples(*(2 * [st.one_of(st.floats(), st.sampled_from([0.0, -0.0, NAN]))]))


def of_single(readings: Sequence[tuple[float, float]], *more: float) -> OrderedRecord:
    """Return a record of two fields in which each key has one reading, and the last one ``more``.

    With ``more`` it is folded, else copied.
    """
    slices = [[first] for first, _ in readings] + ([list(more)] if more else [])
    made = record(*slices)
    other = np.array([second for _, second in readings] + list(more))
    return replace(made, fields=("t", "u"), values=(made.values[0], other))


def bits_of(parts: Sequence[DeltaRecord]) -> dict[str, bytes]:
    """Return the figures of each key as a root holds them."""
    found: dict[str, bytes] = {}
    for delta in parts:
        slice_ = Slice.of(delta, KeyTable(), ("t", "u"))
        figures = np.where(np.isnan(slice_.figures), NAN, slice_.figures)
        found |= {key: figures[:, :, i].tobytes() for i, key in enumerate(delta.keys)}
    return found


@ROUTES
@settings(
    max_examples=3,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    records=st.lists(st.lists(readings_of_key, min_size=1, max_size=8), min_size=20, max_size=40),
    names=st.sampled_from([("avg",), ("stddev",), ("range", "stddev")]),
)
def test_copied_figures_are_the_folded_ones(
    spark: SparkSession,
    route: Route,
    records: list[list[tuple[float, float]]],
    names: tuple[str, ...],
) -> None:
    """Bit for bit; a record with one key of two readings is folded as a whole."""
    made = [of_single(readings, *more) for readings in records for more in ((), (1.5, 2.5))]
    needed = replace(route, figures=figures_of(names))
    rows = deltas(source(spark, [encode_ordered(each) for each in made]), [needed]).collect()
    found = [decode_delta(bytes(row.value)) for row in rows]
    by_seq = {i: [each for each in found if each.seq == FIRST_SEQ + i] for i in range(len(made))}
    for i, readings in enumerate(records):
        copied, folded = bits_of(by_seq[2 * i]), bits_of(by_seq[2 * i + 1])
        del folded[f"k{len(readings)}"]
        assert copied == folded


@ROUTES
def test_as_many_readings_as_keys_are_not_one_each(spark: SparkSession, route: Route) -> None:
    records = [record([], [1.0, 2.0]), record([4.0, NAN], [], [1.0]), record([1.0], [2.0], [3.0])]
    parts = run(spark, [encode_ordered(each) for each in records], route)
    for i, ordered in enumerate(records):
        check_figures(ordered, [part[i] for part in parts])


@ROUTES
def test_one_record_in_gives_one_to_each_part_with_its_offset(
    spark: SparkSession, route: Route
) -> None:
    values = [encode_ordered(record([1.0], [2.0])), b"", encode_ordered(record()), b"?"]
    for part in run(spark, values, route, line=1):
        assert [delta.seq for delta in part] == [FIRST_SEQ + i for i in range(len(values))]
        assert [delta.kind for delta in part] == [1, Kind.VOID, 1, Kind.VOID]


def test_what_the_version_before_left_in_the_log_is_read_as_today(spark: SparkSession) -> None:
    """After an update the aggregator begins at records that the old orderer wrote."""
    today = encode_ordered(record([1.0, 5.0], [2.0]))
    values = [today]
    for header, lacking in older_versions("ordered").items():
        assert today.endswith(lacking)
        values.append(header + today[len(header) : -len(lacking)])
    assert len(values) > 1
    (part,) = run(spark, values, COMPLETE)
    assert [delta.kind for delta in part] == [Kind.INSERTION] * len(values)
    assert all(delta.sum.tolist() == part[0].sum.tolist() for delta in part)


@ROUTES
def test_start_and_boundary_pass_unchanged(spark: SparkSession, route: Route) -> None:
    start = OrderedRecord(Kind.START, 2, 1, 12, 0, 0, frontier=Position(400, 3))
    boundary = OrderedRecord(Kind.BOUNDARY, 2, 1, 12, 400, 900, missing=("b", "a"))
    for part in run(spark, [encode_ordered(start), encode_ordered(boundary)], route):
        assert (part[0].kind, part[0].inc, part[0].seq) == (Kind.START, 12, FIRST_SEQ)
        assert (part[0].child, part[0].replica) == (2, 1)
        assert (part[0].frontier, part[0].keys, part[0].fields) == (Position(400, 3), (), ())
        assert (part[1].kind, part[1].bucket_start, part[1].bucket_end) == (3, 400, 900)
        assert (part[1].missing, part[1].inc, part[1].frontier) == (("b", "a"), 12, None)


def test_the_header_passes(spark: SparkSession) -> None:
    ordered = record(
        [1.0],
        kind=Kind.TENTATIVE,
        piece=2,
        pieces=5,
        missing=("room-1", "room-2"),
        gap=(Gap("lab", 12), Gap("road", 2**40)),
    )
    ((delta,),) = run(spark, [encode_ordered(ordered)])
    for name in (
        *("kind", "child", "replica", "inc", "bucket_start", "bucket_end", "piece", "pieces"),
        *("first_id", "last_id", "frontier", "missing", "gap", "keys", "fields"),
    ):
        assert getattr(delta, name) == getattr(ordered, name), name


def test_equal_keys_have_equal_hashes_and_others_do_not(spark: SparkSession) -> None:
    one, same, other = run(
        spark,
        [
            encode_ordered(record([1.0], [2.0])),
            encode_ordered(record([3.0, 4.0], [])),
            encode_ordered(record([1.0], [2.0], keys=("k0", "k2"))),
        ],
    )[0]
    assert one.keys_hash == same.keys_hash != other.keys_hash


def test_keys_of_any_script_go_to_one_part_which_python_computes(spark: SparkSession) -> None:
    keys = ("", "Küche", "部屋", "🌊", "a" * 1000, *("é\0" * i for i in range(1, 30)))
    ordered = record(*[[float(i)] for i in range(len(keys))], keys=keys)
    parts = run(spark, [encode_ordered(ordered)], SPLIT)
    check_figures(ordered, [part[0] for part in parts])
    divided = [[key for key in keys if part_of(key, 3) == part] for part in range(3)]
    assert [list(part[0].keys) for part in parts] == divided


def test_the_hash_of_a_key_is_that_of_python(spark: SparkSession) -> None:
    keys = [*OF_SPARK, *("部屋-a🌊"[i % 5] * i for i in range(100))]
    rows = spark.createDataFrame(pa.table({"key": pa.array(keys, pa.string())}))
    found = [row.hash for row in rows.selectExpr("xxhash64(key) hash").collect()]
    assert found == xxhash64(keys).tolist()


# --- damage ---------------------------------------------------------------------------------------


def raw(**more: Any) -> bytes:
    """Return an ordered record with any content, written by another Avro writer."""
    made = {
        "kind": "INSERTION", "child": 2, "replica": 1, "inc": 0, "bucket_start": 0,
        "bucket_end": 100, "piece": 0, "pieces": 1, "first_id": 0, "last_id": 2,
        "frontier_bucket": 0, "frontier_piece": -1, "missing": [], "gap": [],
        "keys": ["a", "b"], "offsets": [0.0, 1.0, 3.0], "fields": ["t"],
        "columns": [[1.0, 2.0, 3.0]],
    }  # fmt: skip
    out = io.BytesIO()
    schema = fastavro.parse_schema(json.loads(schema_json("ordered")))
    fastavro.schemaless_writer(out, schema, made | more)
    return HEADER + out.getvalue()


def hostile(tail: bytes, kind: int = 1) -> bytes:
    """Return all fields up to ``missing`` and ``gap``, then these."""
    numbers = (kind, 2, 1, 0, 0, 100, 0, 1, 0, 2, 0, -1)
    return HEADER + b"".join(map(long_bytes, numbers)) + b"\x00\x00" + tail


GOOD = raw()
AFTER_KEYS = long_bytes(1) + long_bytes(1) + b"a\x00"
DAMAGE: dict[str, bytes | None] = {
    "nothing": b"",
    "tombstone": None,
    "foreign": b'{"temperature": 21}',
    "another schema": b"\xc3\x01" + fingerprint("delta") + GOOD[10:],
    "header alone": HEADER,
    "cut short": GOOD[:-5],
    "cut in a key": GOOD[:40],
    "flipped bits": HEADER + bytes(byte ^ 0x5A for byte in GOOD[10:]),
    "unknown kind": hostile(b"\x00" * 4, kind=77),
    "too few offsets": raw(offsets=[0.0, 3.0]),
    "no offsets": raw(keys=[], offsets=[]),
    "falling offsets": raw(offsets=[0.0, 3.0, 1.0]),
    "offsets beyond the values": raw(offsets=[0.0, 1.0, 4.0]),
    "values beyond the offsets": raw(offsets=[0.0, 1.0, 2.0]),
    "offsets from 1": raw(offsets=[1.0, 2.0, 3.0]),
    "negative offset": raw(offsets=[0.0, -1.0, 3.0]),
    "offset that is none": raw(offsets=[0.0, NAN, 3.0]),
    "offset between readings": raw(offsets=[0.0, 1.5, 3.0]),
    "endless offset": raw(offsets=[0.0, 1.0, math.inf]),
    "fewer columns than fields": raw(fields=["t", "u"]),
    "more columns than fields": raw(fields=[]),
    "columns of two lengths": raw(fields=["t", "u"], columns=[[1.0, 2.0, 3.0], [1.0]]),
    "bucket that ends before it starts": raw(bucket_start=200),
    "piece that is not one of them": raw(piece=1),
    "key that is no text": hostile(
        long_bytes(1) + long_bytes(2) + b"\xff\xfe\x00"
        + long_bytes(2) + struct.pack("<dd", 0.0, 0.0) + b"\x00\x00\x00"
    ),
    "2^31 keys": hostile(long_bytes(2**31)),
    "2^62 keys": hostile(long_bytes(2**62)),
    "a billion offsets": hostile(AFTER_KEYS + long_bytes(10**9)),
    "100 million values": hostile(
        AFTER_KEYS + long_bytes(2) + struct.pack("<dd", 0.0, 1e8) + b"\x00"
        + long_bytes(1) + long_bytes(1) + b"t\x00" + long_bytes(1) + long_bytes(10**8)
    ),
    "a block of negative length": hostile(long_bytes(-3) + long_bytes(-1)),
    "a string of 2 GB": hostile(long_bytes(1) + long_bytes(2**31 - 1)),
    "a string of negative length": hostile(long_bytes(1) + long_bytes(-5)),
}  # fmt: skip


@ROUTES
def test_each_kind_of_damage_gives_one_void_in_its_place(spark: SparkSession, route: Route) -> None:
    values: list[bytes | None] = [GOOD]
    for damaged in DAMAGE.values():
        values += [damaged, GOOD]
    for part in run(spark, values, route):
        assert [delta.seq for delta in part] == list(range(FIRST_SEQ, FIRST_SEQ + len(values)))
        for i, name in enumerate(DAMAGE):
            assert part[2 * i + 1].kind == Kind.VOID, name
            assert part[2 * i + 2].kind == Kind.INSERTION, f"after {name}"
        void = part[1]
        assert (void.child, void.replica, void.keys, void.fields) == (2, 1, (), ())


def test_the_undamaged_record_is_good(spark: SparkSession) -> None:
    ((delta,),) = run(spark, [GOOD])
    assert delta.kind == Kind.INSERTION
    assert delta.sum.tolist() == [[1.0, 5.0]]


# --- figures that no aggregate needs ------------------------------------------------------------


@pytest.mark.parametrize("aggregates", [("count",), ("avg", "max"), ("stddev",), ("range", "sum")])
def test_figures_that_no_aggregate_needs_are_absent(
    spark: SparkSession, aggregates: tuple[str, ...]
) -> None:
    wanted = figures_of(aggregates)
    ordered = record([1.0, NAN, 5.0], [], [NAN], [-2.0, 2.5])
    route = replace(SPLIT, figures=wanted)
    rows = deltas(source(spark, [encode_ordered(ordered)]), [route]).collect()
    complete = [part[0] for part in run(spark, [encode_ordered(ordered)], SPLIT)]
    assert len(rows) == len(complete) == 3
    for row, of_all in zip(rows, complete, strict=True):
        assert len(bytes(row.value)) < len(encode_delta(of_all)) or not of_all.keys
        delta = decode_delta(bytes(row.value))
        for name in FIGURE_NAMES:
            neutral = np.full((1, len(delta.keys)), 0.0 if name == "m2" else NAN)
            expected = getattr(of_all, name) if name in wanted else neutral
            np.testing.assert_array_equal(getattr(delta, name), expected, err_msg=name)


# --- many queries in one -------------------------------------------------------------------------


def test_each_topic_s_records_go_where_its_own_route_leads(spark: SparkSession) -> None:
    """Topics of three queries in one DataFrame give the same as separate ones, with damage."""
    counted = figures_of(("count",))
    routes = {
        "o": SPLIT,
        "other": Route("other", ("x-0",), child=0, replicas=2, figures=counted),
        "third": Route("third", ("y-0", "y-1"), child=1, replicas=2, figures=figures_of(("max",))),
    }
    values = {
        topic: [encode_ordered(record([1.0 + i, NAN], [5.0])), b"?", encode_ordered(record())]
        for i, topic in enumerate(routes)
    }
    frames = [source(spark, values[topic], i % 2, topic) for i, topic in enumerate(routes)]
    merged = frames[0].unionByName(frames[1]).unionByName(frames[2])
    found = sorted(tuple(row) for row in deltas(merged, list(routes.values())).collect())
    alone = [deltas(f, [r]).collect() for f, r in zip(frames, routes.values(), strict=True)]
    assert found == sorted(tuple(row) for rows in alone for row in rows)
    assert len(found) == 3 * (3 + 1 + 2)
    partitions = {row.topic: row.partition for row in deltas(merged, routes.values()).collect()}
    assert partitions == {
        **dict.fromkeys(SPLIT.delta_topics, 2 * (2 * 2 + 1)),
        "x-0": 2 * (0 * 2 + 1) + 1,
        "y-0": 2 * (1 * 2 + 1),
        "y-1": 2 * (1 * 2 + 1),
    }


# --- how it is done -------------------------------------------------------------------------------


@ROUTES
def test_decodes_once_and_natively(
    spark: SparkSession, route: Route, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = str(tmp_path_factory.mktemp("plan") / "in.parquet")
    source(spark, [GOOD]).write.parquet(path)
    frame = deltas(spark.read.parquet(path), [route])
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert plan.count("from_avro") == 1, plan
    assert plan.count("to_avro") == 1, plan
    assert "Python" not in plan
    assert "Exchange" not in plan
