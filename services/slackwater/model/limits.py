"""Limits that several modules share. Each has one home: here, or in ``schemas/topics.toml``.

What ``topics.toml`` says of topics and clients is data, since compose files need it too; a test
holds the two together.
"""

from __future__ import annotations

from typing import Final

RECORD_BYTES_MAX: Final = 16 * 1024 * 1024
"""The largest record of an internal topic; a bucket is cut into pieces of half of it (trace-32)."""
RECORD_BATCH_BYTES_MAX: Final = RECORD_BYTES_MAX + 64 * 1024
"""The same with what Kafka's batch around it needs: for brokers, producers and consumers."""
PREFETCH_KIB_MAX: Final = RECORD_BYTES_MAX // 1024
"""What a reader holds of records that nobody has asked for yet, unless told otherwise."""

NEVER: Final = -(2**62)
"""Before all event times; far enough from the end of int64 that a duration can be taken off."""
FOREVER: Final = 2**62
"""Behind all event times, with as much room."""
