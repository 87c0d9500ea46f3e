"""The aggregator's job: one streaming query for any number of fragments.

The source is *assigned* the partitions of its fragments (of each its replica's stable and live log)
at given offsets; the sink gets topic and partition with each row. To start a query costs 1.5 CPU
seconds, whatever the number of its fragments, so those that begin together share one
(``queries.py``). Where the query begins is decided by the roots
(rule-26), never by a checkpoint of Spark's: Spark looks at ``startingOffsets`` only where it finds
no checkpoint, so each start gets a fresh one, and what it writes there is read by nobody. That is
also why the sink may be at-least-once: a delta is identified by (child, replica, log, seq), and the
root takes each one once.

Two ways to run it:

* *real-time*: tasks that never end read, transform and write record by record, 3-4 ms from log to
  log. Each partition holds a task slot for ever. At the end of a batch they pause for 100-200 ms;
  so a batch lasts an hour (it is only the interval at which Spark writes its offsets down).
* *micro-batch* with asynchronous progress tracking, for clusters with fewer slots than partitions:
  50 ms.

PySpark 4.1 has real-time mode in the JVM's API only, hence the step through the writer's Java
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

# The connector's and its clients' own settings, beside those that follow from the topics. A broker
# that comes back is found within their back-off, which by default grows to seconds.
_SOURCE_OPTIONS = {
    "failOnDataLoss": "true",
    "kafka.reconnect.backoff.ms": "100",
    "kafka.reconnect.backoff.max.ms": "500",
    "kafka.retry.backoff.ms": "50",
    "kafka.retry.backoff.max.ms": "200",
    # A record ends the wait, and the live log has none for most of its life.
    "kafka.fetch.max.wait.ms": "500",
    "kafkaConsumer.pollTimeoutMs": "120000",
    "fetchOffset.numRetries": "100",
    "fetchOffset.retryIntervalMs": "100",
}
# rule-7: a record given up in time would be a hole, so none ever is.
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
    """All that a query needs to know.

    ``starts``: the offset to begin at, of each partition of the routes' ordered topics that is to
    be read.
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
    """Start the query; it runs until it is stopped or fails."""
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
    # Only mode "update" is allowed; without state it means the same.
    writer = writer.outputMode("update")
    jvm = session._jvm
    assert jvm is not None, "a running session has its JVM"
    trigger = jvm.org.apache.spark.sql.streaming.Trigger.RealTime(job.batch_ms)
    writer._jwrite = writer._jwrite.trigger(trigger)
    return writer


def running_tasks(session: SparkSession, run_id: UUID | str) -> int:
    """How many of the query's tasks are at work now: its group of jobs is called by its run."""
    tracker = session.sparkContext.statusTracker()
    tasks = 0
    for job_id in tracker.getJobIdsForGroup(str(run_id)):
        job = tracker.getJobInfo(job_id)
        for stage_id in () if job is None else job.stageIds:
            stage = tracker.getStageInfo(stage_id)
            tasks += 0 if stage is None else stage.numActiveTasks
    return tasks
