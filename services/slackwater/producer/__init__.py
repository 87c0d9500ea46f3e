"""Producer library: sends readings to a stream, each exactly once over restarts of the sender.

``batches`` turns what a caller has (columns, tables, single readings) into Arrow tables, ``state``
keeps how far a sender has come, ``http_sink`` and ``kafka_sink`` deliver a batch.
"""

from slackwater.producer.producer import Producer
from slackwater.producer.sink import ProducerError

__all__ = ["Producer", "ProducerError"]
