"""``slackwater audit``: recomputes the stable results from the source logs and compares.

The computation is a Spark batch job (``slackwater_spark.audit.job``); this module turns its report
into lines and an exit code. The deployment file is that of ``slackwater up``, and the query is used
as registered: with the start and the definition that its results were computed with. A query that
was applied at run time has been registered with its streams, which that file may lack.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from slackwater.cli.common import emit
from slackwater.cli.show import nothing_yet, registered_query
from slackwater.cli.tables import short_time
from slackwater.codec.results import format_time
from slackwater.deployment.parse import load_deployment
from slackwater.model.deployment import Deployment
from slackwater.model.errors import CheckFailed, UsageError
from slackwater.model.names import Names, base_of, generation_of
from slackwater.runtime.local.datadir import read_run
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.topics import partition_counts
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.registry import QueryDefinition


def print_audit(cluster: Cluster, data_dir: Path, query: str, deployment: Path | None) -> None:
    """Run the job and print its findings; ``CheckFailed`` if the results are not exact."""
    from slackwater_spark.audit.job import run_audit

    if deployment is None:
        run = read_run(data_dir)
        if run is None:
            raise UsageError(
                f"{data_dir} has no run.json with a deployment file: add --deployment FILE"
            )
        deployment = Path(run.deployment)
    loaded = load_deployment(deployment)
    definition = registered_query(cluster, loaded.names, query)
    if definition.spec.window is None:
        raise UsageError(
            f"query {query} has no window: the audit recomputes windows only; use a rehearsal"
        )
    loaded = _as_registered(loaded, definition, deployment)
    read = loaded.queries_of(definition.spec)
    if read:
        raise UsageError(
            f"query {query} reads {', '.join(read)}: in this version the audit recomputes queries"
            " over streams only; audit the queries that it reads"
        )
    _check_begun(cluster, loaded.names, definition)
    query = definition.name
    emit("reading the logs (a Spark batch job, takes about 30 s)")
    report = run_audit(
        cluster.bootstrap, loaded, query, definition.e0_us, security=cluster.security.spark()
    )
    for topic in report.truncated:
        emit(f"the beginning of {topic} is deleted: windows that may depend on it are left out")
    for finding in report.findings:
        emit(f"  {finding}")
    start, end = (short_time(format_time(at)) for at in (report.start_us, report.end_us))
    emit(
        f"{report.rows} rows of {report.windows} windows, {start} to {end}, recomputed from"
        f" {report.readings} readings: {report.lost} lost, {report.doubled} doubled,"
        f" {report.wrong} wrong"
    )
    if generation_of(query) and not report.windows:
        raise CheckFailed(f"nothing to audit: {query} has not answered a window yet")
    if not report.ok:
        raise CheckFailed(f"the stable results of {query} differ from the batch computation")


def _as_registered(file: Deployment, definition: QueryDefinition, path: Path) -> Deployment:
    """Return the deployment of a file with a registered query, and with all that it reads.

    Raises:
        UsageError: the query was registered from another file.
    """
    added = definition.deployment or file
    combined = dataclasses.replace(
        file,
        streams={**added.streams, **file.streams},
        queries={**added.queries, **file.queries, definition.name: definition.spec},
    )
    known = combined.streams.keys() | {base_of(name) for name in combined.queries}
    if lacking := sorted({*definition.spec.sources} - known):
        raise UsageError(
            f"{path} has no {', '.join(lacking)}, which query {definition.name} reads: give the"
            " file from which it was started, with --deployment FILE"
        )
    return combined


def _check_begun(cluster: Cluster, names: Names, definition: QueryDefinition) -> None:
    """Raise ``CheckFailed`` without results, since an audit of nothing always passes."""
    topic, parts = names.results(definition.name, "stable"), range(definition.spec.parts)
    begun = bool(partition_counts(cluster, [topic])) and all(
        KafkaTransport(cluster, names).end_offsets([(topic, part) for part in parts]).values()
    )
    if not begun:
        reported = nothing_yet(definition.name, definition, SystemClock().now_us())
        raise CheckFailed(f"nothing to audit: {reported}")
