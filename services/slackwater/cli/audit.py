"""``slackwater audit``: the stable results, once more, from the source logs.

The computation is a Spark batch job (``slackwater_spark.audit``); here its report becomes lines and
an exit code. The deployment file is the one that ``slackwater up`` was started with, and the query
is taken as it was registered: with the start and the definition that its results were made by.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from slackwater.cli.common import say
from slackwater.cli.tables import short_time
from slackwater.codec.results import format_time
from slackwater.model.errors import CheckFailed, UsageError
from slackwater.runtime.datadir import read_run
from slackwater.runtime.deployment import load_deployment
from slackwater.runtime.kafka import KafkaTransport
from slackwater.runtime.registry import Registry


def print_audit(bootstrap: str, data_dir: Path, query: str, deployment: Path | None) -> None:
    """Run the job, tell what it found; ``CheckFailed`` if the results are not exact."""
    from slackwater_spark.audit import run_audit

    if deployment is None:
        run = read_run(data_dir)
        if run is None:
            raise UsageError(
                f"{data_dir} does not say which deployment runs: add --deployment FILE"
            )
        deployment = Path(run["deployment"])
    loaded = load_deployment(deployment)
    registry = Registry(KafkaTransport(bootstrap))
    definition = registry.query(query)
    if definition is None:
        known = ", ".join(registry.queries()) or "none"
        raise UsageError(f"there is no query {query}; registered: {known}")
    if definition.spec.window is None:
        raise UsageError(
            f"query {query} has no window: the audit recomputes windows only, use a rehearsal"
        )
    read = loaded.queries_of(definition.spec)
    if read:
        raise UsageError(
            f"query {query} reads {', '.join(read)}: an audit recomputes from readings, and this"
            " version does not do chains yet; audit what it reads"
        )
    loaded = dataclasses.replace(loaded, queries={**loaded.queries, query: definition.spec})
    say("reading the logs (a Spark batch job: this takes half a minute)")
    report = run_audit(bootstrap, loaded, query, definition.e0_us)
    for topic in report.truncated:
        say(f"{topic} has lost its beginning: windows that may have needed it are left out")
    for finding in report.findings:
        say(f"  {finding}")
    start, end = (short_time(format_time(at)) for at in (report.start_us, report.end_us))
    say(
        f"{report.rows} rows of {report.windows} windows, {start} to {end}, recomputed from"
        f" {report.readings} readings: {report.lost} lost, {report.doubled} doubled,"
        f" {report.wrong} wrong"
    )
    if not report.ok:
        raise CheckFailed(f"the stable results of {query} are not those of the batch computation")
