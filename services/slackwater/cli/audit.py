"""``slackwater audit``: recomputes the stable results from the source logs and compares.

The computation is a Spark batch job (``slackwater_spark.audit.job``); this module turns its report
into lines and an exit code. The deployment file is that of ``slackwater up``, and the query is used
as registered: with the start and the definition that its results were computed with. A query that
was applied at run time has been registered with its streams, which that file may lack.
"""

from __future__ import annotations

import dataclasses
import logging
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from slackwater.cli.common import emit
from slackwater.cli.meanwhile import report_meanwhile
from slackwater.cli.show import nothing_yet, registered_query
from slackwater.cli.tables import short_time
from slackwater.codec.results import format_time
from slackwater.deployment.parse import load_deployment
from slackwater.model.deployment import Deployment
from slackwater.model.errors import CheckFailed, UsageError
from slackwater.model.names import Names, base_of, generation_of
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.logs.described import TopicObserver
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.topics import partition_counts
from slackwater.runtime.logs.transport import Transport
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.datadir import read_run
from slackwater.runtime.service.owntopics import Observer, check_recorded
from slackwater.runtime.service.registry import QueryDefinition, Registry


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise ``KeyboardInterrupt`` whatever becomes of it on the way; for the main thread.

    A terminal sends Ctrl-C to Spark's JVM as well. Py4J logs the lost connection with a traceback,
    and raises an error of its own in place of the exception of a signal handler.
    """
    before, interrupts = signal.getsignal(signal.SIGINT), list[int]()
    level = logging.getLogger("py4j").level

    def interrupt(signum: int, _: FrameType | None) -> None:
        interrupts.append(signum)
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except BaseException as error:
        if interrupts and not isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, before)
        logging.getLogger("py4j").setLevel(level)


def print_audit(
    cluster: Cluster,
    data_dir: Path,
    query: str,
    deployment: Path | None,
    inputs: Mapping[str, Path],
) -> None:
    """Run the job and print its findings; ``CheckFailed`` if the results are not exact.

    ``inputs``: files whose readings must be in the logs of these streams, or in quarantine.
    """
    from slackwater.cli.audit_input import audit_input, check_inputs, print_account
    from slackwater_spark.audit.job import run_audit

    run = read_run(data_dir)
    if deployment is None:
        if run is None:
            raise UsageError(
                f"{data_dir} has no run.json with a deployment file: add --deployment FILE"
            )
        deployment = Path(run.deployment)
    loaded = load_deployment(deployment, site=None if run is None else run.site)
    definition = registered_query(cluster, loaded.names, query)
    if definition.spec.window is None:
        raise UsageError(
            f"query {query} has no window: the audit recomputes windows only; use a rehearsal"
        )
    if definition.spec.has_remote:
        at = ", ".join(dict.fromkeys(site for site in definition.spec.sites if site))
        raise UsageError(
            f"query {query} reads streams of {at}, whose logs are in the Kafka there: audit the"
            " query at each site"
        )
    loaded = _as_registered(loaded, definition, deployment)
    read = loaded.queries_of(definition.spec)
    if read:
        raise UsageError(
            f"query {query} reads {', '.join(read)}: in this version the audit recomputes queries"
            " over streams only; audit the queries that it reads"
        )
    check_inputs(loaded, inputs)
    _check_begun(cluster, loaded.names, definition)
    transport = KafkaTransport(cluster, loaded.names)
    check_topics(transport, TopicObserver(cluster), loaded, definition)
    query = definition.name
    accounts = {
        name: audit_input(transport, loaded.streams[name], path) for name, path in inputs.items()
    }
    emit("reading the logs (a Spark batch job, takes about 30 s)")
    with interruptible(), report_meanwhile("the batch job"):
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
    for name, account in accounts.items():
        print_account(name, inputs[name], account)
    if not report.ok:
        raise CheckFailed(f"the stable results of {query} differ from the batch computation")
    lost = [name for name, account in accounts.items() if not account.ok]
    if lost:
        raise CheckFailed(f"readings of the files of {', '.join(lost)} are lost")


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


def check_topics(
    transport: Transport, observer: Observer, deployment: Deployment, definition: QueryDefinition
) -> None:
    """Raise ``TopicLostError`` if a topic is another one than its results were computed with.

    A source log that was made again has another content, and the exact results would be reported as
    wrong (rule-32).
    """
    names, registry = transport.names, Registry(transport)
    topics = {names.results(definition.name, "stable")}
    for stream in deployment.source_streams(definition.spec):
        if deployment.streams[stream].topic is None:
            topics.add(names.source(stream))
        else:
            partitions = registry.partitions(stream) or 0
            topics |= {names.source(f"{stream}.{p}") for p in range(partitions)}
    check_recorded(transport, observer, topics)


def _check_begun(cluster: Cluster, names: Names, definition: QueryDefinition) -> None:
    """Raise ``CheckFailed`` without results, since an audit of nothing always passes."""
    topic, parts = names.results(definition.name, "stable"), range(definition.spec.parts)
    begun = bool(partition_counts(cluster, [topic])) and all(
        KafkaTransport(cluster, names).end_offsets([(topic, part) for part in parts]).values()
    )
    if not begun:
        reported = nothing_yet(definition.name, definition, SystemClock().now_us())
        raise CheckFailed(f"nothing to audit: {reported}")
