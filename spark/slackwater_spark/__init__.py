"""The aggregator: a Spark application that uses native expressions only."""
