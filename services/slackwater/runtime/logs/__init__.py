"""Kafka as a set of logs: the transport, its Kafka and in-memory versions, topics, take-over.

``transport`` states the guarantees, ``kafka`` and ``memory`` keep them, ``incarnation`` is how a
writer takes its log over, ``catchup`` replays beside the live consumer.
"""
