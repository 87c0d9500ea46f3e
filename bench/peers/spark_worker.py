"""Windows of a second by sensor, in Spark Structured Streaming, with the project's PySpark.

Arguments: bootstrap, folder for checkpoints, watermark delay in ms.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from slackwater.machine.paths import spark_jars


def main() -> None:
    """Run until killed."""
    bootstrap, folder, grace_ms = sys.argv[1:]
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(map(str, spark_jars())))
        .config("spark.driver.memory", "2g")
        .config("spark.sql.shuffle.partitions", 2)  # as many as cores; the default is 200
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    messages = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "readings")
        .option("startingOffsets", "earliest")
        .load()
    )
    reading = f.from_json(f.col("value").cast("string"), "ts LONG, sensor STRING, value DOUBLE")
    windows = (
        messages.select(reading.alias("r"))
        .select(f.timestamp_millis("r.ts").alias("at"), "r.sensor", "r.value")
        .withWatermark("at", f"{grace_ms} milliseconds")
        .groupBy(f.window("at", "1 second"), "sensor")
        .agg(
            f.count("*").alias("count"),
            f.avg("value").alias("avg"),
            f.min("value").alias("min"),
            f.max("value").alias("max"),
        )
    )
    answer = f.struct(
        "sensor", f.unix_millis("window.start").alias("start"), "count", "avg", "min", "max"
    )
    query = (
        windows.select(f.to_json(answer).alias("value"))
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", "answers")
        .option("checkpointLocation", folder)
        .outputMode("append")
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
