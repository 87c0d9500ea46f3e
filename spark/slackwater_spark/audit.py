"""The audit: a query's stable results, computed once more as a Spark batch job, and compared.

What the pipeline claims (guarantee 1) is that its stable answers are those of a batch computation
over the readings in the source logs. Here is that batch computation: it reads the same logs, but
knows no orderer, bucket, delta or root. It shares with the pipeline the bytes' schema, the rules by
which a reader accepts a record (rule 10; ``distinct`` by id would bring a zombie's readings in) and
the deployment's values, and the parser of expressions. ``where`` and ``select`` are computed by
Spark's SQL, windows by an explode, aggregates by ``groupBy``: each is somebody else's code. Fields
are columns by position, ``c0``, ``c1``, ..., since Spark does not tell ``T`` from ``t``, nor a
field ``stime`` from ours.

The results are read first and the source logs after, so every reading that a stable answer rests on
is there. Windows up to the last that *every* part has answered are compared, from the first that
holds E0 on (R24). Sums may differ by rounding, because Spark adds in another order; counts and
extremes may not. Where retention has already cut a source log, the windows that may have had
readings in what is gone are left out, and the report says so.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.avro.functions import from_avro

from slackwater.codec import fingerprint, schema_json
from slackwater.codec.results import format_time
from slackwater.model.deployment import Deployment, QuerySpec, WindowSpec
from slackwater.model.names import Names
from slackwater.model.records import Kind
from slackwater.primitives.expression_sql import KEY_COLUMN
from slackwater.primitives.expressions import compile_predicate, compile_projection
from slackwater_spark.expressions import with_columns
from slackwater_spark.session import SessionSettings, start_spark

findings_max = 20
"""Sentences kept; the counts go on."""

_NEVER = -(2**62)
_HEADER_BYTES = 10
NO_SECURITY: Final[Mapping[str, str]] = MappingProxyType({})
"""A cluster that is open to all."""
_RESULT = (
    "kind string, label string, window_start string, window_end string, windows bigint,"
    " key string, fields map<string, map<string, double>>, lost string"
)
# As the results' own vocabulary; each over one column of the cells of a window and key.
_AGGREGATES = {
    "count": "cast(count(v) as double)",
    "sum": "sum(v)",
    "avg": "avg(v)",
    "min": "min(v)",
    "max": "max(v)",
    "range": "max(v) - min(v)",
    "var": "var_samp(v)",
    "stddev": "stddev_samp(v)",
}


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What was compared, and what was found. Times in us since the epoch.

    ``lost``: rows that should be there and are not. ``doubled``: rows given more than once.
    ``wrong``: rows with other figures, or that should not be there, and windows answered more than
    once. ``gapped``: rows that say themselves that retention took readings from them.
    ``truncated``: source logs whose beginning is gone; windows before ``start_us`` were left out.
    """

    query: str
    start_us: int
    end_us: int
    windows: int
    rows: int
    readings: int
    lost: int
    doubled: int
    wrong: int
    gapped: int
    truncated: tuple[str, ...]
    findings: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether the stable results are those of the batch computation."""
        return not (self.lost or self.doubled or self.wrong)


class Header(NamedTuple):
    """What the acceptance of a source record depends on."""

    offset: int
    kind: str
    inc: int
    first_id: int
    last_id: int
    boundary: int
    anew: bool = False
    """Of a START: the ids begin anew."""


def accepted(headers: Iterable[Header]) -> Iterator[tuple[int, int]]:
    """Offsets of the records whose readings count, each with the promise that held before it.

    Rule 10 over a log from its beginning: what is below the highest START is dropped, then exactly
    the record whose first id is next is taken, its boundary with it. A reading below the promise
    before it broke that promise, and is skipped by everybody alike (R23). What is ahead behind
    damage is next: what lies between is lost (rule 28).
    """
    inc, next_id, boundary = -1, -1, _NEVER
    torn = holed = False
    for header in headers:
        if header.kind == Kind.START.name:
            inc = max(inc, header.offset)
            next_id = -1 if header.anew else next_id
        elif header.kind == Kind.VOID.name or header.inc > header.offset:
            torn = not holed
            continue
        elif header.inc < inc:
            continue
        else:
            inc = header.inc
        is_ahead = header.first_id > next_id
        if next_id not in (-1, header.first_id) and not (is_ahead and torn):
            holed |= is_ahead
            continue
        torn = holed = False
        if header.last_id >= header.first_id:
            yield header.offset, boundary
        next_id = header.last_id + 1
        boundary = max(boundary, header.boundary)


def run_audit(
    bootstrap: str,
    deployment: Deployment,
    query: str | QuerySpec,
    e0_us: int,
    *,
    security: Mapping[str, str] = NO_SECURITY,
    work_dir: Path | None = None,
    heap_mib: int = 2048,
) -> AuditReport:
    """Compute the query's stable results from the source logs and compare; starts its own JVM."""
    spec = deployment.queries[query] if isinstance(query, str) else query
    with tempfile.TemporaryDirectory(prefix="slackwater-audit-", dir=work_dir) as folder:
        settings = SessionSettings("audit", Path(folder) / "spark", "local[*]", heap_mib)
        with start_spark(settings) as spark:
            return audit(spark.session, bootstrap, deployment, spec, e0_us, security)


def audit(
    session: SparkSession,
    bootstrap: str,
    deployment: Deployment,
    spec: QuerySpec,
    e0_us: int,
    security: Mapping[str, str] = NO_SECURITY,
) -> AuditReport:
    """The same in a session that is there; ``security`` are options that say how to get in."""
    assert spec.window is not None, "a query without windows has nothing to audit"
    kafka = {"kafka.bootstrap.servers": bootstrap, **security}
    results = _results(session, kafka, deployment.names, spec).cache()
    first_us = ((e0_us - spec.window.size_us) // spec.window.slide_us + 1) * spec.window.slide_us
    answers = _answers(results, spec, first_us)
    end = min(answers.ends.values()) if len(answers.ends) == spec.parts else first_us
    records = _source_records(session, kafka, deployment, spec)
    log = _read_headers(session, records, deployment)
    back = spec.join.within_us if spec.join else 0
    whole_from = _up_to_slide(log.whole_from_us + back, spec.window)
    start = max(first_us, *answers.starts.values(), whole_from)
    wanted = _aggregate(_rows(records, log.accepted, deployment, spec, e0_us), deployment, spec)
    compared = _compared(wanted, results, spec, start, end)
    outputs = deployment.output_fields(spec)
    return _report(spec, outputs, compared, answers, log, start, end)


# --- results --------------------------------------------------------------------------------------


def _results(
    session: SparkSession, kafka: Mapping[str, str], names: Names, spec: QuerySpec
) -> DataFrame:
    """The committed records of the stable topic, parsed."""
    raw = _kafka(session, kafka, {"subscribe": names.results(spec.name, "stable")})
    parsed = raw.select(
        "partition", "offset", sf.from_json(raw.value.cast("string"), _RESULT).alias("r")
    )
    # Seconds and fraction apart: a timestamp's own parser drops what it does not expect.
    return parsed.select(
        "partition",
        "offset",
        "r.kind",
        "r.windows",
        sf.col("r.key").alias(KEY_COLUMN),
        "r.fields",
        "r.lost",
        sf.expr("unix_micros(to_timestamp(r.window_start))").alias("window_start"),
        sf.expr("unix_micros(to_timestamp(r.window_end))").alias("window_end"),
    )


class _Answers(NamedTuple):
    """Which windows the parts have answered, [start, end) for each, and sentences on faults."""

    starts: dict[int, int]
    ends: dict[int, int]
    twice: int
    skipped: int
    findings: list[str]


def _answers(results: DataFrame, spec: QuerySpec, first_us: int) -> _Answers:
    """Follow each part's boundaries, which name its answered windows in order."""
    assert spec.window is not None
    slide = spec.window.slide_us
    begins = results.groupBy("partition").agg(sf.min("offset")).collect()
    # Where the results' own retention has cut, the first window left may not be whole.
    whole = {part for part, offset in begins if offset == 0}
    rows = (
        results.where("kind = 'boundary'")
        .select("partition", "window_start", "windows")
        .orderBy("partition", "offset")
        .collect()
    )
    starts: dict[int, int] = {}
    ends: dict[int, int] = {}
    twice = skipped = 0
    findings = []
    for part, window, windows in rows:
        starts.setdefault(part, first_us if part in whole else window + slide)
        due = ends.get(part, first_us if part in whole else window)
        if window < due:
            twice += 1
            findings.append(f"part {part}: {format_time(window)} is answered twice")
        elif window > due:
            skipped += (window - due) // slide
            findings.append(
                f"part {part}: no answers from {format_time(due)} to {format_time(window)}"
            )
        ends[part] = max(due, window + windows * slide)
    return _Answers(starts, ends, twice, skipped, findings)


# --- source logs ----------------------------------------------------------------------------------


class _Logs(NamedTuple):
    """What was accepted, and what retention has left."""

    accepted: DataFrame
    readings: int
    whole_from_us: int
    truncated: tuple[str, ...]


def _kafka(session: SparkSession, kafka: Mapping[str, str], what: Mapping[str, str]) -> DataFrame:
    return (
        session.read.format("kafka")
        .options(**kafka)
        .option("kafka.isolation.level", "read_committed")
        .option("kafka.max.partition.fetch.bytes", str(17 * 1024 * 1024))
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .options(**what)
        .load()
    )


def _source_records(
    session: SparkSession, kafka: Mapping[str, str], deployment: Deployment, spec: QuerySpec
) -> DataFrame:
    """Records of all source logs of the query, ``r`` null where one does not decode."""
    names = dict.fromkeys(deployment.streams_of(spec))
    pattern = "|".join(_topics(name, deployment) for name in names)
    return _decoded(_kafka(session, kafka, {"subscribePattern": pattern}))


def _decoded(raw: DataFrame) -> DataFrame:
    header = b"\xc3\x01" + fingerprint("source")
    ours = sf.expr(f"substring(value, 1, {_HEADER_BYTES})") == sf.lit(header)
    body = sf.expr(f"substring(value, {_HEADER_BYTES + 1}, {2**31 - 1})")
    record = from_avro(body, schema_json("source"), {"mode": "PERMISSIVE"})
    return raw.select("topic", "offset", sf.when(ours, record).alias("r"))


def _topics(stream: str, deployment: Deployment) -> str:
    """Pattern of a stream's source logs: each partition of an existing topic is one."""
    partition = r"\.\d+" if deployment.streams[stream].topic else ""
    return f"{re.escape(deployment.names.source(stream))}{partition}"


def _read_headers(session: SparkSession, records: DataFrame, deployment: Deployment) -> _Logs:
    names = ("inc", "first_id", "last_id", "boundary")
    headers = (
        records.select(
            "topic",
            "offset",
            sf.expr(f"coalesce(r.kind, '{Kind.VOID.name}')"),
            *(sf.expr(f"coalesce(r.{name}, 0)") for name in names),
            sf.expr("coalesce(size(r.gap) > 0, false)"),
        )
        .orderBy("topic", "offset")
        .toArrow()
    )
    by_topic: dict[str, list[Header]] = {}
    for row in zip(*(headers.column(i).to_pylist() for i in range(8)), strict=True):
        by_topic.setdefault(row[0], []).append(Header(*row[1:]))
    taken = [(topic, *at) for topic, of in by_topic.items() for at in accepted(of)]
    cut = {
        topic: next((h for h in of if h.kind != Kind.VOID.name), of[0])
        for topic, of in by_topic.items()
        if of[0].offset > 0
    }
    # Below the boundary that held behind the first record left, and up to ``disorder`` above it,
    # there may have been readings before it.
    whole = [h.boundary + _stream(topic, deployment).disorder_us for topic, h in cut.items()]
    table = pa.table(
        {
            "topic": pa.array([topic for topic, _, _ in taken], pa.string()),
            "offset": pa.array([offset for _, offset, _ in taken], pa.int64()),
            "floor": pa.array([floor for _, _, floor in taken], pa.int64()),
        }
    )
    counts = {(t, h.offset): h.last_id - h.first_id + 1 for t, of in by_topic.items() for h in of}
    return _Logs(
        session.createDataFrame(table),
        sum(counts[topic, offset] for topic, offset, _ in taken),
        max(whole, default=_NEVER),
        tuple(sorted(cut)),
    )


def _stream(topic: str, deployment: Deployment) -> Any:
    name = topic.removeprefix(deployment.names.source(""))
    return deployment.streams[name if name in deployment.streams else name.rpartition(".")[0]]


def _up_to_slide(e_us: int, window: WindowSpec) -> int:
    return -(-e_us // window.slide_us) * window.slide_us


def _rows(
    records: DataFrame, taken: DataFrame, deployment: Deployment, spec: QuerySpec, e0_us: int
) -> DataFrame:
    """What the query computes with: its readings, or the pairs of a join."""
    names = deployment.input_fields(spec)
    join = spec.join
    if join is None:
        return _readings(records, taken, names).where(f"stime >= {e0_us}")
    sides = []
    place = 0
    for side, stream in (("left", join.left), ("right", join.right)):
        mine = sf.col("topic").rlike(f"^{_topics(stream, deployment)}$")
        fields = deployment.fields_of(stream)
        readings = _readings(records.where(mine), taken, fields, place)
        place += len(fields)
        readings = readings.where(f"stime >= {e0_us}")
        sides.append(readings.withColumnRenamed("stime", f"stime_{side}").drop("floor"))
    near = sf.expr(f"abs(stime_left - stime_right) <= {join.within_us}L")
    pairs = sides[0].join(sides[1], KEY_COLUMN).where(near)
    return pairs.withColumn("stime", sf.expr("greatest(stime_left, stime_right)"))


def _readings(
    records: DataFrame, taken: DataFrame, fields: Sequence[str], place: int = 0
) -> DataFrame:
    """One row for each accepted reading: ``stime``, ``key_``, and the fields from c<place> on."""
    joined = records.join(sf.broadcast(taken), ["topic", "offset"])
    names = [f"c{i}" for i in range(place, place + len(fields))]
    # A field that the record lacks has no column: NULL, like a NaN.
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
        *columns,
        sf.expr(f"posexplode({times})").alias("i", "after"),
    )
    return exploded.select(
        sf.expr("base + cast(after as bigint)").alias("stime"),
        sf.expr("keys[cast(key_index[i] as int)]").alias(KEY_COLUMN),
        *(sf.expr(f"nanvl({name}[i], null)").alias(name) for name in names),
        "floor",
    ).where("stime >= floor")


# --- the query ------------------------------------------------------------------------------------


def _aggregate(readings: DataFrame, deployment: Deployment, spec: QuerySpec) -> DataFrame:
    """One row for each window and key, with a column ``f0``, ``f1``, ... for each output field.

    Each holds the figures, and what rounding is relative to.
    """
    assert spec.window is not None
    readings = _selected(readings, deployment.input_fields(spec), spec)
    size, slide = spec.window.size_us, spec.window.slide_us
    back = sf.expr(f"explode(sequence(0L, {-(-size // slide) - 1}L))")
    cells = readings.select("*", back.alias("back"))
    last = f"stime - pmod(stime, {slide}L)"
    cells = cells.select("*", sf.expr(f"{last} - back * {slide}L").alias("window_start")).where(
        f"window_start + {size}L > stime"
    )
    grouped = cells.groupBy("window_start", KEY_COLUMN)
    outputs = range(len(deployment.output_fields(spec)))
    return grouped.agg(*(_figures(f"c{i}", spec.aggregate).alias(f"f{i}") for i in outputs))


def _selected(readings: DataFrame, names: Sequence[str], spec: QuerySpec) -> DataFrame:
    """What ``where`` keeps, with the columns of ``select`` as ``c0``, ``c1``, ..."""
    if spec.where is not None:
        root = compile_predicate(spec.where, names).root
        readings, conditions = with_columns(readings, names, [root])
        readings = readings.where(conditions[0])
    if spec.select is None:
        return readings
    numbers = [number for _, number in compile_projection(spec.select, names).fields]
    # Columns that ``where`` needed have the names of those that are made here.
    readings = readings.select("stime", KEY_COLUMN, *(f"c{i}" for i in range(len(names))))
    readings, values = with_columns(readings, names, numbers)
    outputs = (value.cast("double").alias(f"c{i}") for i, value in enumerate(values))
    return readings.select("stime", KEY_COLUMN, *outputs)


def _figures(name: str, aggregate: Sequence[str]) -> Column:
    figures = [
        sf.expr(_AGGREGATES[figure].replace("(v)", f"({name})")).alias(figure)
        for figure in aggregate
    ]
    value = sf.col(name)
    return sf.struct(
        *figures,
        sf.max(sf.abs(value)).alias("_scale"),
        sf.count(value).alias("_count"),
        sf.var_samp(value).alias("_var"),
    )


# --- comparison -----------------------------------------------------------------------------------


def _compared(
    wanted: DataFrame, results: DataFrame, spec: QuerySpec, start: int, end: int
) -> DataFrame:
    """Wanted and given side by side, one row for each window and key."""
    assert spec.window is not None
    # ``end`` is where the next answer will begin.
    within = f"window_start >= {start} and window_start < {end}"
    given = results.where("kind = 'stable'").where(within)
    given = given.groupBy("window_start", KEY_COLUMN).agg(
        sf.count("*").alias("times"),
        sf.first("fields").alias("given"),
        sf.max(sf.expr("lost is not null")).alias("gapped"),
    )
    fields = [name for name in wanted.columns if name not in ("window_start", KEY_COLUMN)]
    wanted = wanted.where(within).select(
        "window_start", KEY_COLUMN, sf.struct(*fields).alias("wanted")
    )
    return wanted.join(given, ["window_start", KEY_COLUMN], "full_outer")


def _report(
    spec: QuerySpec,
    outputs: Sequence[str],
    compared: DataFrame,
    answers: _Answers,
    log: _Logs,
    start: int,
    end: int,
) -> AuditReport:
    assert spec.window is not None
    counts = dict.fromkeys(("rows", "lost", "doubled", "wrong", "gapped"), 0)
    findings = list(answers.findings)
    for row in compared.toLocalIterator():
        counts["rows"] += 1
        verdict, why = _judge(row, outputs, spec)
        if verdict is not None:
            counts[verdict] += 1
        if why is not None:
            findings.append(f"{format_time(row.window_start)} {row[KEY_COLUMN]}: {why}")
    return AuditReport(
        query=spec.name,
        start_us=start,
        end_us=end,
        windows=max(0, (end - start) // spec.window.slide_us),
        rows=counts["rows"],
        readings=log.readings,
        lost=counts["lost"] + answers.skipped,
        doubled=counts["doubled"],
        wrong=counts["wrong"] + answers.twice,
        gapped=counts["gapped"],
        truncated=log.truncated,
        findings=tuple(findings[:findings_max]),
    )


def _judge(row: Row, outputs: Sequence[str], spec: QuerySpec) -> tuple[str | None, str | None]:
    """What is to be said of one window and key: the word it counts under, and a phrase."""
    if row.gapped:
        return "gapped", None
    if row.given is None:
        return "lost", "no row"
    if row.wanted is None:
        return "wrong", "a row without readings"
    if row.times > 1:
        return "doubled", f"{row.times} rows"
    wanted = dict(zip(outputs, row.wanted, strict=True))
    different = _different(wanted, row.given, spec.aggregate)
    return (None, None) if different is None else ("wrong", different)


def _different(
    wanted: Mapping[str, Row], given: Mapping[str, Mapping[str, float]], aggregate: Sequence[str]
) -> str | None:
    if wanted.keys() != given.keys():
        return f"fields {sorted(given)}, not {sorted(wanted)}"
    for name, figures in wanted.items():
        for figure in aggregate:
            want, got = figures[figure], given[name].get(figure)
            if want is None or got is None:
                if want is not got:
                    return f"{name}.{figure} is {got}, not {want}"
            elif abs(want - got) > _slack(figure, figures, want):
                return f"{name}.{figure} is {got!r}, not {want!r}"
    return None


def _slack(figure: str, figures: Row, want: float) -> float:
    """How far two orders of summing may lie apart for doubles of this magnitude."""
    if figure in ("count", "min", "max", "range"):
        return 0.0
    eps = 1e-12 * (figures["_scale"] or 0.0)
    spread = (figures["_var"] or 0.0) ** 0.5
    slack = {"sum": eps * figures["_count"], "var": eps * spread + eps * eps}.get(figure, eps)
    return float(slack + 1e-9 * abs(want))
