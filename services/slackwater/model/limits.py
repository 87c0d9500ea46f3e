"""Limits shared by several modules; each is defined here or in ``schemas/topics.toml``.

``topics.toml`` holds settings of topics and clients as data, since compose files also need them; a
test checks that the two agree.
"""

from __future__ import annotations

from typing import Final

RECORD_BYTES_MAX: Final = 16 * 1024 * 1024
"""The largest record of an internal topic; a bucket is cut into pieces of half of it (trace-32)."""
RECORD_BATCH_BYTES_MAX: Final = RECORD_BYTES_MAX + 64 * 1024
"""The largest record with the overhead of its Kafka batch: for brokers, producers, consumers."""
PREFETCH_KIB_MAX: Final = RECORD_BYTES_MAX // 1024
"""Default bound on a reader's prefetched records."""
CONTROL_STATE_BYTES_MAX: Final = 1_000_000
"""The replicated object of the controllers: queries, nodes and placement."""

NEVER: Final = -(2**62)
"""Before all event times; far enough from the end of int64 to subtract a duration."""
FOREVER: Final = 2**62
"""After all event times; far enough from the end of int64 to add a duration."""
KEY_CHARS_MAX: Final = 65_536
"""Maximum length of a key; a longer one is an error, such as an unclosed quote."""
CLOCK_SKEW_US_MAX: Final = 1_000_000
"""Difference of two machines' clocks up to which a stable answer does not count as early."""
