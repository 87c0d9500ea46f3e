"""Reads a query's results: committed rows, and the windows that each part has answered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from slackwater.codec.results import format_time
from slackwater.judge.calendars import judged_windows
from slackwater.model.deployment import Deployment, QuerySpec
from slackwater.model.limits import CLOCK_SKEW_US_MAX
from slackwater.model.names import Names, generation_of
from slackwater.primitives.expression_sql import KEY_COLUMN
from slackwater_spark.audit.source_logs import read_topics

_RESULT = (
    "kind string, label string, window_start string, window_end string, windows bigint,"
    " generation int, key string, fields map<string, map<string, double>>, lost string,"
    " emitted_at string"
)


def read_results(
    session: SparkSession, kafka: Mapping[str, str], names: Names, spec: QuerySpec
) -> DataFrame:
    """Return the parsed, committed records of the stable topic."""
    raw = read_topics(session, kafka, {"subscribe": names.results(spec.name, "stable")})
    parsed = raw.select(
        "partition", "offset", sf.from_json(raw.value.cast("string"), _RESULT).alias("r")
    )
    return parsed.select(
        "partition",
        "offset",
        "r.kind",
        "r.windows",
        sf.coalesce("r.generation", sf.lit(0)).alias("generation"),
        sf.col("r.key").alias(KEY_COLUMN),
        "r.fields",
        "r.lost",
        sf.expr("unix_micros(to_timestamp(r.window_start))").alias("window_start"),
        sf.expr("unix_micros(to_timestamp(r.window_end))").alias("window_end"),
        sf.expr("unix_micros(to_timestamp(r.emitted_at))").alias("emitted_at"),
    )


class AuditedAnswers(NamedTuple):
    """The windows that the parts have answered, [start, end) by part, and the errors found.

    ``twice`` and ``unanswered`` count windows; ``findings`` has a sentence for each error.
    """

    starts: dict[int, int]
    ends: dict[int, int]
    twice: int
    unanswered: int
    findings: list[str]


def answers_of(results: DataFrame, spec: QuerySpec, first_us: int) -> AuditedAnswers:
    """Read the answered windows from each part's boundary records, which have them in order.

    ``first_us`` is the start of the query's first window. A new generation of a query begins at the
    window after those of the earlier one (rule-29).
    """
    assert spec.window is not None
    each, generation = judged_windows(spec.window), generation_of(spec.name)
    begins = results.groupBy("partition").agg(sf.min("offset")).collect()
    # If retention has truncated the results, the first window left may be incomplete.
    complete = {part for part, offset in begins if offset == 0}
    rows = (
        results.where("kind = 'boundary'")
        .where(sf.col("generation") <= generation)
        .select("partition", "window_start", "windows", "generation")
        .orderBy("partition", "offset")
        .collect()
    )
    starts: dict[int, int] = {}
    ends: dict[int, int] = {}
    answered: dict[int, int] = {}
    """The end of what each part has answered in any generation."""
    twice = unanswered = 0
    findings = []
    for part, window, windows, of in rows:
        is_first = part in complete and not generation
        begun = first_us if is_first else window
        if of == generation:
            starts.setdefault(
                part, begun if is_first or part in answered else each.later(window, 1)
            )
        due = answered.get(part, begun)
        if window < due:
            twice += 1
            findings.append(f"part {part}: {format_time(window)} is answered twice")
        elif window > due:
            unanswered += each.between(due, window)
            findings.append(
                f"part {part}: no answers from {format_time(due)} to {format_time(window)}"
            )
        answered[part] = max(due, each.later(window, windows))
        if of == generation:
            ends[part] = answered[part]
    return AuditedAnswers(starts, ends, twice, unanswered, findings)


def early_answers(
    results: DataFrame, deployment: Deployment, spec: QuerySpec
) -> list[tuple[int, int, int]]:
    """Return (part, window start, how long before its end in us) of early stable answers.

    No window is stable before its end less the streams' ``disorder`` (guarantee-1, trace-45). A
    file's event time is not wall time, and after its end a window may end later (trace-24), so
    queries over files are left to rehearsals.
    """
    streams = [deployment.streams[name] for name in deployment.streams_of(spec)]
    if deployment.clock != "wall" or not all(s.topic or s.mqtt or s.http for s in streams):
        return []
    tolerance = max(s.disorder_us for s in streams) + CLOCK_SKEW_US_MAX
    lead = results.window_end - results.emitted_at
    rows = (
        results.where("kind = 'boundary'")
        .where(results.generation == generation_of(spec.name))
        .where(lead > tolerance)
        .select("partition", "window_start", lead)
        .orderBy("partition", "offset")
        .collect()
    )
    return [(part, window, early) for part, window, early in rows]
