"""Creates the class archive that halves the start time of the aggregator's JVM.

    python -m slackwater_spark.warm

``make setup`` runs this program once. It runs all of the aggregator, from a record to its delta, on
a broker of its own, so that the JVM loads the classes of a start and of the first windows. At its
end the JVM writes them to the archive (dynamic class data sharing). In an image without a broker
the clients connect to a closed port, and the transforms run on rows that are not valid records.
Classes that are loaded only for a broker's responses are then missing in the archive.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from slackwater.codec import encode_ordered
from slackwater.codec.paths import class_archive
from slackwater.machine.broker import EmbeddedBroker
from slackwater.model.errors import EnvironmentProblem
from slackwater.model.records import Kind, OrderedRecord, Position
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.topics import QueryTopics, ensure_topics, topics_for
from slackwater_spark.session import LOCAL_MASTER, SessionSettings, SparkApplication, start_spark

if TYPE_CHECKING:
    from slackwater_spark.transforms import Route

_CLOSED_PORT = "127.0.0.1:9"
_IMPATIENT = {
    "kafka.default.api.timeout.ms": "1000",
    "kafka.request.timeout.ms": "900",
    "kafka.max.block.ms": "500",
    "fetchOffset.numRetries": "1",
}
_EXIT_S_MAX = 120
_POLLS_MAX = 60
_RECORDS = 2


def make_archive(target: Path) -> None:
    """Write the archive to ``target``."""
    with tempfile.TemporaryDirectory(prefix="slackwater-warm-") as folder:
        part = target.with_suffix(".part")
        part.unlink(missing_ok=True)
        settings = SessionSettings(
            "warm", Path(folder) / "spark", LOCAL_MASTER, archive_to=part.resolve()
        )
        with (
            _broker(Path(folder) / "broker") as bootstrap,
            (Path(folder) / "log").open("wb") as log,
            start_spark(settings, log) as spark,
        ):
            with contextlib.suppress(Exception):  # only the loaded classes matter
                _run_aggregator(spark, Path(folder), bootstrap)
            spark.process.terminate()
            spark.process.wait(_EXIT_S_MAX)
        part.replace(target)


@contextlib.contextmanager
def _broker(folder: Path) -> Iterator[str | None]:
    """Yield the address of a broker; None without its jars."""
    try:
        broker = EmbeddedBroker(folder)
        broker.start()
    except EnvironmentProblem:
        yield None
        return
    try:
        yield broker.bootstrap
    finally:
        broker.stop()


def _run_aggregator(spark: SparkApplication, folder: Path, bootstrap: str | None) -> None:
    from slackwater_spark.aggregate import Job, running_tasks, start_query
    from slackwater_spark.transforms import Route

    options = {"kafka.bootstrap.servers": bootstrap or _CLOSED_PORT}
    route = Route("sw.ordered.warm.0", ("sw.deltas.warm.0",), 0, 1)
    if bootstrap is None:
        options |= _IMPATIENT
        _transform(spark, folder, route, options)
    else:
        _write_records(KafkaTransport(bootstrap), bootstrap)
    starts = {(route.ordered_topic, line): 0 for line in (0, 1)}
    job = Job([route], starts, folder / "checkpoint", options, options, name="warm")
    query = start_query(spark.session, job)
    running_tasks(spark.session, query.runId)
    if bootstrap is None:
        query.awaitTermination(20)
        return
    reader = KafkaTransport(bootstrap).reader()
    reader.assign({("sw.deltas.warm.0", 0): 0})
    seen = 0
    for _ in range(_POLLS_MAX):
        seen += len(reader.poll(_RECORDS, 1.0))
        if seen >= _RECORDS:
            break
    reader.close()


def _transform(
    spark: SparkApplication, folder: Path, route: Route, options: Mapping[str, str]
) -> None:
    """Run the transforms as a batch, and as a stream without a Kafka source."""
    from slackwater_spark.transforms import deltas

    row = f"'{route.ordered_topic}' as topic, unhex('C301') as value, 0L as offset, 0 as partition"
    rows = spark.session.range(1).selectExpr(row)
    with contextlib.suppress(Exception):  # nothing listens on the port
        deltas(rows, [route]).write.format("kafka").options(**options).save()
    stream = spark.session.readStream.format("rate").load().selectExpr(row)
    with contextlib.suppress(Exception):
        query = deltas(stream, [route]).writeStream.format("noop")
        query.option("checkpointLocation", str(folder / "c0")).start().processAllAvailable()


def _write_records(transport: KafkaTransport, bootstrap: str) -> None:
    ensure_topics(bootstrap, topics_for([], [QueryTopics("warm", 1, 1, 1)]))
    start = OrderedRecord(Kind.START, 0, 0, 0, 0, 0, frontier=Position(0))
    bucket = OrderedRecord(
        kind=Kind.INSERTION,
        child=0,
        replica=0,
        inc=0,
        bucket_start=0,
        bucket_end=100,
        keys=("a", "b"),
        offsets=np.array([0.0, 2.0, 4.0]),
        fields=("v",),
        values=(np.array([1.0, np.nan, 2.0, 3.0]),),
        last_id=3,
    )
    writer = transport.writer(_fail)
    for line in (0, 1):
        for record in (start, bucket):
            writer.append("sw.ordered.warm.0", line, encode_ordered(record))
    writer.close()


def _fail(reason: str) -> None:
    raise EnvironmentProblem(reason)


if __name__ == "__main__":
    make_archive(class_archive("spark"))
