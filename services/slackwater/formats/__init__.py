"""Bytes to columns of readings: CSV, JSON, Avro, Parquet, numbers.

The *elements* of a message are its readings, each with an index. A malformed element is refused
alone. A message that cannot be divided into elements is refused as a unit. A reader that could
crash on foreign bytes runs under ``guarded``.
"""
