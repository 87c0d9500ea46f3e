"""The audit: a query's stable results, computed once more as a Spark batch job, and compared.

What the pipeline claims (guarantee-1) is that its stable answers are those of a batch computation
over the readings in the source logs. Here is that batch computation: it reads the same logs, but
knows no orderer, bucket, delta or root. It shares with the pipeline the bytes' schema, the rules by
which a reader accepts a record (rule-10; ``distinct`` by id would bring a zombie's readings in) and
the deployment's values, and the parser of expressions. ``where`` and ``select`` are computed by
Spark's SQL, windows by an explode, aggregates by ``groupBy``: each is somebody else's code. Fields
are columns by position, ``c0``, ``c1``, ..., since Spark does not tell ``T`` from ``t``, nor a
field ``stime`` from ours.

The results are read first and the source logs after, so every reading that a stable answer rests on
is there. Windows up to the last that *every* part has answered are compared, from the first that
holds E0 on (trace-24). Sums may differ by rounding, because Spark adds in another order; counts and
extremes may not. Where retention has already cut a source log, the windows that may have had
readings in what is gone are left out, and the report says so.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from pyspark.sql import SparkSession

from slackwater.model.deployment import Deployment, QuerySpec, WindowSpec
from slackwater_spark.audit.comparison import AuditReport, compare_rows, make_report
from slackwater_spark.audit.query import aggregated, input_rows
from slackwater_spark.audit.results import answers_of, read_results
from slackwater_spark.audit.source_logs import read_headers, source_records
from slackwater_spark.session import SessionSettings, start_spark

NO_SECURITY: Final[Mapping[str, str]] = MappingProxyType({})
"""A cluster that is open to all."""


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
    """Compute the query's stable results from the source logs and compare; starts its own JVM."""
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
    """The same in a session that is there; ``security`` are options that say how to get in."""
    assert spec.window is not None, "a query without windows has nothing to audit"
    kafka = {"kafka.bootstrap.servers": bootstrap, **security}
    results = read_results(session, kafka, deployment.names, spec).cache()
    first_us = (
        (start_time_us - spec.window.size_us) // spec.window.slide_us + 1
    ) * spec.window.slide_us
    answers = answers_of(results, spec, first_us)
    end = min(answers.ends.values()) if len(answers.ends) == spec.parts else first_us
    records = source_records(session, kafka, deployment, spec)
    log = read_headers(session, records, deployment)
    back = spec.join.within_us if spec.join else 0
    complete_from = _up_to_slide(log.complete_from_us + back, spec.window)
    start = max(first_us, *answers.starts.values(), complete_from)
    wanted = aggregated(
        input_rows(records, log.accepted, deployment, spec, start_time_us), deployment, spec
    )
    compared = compare_rows(wanted, results, spec, start, end)
    outputs = deployment.output_fields(spec)
    return make_report(spec, outputs, compared, answers, log, start, end)


def _up_to_slide(e_us: int, window: WindowSpec) -> int:
    return -(-e_us // window.slide_us) * window.slide_us
