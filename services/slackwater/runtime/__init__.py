"""All shared I/O: Kafka, the embedded broker, the clock, settings, logging, supervision.

The only package that may ask a clock or start a process.
"""
