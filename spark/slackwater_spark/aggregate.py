"""The aggregator's streaming query, which serves any number of fragments.

The source is *assigned* the partitions of its fragments (each replica's stable and live log) at
given offsets; each row has the topic and partition that it is written to. The start of a query
costs 1.5 CPU seconds for any number of fragments, so fragments that begin together share a query
(``queries.py``). The start offsets come from the roots (rule-26), never from a Spark checkpoint:
Spark uses ``startingOffsets`` only without a checkpoint, so each start gets a new one, which is
never read. An at-least-once sink suffices: a delta is identified by (child, replica, log, seq), and
the root takes each one once.

There are two modes:

* *real-time*: tasks that never end read, transform and write record by record, 3-4 ms from log to
  log. Each partition occupies a task slot permanently; a task without one waits, which Spark does
  not report (``task_slots``). Tasks pause for 100-200 ms at the end of a
  batch, so a batch lasts an hour (the interval only determines when Spark stores its offsets).
* *micro-batch* with asynchronous progress tracking, for clusters with fewer slots than partitions:
  50 ms.

PySpark 4.1 offers real-time mode in the JVM's API only, so the trigger is set on the writer's Java
object.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from uuid import UUID

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from slackwater_spark.transforms import Route, deltas

Mode = Literal["real-time", "micro-batch"]

# Settings of the connector and its clients that do not depend on the topics. The back-off limits
# the time to reconnect to a restarted broker; by default it grows to seconds.
_SOURCE_OPTIONS = {
    "failOnDataLoss": "true",
    "kafka.reconnect.backoff.ms": "100",
    "kafka.reconnect.backoff.max.ms": "500",
    "kafka.retry.backoff.ms": "50",
    "kafka.retry.backoff.max.ms": "200",
    # A record ends the wait; the live log has none most of the time.
    "kafka.fetch.max.wait.ms": "500",
    "kafkaConsumer.pollTimeoutMs": "120000",
    "fetchOffset.numRetries": "100",
    "fetchOffset.retryIntervalMs": "100",
}
# rule-7: a record dropped after a time-out would be a hole, so the time-out is unlimited.
_SINK_OPTIONS = {
    "kafka.acks": "all",
    "kafka.enable.idempotence": "true",
    "kafka.delivery.timeout.ms": "2147483647",
    "kafka.retries": "2147483647",
    "kafka.max.block.ms": "2147483647",
    "kafka.linger.ms": "0",
    "kafka.reconnect.backoff.ms": "100",
    "kafka.reconnect.backoff.max.ms": "500",
    "kafka.retry.backoff.ms": "50",
    "kafka.retry.backoff.max.ms": "200",
}


@dataclass(frozen=True, slots=True)
class Job:
    """Parameters of a query.

    ``starts``: the start offset of each partition to be read of the routes' ordered topics.
    """

    routes: Sequence[Route]
    starts: Mapping[tuple[str, int], int]
    checkpoint: Path
    source_options: Mapping[str, str]
    sink_options: Mapping[str, str]
    mode: Mode = "real-time"
    batch_ms: int = 3_600_000
    name: str = field(default="")


def start_query(session: SparkSession, job: Job) -> StreamingQuery:
    """Start the query, which runs until stopped or failed."""
    shutil.rmtree(job.checkpoint, ignore_errors=True)
    offsets: dict[str, dict[str, int]] = {}
    for (topic, partition), at in sorted(job.starts.items()):
        offsets.setdefault(topic, {})[str(partition)] = at
    options = _SOURCE_OPTIONS | dict(job.source_options)
    records = (
        session.readStream.format("kafka")
        .options(**options)
        .option("assign", json.dumps({topic: [*map(int, of)] for topic, of in offsets.items()}))
        .option("startingOffsets", json.dumps(offsets))
        .load()
    )
    writer = (
        deltas(records, job.routes)
        .writeStream.format("kafka")
        .options(**(_SINK_OPTIONS | dict(job.sink_options)))
        .option("checkpointLocation", str(job.checkpoint))
        .queryName(job.name)
    )
    return _triggered(session, writer, job).start()


def _triggered(session: SparkSession, writer: DataStreamWriter, job: Job) -> DataStreamWriter:
    if job.mode == "micro-batch":
        return (
            writer.outputMode("append")
            .option("asyncProgressTrackingEnabled", "true")
            .option("asyncProgressTrackingCheckpointIntervalMs", "10000")
            .trigger(processingTime="0 seconds")
        )
    # Real-time mode allows only "update"; without state the output modes do not differ.
    writer = writer.outputMode("update")
    jvm = session._jvm
    assert jvm is not None, "a running session has its JVM"
    trigger = jvm.org.apache.spark.sql.streaming.Trigger.RealTime(job.batch_ms)
    writer._jwrite = writer._jwrite.trigger(trigger)
    return writer


def running_tasks(session: SparkSession, run_id: UUID | str) -> int:
    """Return the number of running tasks of the query with this run id, its Spark job group."""
    tracker = session.sparkContext.statusTracker()
    tasks = 0
    for job_id in tracker.getJobIdsForGroup(str(run_id)):
        job = tracker.getJobInfo(job_id)
        for stage_id in () if job is None else job.stageIds:
            stage = tracker.getStageInfo(stage_id)
            tasks += 0 if stage is None else stage.numActiveTasks
    return tasks


def task_slots(session: SparkSession) -> int:
    """Return how many tasks can run at once: those of the executors that are registered now.

    Spark reports two if they have fewer.
    """
    return session.sparkContext.defaultParallelism
