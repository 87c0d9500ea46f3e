"""Kafka as a set of logs: the transport, its Kafka and in-memory versions, topics, take-over.

``transport`` specifies the guarantees, ``kafka`` and ``memory`` implement them, ``incarnation`` is
the take-over of a log by a new writer, ``catchup`` replays logs beside the live consumer.
"""
