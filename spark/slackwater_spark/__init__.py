"""The aggregator: a Spark application of native expressions only."""
