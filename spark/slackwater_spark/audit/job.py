"""The audit: recomputes a query's stable results as a Spark batch job and compares.

The pipeline guarantees that its stable answers equal a batch computation over the readings in the
source logs (guarantee-1). The audit is such a computation: it reads the same logs, but uses no
orderer, bucket, delta or root. It shares with the pipeline the wire schema, the acceptance rule of
readers (rule-10; ``distinct`` by id would include a zombie's readings), the deployment's values and
the parser of expressions. All other code is independent: ``where`` and ``select`` are computed by
Spark SQL, windows by an explode, aggregates by ``groupBy``. Fields are columns by position, ``c0``,
``c1``, ..., since Spark does not distinguish ``T`` from ``t``, nor a field ``stime`` from the event
time.

The results are read before the source logs, so every reading of a stable answer is included. The
audit compares the windows from the first that contains E0 to the last that *every* part has
answered (trace-24). Sums may differ by rounding, because Spark adds in another order; counts and
extremes may not. If retention has truncated a source log, windows that may have had deleted
readings are excluded, and the report names the log.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from pyspark.sql import SparkSession

from slackwater.judge.calendars import JudgedWindows, judged_windows
from slackwater.model.deployment import Deployment, QuerySpec
from slackwater.model.names import generation_of
from slackwater_spark.audit.comparison import AuditReport, compare_rows, make_report
from slackwater_spark.audit.query import aggregated, input_rows
from slackwater_spark.audit.results import answers_of, early_answers, read_results
from slackwater_spark.audit.source_logs import read_headers, source_records
from slackwater_spark.session import SessionSettings, start_spark

NO_SECURITY: Final[Mapping[str, str]] = MappingProxyType({})
"""Client settings for a cluster without security."""


def run_audit(
    bootstrap: str,
    deployment: Deployment,
    query: str | QuerySpec,
    start_time_us: int,
    *,
    security: Mapping[str, str] = NO_SECURITY,
    work_dir: Path | None = None,
    heap_mib: int = 2048,
) -> AuditReport:
    """Run the audit in a JVM of its own.

    Args:
        bootstrap: address of the broker.
        deployment: the deployment of the query.
        query: the query or its name; it must have a window.
        start_time_us: E0 of the query, us (event time).
        security: Spark's options for the connection to Kafka.
        work_dir: directory for temporary files.
        heap_mib: heap of the JVM.
    """
    spec = deployment.queries[query] if isinstance(query, str) else query
    with tempfile.TemporaryDirectory(prefix="slackwater-audit-", dir=work_dir) as folder:
        settings = SessionSettings("audit", Path(folder) / "spark", "local[*]", heap_mib)
        with start_spark(settings) as spark:
            return audit(spark.session, bootstrap, deployment, spec, start_time_us, security)


def audit(
    session: SparkSession,
    bootstrap: str,
    deployment: Deployment,
    spec: QuerySpec,
    start_time_us: int,
    security: Mapping[str, str] = NO_SECURITY,
) -> AuditReport:
    """Run the audit in an existing session; ``security`` holds the client's security options."""
    assert spec.window is not None, "a query without windows has nothing to audit"
    kafka = {"kafka.bootstrap.servers": bootstrap, **security}
    results = read_results(session, kafka, deployment.names, spec).cache()
    windows = judged_windows(spec.window)
    first_us = windows.first_holding(start_time_us)
    answers = answers_of(results, spec, first_us)
    early = early_answers(results, deployment, spec)
    end = min(answers.ends.values()) if len(answers.ends) == spec.parts else first_us
    records = source_records(session, kafka, deployment, spec)
    log = read_headers(session, records, deployment)
    back = spec.join.within_us if spec.join else 0
    complete_from = _first_from(log.complete_from_us + back, windows)
    start = max(first_us, *answers.starts.values(), complete_from)
    readings = input_rows(records, log.accepted, deployment, spec, start_time_us)
    wanted = aggregated(readings, deployment, spec, (start, end))
    mine = results.where(results.generation == generation_of(spec.name))
    compared = compare_rows(wanted, mine, spec, start, end)
    outputs = deployment.output_fields(spec)
    return make_report(spec, outputs, compared, answers, early, log, start, end)


def _first_from(e_us: int, windows: JudgedWindows) -> int:
    """Return the start of the first window that starts at or after an instant."""
    last = windows.last_holding(e_us)
    return last if last == e_us else windows.later(last, 1)
