"""Selects the valid readings of the source logs by the acceptance rule of readers (rule-10).

The rule is applied to the headers of all records, in Python; the columns stay in Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.avro.functions import from_avro

from slackwater.codec import fingerprint, older_versions, schema_json
from slackwater.model.deployment import Deployment, QuerySpec
from slackwater.model.limits import NEVER, RECORD_BATCH_BYTES_MAX
from slackwater.model.records import Kind

_HEADER_BYTES = 10


class Header(NamedTuple):
    """The fields of a source record that determine its acceptance."""

    offset: int
    kind: str
    inc: int
    first_id: int
    last_id: int
    boundary: int
    anew: bool = False
    """For a START: whether the ids begin anew."""


def accepted(headers: Iterable[Header]) -> Iterator[tuple[int, int]]:
    """Yield the offsets of accepted records, each with the watermark in effect before it.

    The rule is applied from the log's beginning: records of an incarnation smaller than the
    greatest so far are dropped, and only the record with the next id is accepted, with its
    boundary. All readers ignore a reading below the watermark in effect (trace-23). After a damaged
    record a later record is accepted, and the ids in between are lost (rule-10, rule-28).
    """
    inc, next_id, boundary = -1, -1, NEVER
    pending_gap = has_hole = False
    for header in headers:
        if header.kind == Kind.START.name:
            inc = max(inc, header.offset)
            next_id = -1 if header.anew else next_id
        elif header.kind == Kind.VOID.name or header.inc > header.offset:
            pending_gap = not has_hole
            continue
        elif header.inc < inc:
            continue
        else:
            inc = header.inc
        is_ahead = header.first_id > next_id
        if next_id not in (-1, header.first_id) and not (is_ahead and pending_gap):
            has_hole |= is_ahead
            continue
        pending_gap = has_hole = False
        if header.last_id >= header.first_id:
            yield header.offset, boundary
        next_id = header.last_id + 1
        boundary = max(boundary, header.boundary)


class AcceptedLogs(NamedTuple):
    """The accepted records, and the effects of retention."""

    accepted: DataFrame
    readings: int
    complete_from_us: int
    truncated: tuple[str, ...]


def read_topics(
    session: SparkSession, kafka: Mapping[str, str], what: Mapping[str, str]
) -> DataFrame:
    """Read the topics of ``what`` from beginning to present end, committed records only."""
    return (
        session.read.format("kafka")
        .options(**kafka)
        .option("kafka.isolation.level", "read_committed")
        .option("kafka.max.partition.fetch.bytes", str(RECORD_BATCH_BYTES_MAX))
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .options(**what)
        .load()
    )


def source_records(
    session: SparkSession, kafka: Mapping[str, str], deployment: Deployment, spec: QuerySpec
) -> DataFrame:
    """Return all source records of the query; ``r`` is null where one does not decode."""
    names = dict.fromkeys(deployment.streams_of(spec))
    pattern = "|".join(source_topics(name, deployment) for name in names)
    return decoded(read_topics(session, kafka, {"subscribePattern": pattern}))


def decoded(raw: DataFrame) -> DataFrame:
    """Decode records into structs ``r``; null if not a source record of a recorded schema."""
    lacking = {b"\xc3\x01" + fingerprint("source"): b""} | older_versions("source")
    header = sf.expr(f"substring(value, 1, {_HEADER_BYTES})")
    body = sf.expr(f"substring(value, {_HEADER_BYTES + 1}, {2**31 - 1})")
    upgraded = sf.lit(None).cast("binary")
    for version, added in lacking.items():
        of_version = sf.concat(body, sf.lit(added)) if added else body
        upgraded = sf.when(header == sf.lit(version), of_version).otherwise(upgraded)
    record = from_avro(upgraded, schema_json("source"), {"mode": "PERMISSIVE"})
    return raw.select("topic", "offset", record.alias("r"))


def source_topics(stream: str, deployment: Deployment) -> str:
    """Return the pattern of a stream's source logs, one per partition of an existing topic."""
    partition = r"\.\d+" if deployment.streams[stream].topic else ""
    return f"{re.escape(deployment.names.source(stream))}{partition}"


def read_headers(session: SparkSession, records: DataFrame, deployment: Deployment) -> AcceptedLogs:
    """Determine per source log the accepted records, and where retention has truncated it."""
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
    # Deleted readings may lie below the boundary in effect after the first record left, and up to
    # ``disorder`` above it.
    complete = [h.boundary + _stream(topic, deployment).disorder_us for topic, h in cut.items()]
    table = pa.table(
        {
            "topic": pa.array([topic for topic, _, _ in taken], pa.string()),
            "offset": pa.array([offset for _, offset, _ in taken], pa.int64()),
            "floor": pa.array([prev_watermark for _, _, prev_watermark in taken], pa.int64()),
        }
    )
    counts = {(t, h.offset): h.last_id - h.first_id + 1 for t, of in by_topic.items() for h in of}
    return AcceptedLogs(
        session.createDataFrame(table),
        sum(counts[topic, offset] for topic, offset, _ in taken),
        max(complete, default=NEVER),
        tuple(sorted(cut)),
    )


def _stream(topic: str, deployment: Deployment) -> Any:
    name = topic.removeprefix(deployment.names.source(""))
    return deployment.streams[name if name in deployment.streams else name.rpartition(".")[0]]
