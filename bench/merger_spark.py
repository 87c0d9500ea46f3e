"""The merger as a grouped aggregation in Spark, for a decision: what a micro-batch of a pane costs.

    python -m bench.merger_spark [--keys 1000] [--buckets 40] [--batches 10]

A batch has the deltas of one child for one pane, as rows of (key, bucket, five figures). Spark
merges them by key. Plain ``sum`` merges in the order of tasks; the bits of the root's left fold
(rule-21) need all values of a key in a list, sorted by bucket, and a fold over it. Both are timed:
CPU time of the JVM and wall time of a warm batch, from rows in memory to rows in memory. Reading,
decoding and writing are not included.
"""

from __future__ import annotations

import argparse
import statistics
import time

import psutil
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- PySpark's usual name

FOLD = """aggregate(sort_array(collect_list(struct(bucket, count, sum, m2, low, high))),
 struct(0D as count, 0D as sum, 0D as m2, double(NULL) as low, double(NULL) as high),
 (a, x) -> struct(a.count + x.count as count, a.sum + x.sum as sum,
  a.m2 + x.m2 + IF(a.count = 0, 0D, pow(x.sum / x.count - a.sum / a.count, 2)
   * a.count * x.count / (a.count + x.count)) as m2,
  least(a.low, x.low) as low, greatest(a.high, x.high) as high))"""


def main() -> None:
    """Print the figures of both ways."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--keys", type=int, default=1_000)
    parser.add_argument("--buckets", type=int, default=40)
    parser.add_argument("--batches", type=int, default=10)
    of = parser.parse_args()
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    rows = of.keys * of.buckets
    base = spark.range(rows).select(
        (F.col("id") % of.keys).cast("string").alias("key"),
        (F.col("id") / of.keys).cast("long").alias("bucket"),
        *(F.rand(n).alias(name) for n, name in enumerate(("count", "sum", "m2", "low", "high"))),
    )
    base = base.cache()
    base.count()
    plain = base.groupBy("key").agg(
        *(F.sum(name).alias(name) for name in ("count", "sum", "m2")),
        F.min("low").alias("low"),
        F.max("high").alias("high"),
    )
    folded = base.groupBy("key").agg(F.expr(FOLD).alias("pane"))
    jvm = next(p for p in psutil.Process().children(recursive=True) if "java" in p.name())
    for name, query in (("sum", plain), ("left fold", folded)):
        for _ in range(5):
            query.write.format("noop").mode("overwrite").save()
        cpu, walls = sum(jvm.cpu_times()[:2]), []
        for _ in range(of.batches):
            began = time.monotonic()
            query.write.format("noop").mode("overwrite").save()
            walls.append(time.monotonic() - began)
        cpu = (sum(jvm.cpu_times()[:2]) - cpu) / of.batches
        each, wall = cpu * 1e9 / rows, statistics.median(walls) * 1e3
        print(f"{name}: {cpu * 1e3:.0f} ms CPU and {wall:.0f} ms a pane, {each:.0f} ns a row")
    spark.stop()


if __name__ == "__main__":
    main()
