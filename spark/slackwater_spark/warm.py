"""Make the class archive that lets the aggregator's JVM start in half the time.

    python -m slackwater_spark.warm

Run once, by ``make setup``. It goes the aggregator's way as far as that goes without a broker, so
that the classes are loaded that a start will ask for, and lets the JVM write them down as it ends
(a dynamic class data sharing archive). The clients ask a port where nobody listens; that they fail
is part of it.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

from slackwater.codec.paths import class_archive
from slackwater_spark.session import (
    LOCAL_MASTER,
    SessionSettings,
    SparkApplication,
    start_spark,
)

_NOBODY = "127.0.0.1:9"
_IMPATIENT = {
    "kafka.bootstrap.servers": _NOBODY,
    "kafka.default.api.timeout.ms": "1000",
    "kafka.request.timeout.ms": "900",
    "kafka.max.block.ms": "500",
    "fetchOffset.numRetries": "1",
}
_EXIT_S_MAX = 120


def make_archive(target: Path) -> None:
    """Write the archive to ``target``."""
    with tempfile.TemporaryDirectory(prefix="slackwater-warm-") as folder:
        part = target.with_suffix(".part")
        part.unlink(missing_ok=True)
        settings = SessionSettings(
            "warm", Path(folder) / "spark", LOCAL_MASTER, archive_to=part.resolve()
        )
        with (Path(folder) / "log").open("wb") as log, start_spark(settings, log) as spark:
            with contextlib.suppress(Exception):  # nobody listens; the classes are loaded
                _go_the_way(spark, Path(folder))
            spark.process.terminate()
            spark.process.wait(_EXIT_S_MAX)
        part.replace(target)


def _go_the_way(spark: SparkApplication, folder: Path) -> None:
    from slackwater_spark.aggregate import Job, running_tasks, start_query
    from slackwater_spark.transforms import Route, deltas

    session, routes = spark.session, [Route("o", ("d",), 0, 1)]
    row = "'o' as topic, unhex('C301') as value, 0L as offset, 0 as partition"
    rows = session.range(1).selectExpr(row)
    with contextlib.suppress(Exception):
        deltas(rows, routes).write.format("kafka").options(**_IMPATIENT).save()
    stream = session.readStream.format("rate").load().selectExpr(row)
    with contextlib.suppress(Exception):
        query = deltas(stream, routes).writeStream.format("noop")
        query.option("checkpointLocation", str(folder / "c0")).start().processAllAvailable()
    starts = {("o", 0): 0, ("o", 1): 0}
    job = Job(routes, starts, folder / "c1", _IMPATIENT, _IMPATIENT, name="warm")
    query_of_job = start_query(session, job)
    running_tasks(session, query_of_job.runId)
    query_of_job.awaitTermination(20)


if __name__ == "__main__":
    make_archive(class_archive("spark"))
