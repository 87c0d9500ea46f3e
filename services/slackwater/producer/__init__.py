"""Producer library: sends readings to a stream, exactly once across restarts of the sender.

``batches`` converts the caller's data (columns, tables, single readings) to Arrow tables, ``state``
stores a sender's position, and ``http_sink`` and ``kafka_sink`` deliver a batch.
"""

from slackwater.producer.producer import Producer
from slackwater.producer.sink import ProducerError

__all__ = ["Producer", "ProducerError"]
