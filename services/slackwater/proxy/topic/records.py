"""Times and keys of Kafka records, for streams that declare these as those of their readings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.formats.carried import NO_TIME, CarriedKeys, texts_as_keys, with_keys, with_times
from slackwater.formats.messages import Messages, Parsed
from slackwater.model.deployment import StreamSpec
from slackwater.model.records import type_i64
from slackwater.proxy.topic.client import Fetched, RecordParts

_RECORD: Final = "its record"
_US_OF_MS: Final = 1_000


def wanted_of(spec: StreamSpec) -> RecordParts:
    """Return what a stream needs of its records besides their values."""
    return RecordParts(times=spec.time.from_ == "record", keys=spec.key.from_ == "record")


def of_records(parsed: Parsed, fetched: Fetched, start: int, end: int) -> Parsed:
    """Set times and keys of the messages [start, end), as far as the client has returned them."""
    if fetched.times is not None:
        parsed = with_times(parsed, _times(fetched.times[start:end]))
    if fetched.keys is not None:
        parsed = with_keys(parsed, keys_of_records(fetched.keys[start:end]))
    return parsed


def _times(times_ms: type_i64) -> type_i64:
    return np.where(times_ms == -1, NO_TIME, times_ms * _US_OF_MS)


def keys_of_records(keys: Sequence[bytes]) -> CarriedKeys:
    """Return the keys of some records as text; each is decoded once."""
    encoded = pc.dictionary_encode(_binary(keys))
    index = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int32)
    sent = [key.decode(errors="replace") for key in encoded.dictionary.to_pylist()]
    texts, faults = texts_as_keys(sent, _RECORD)
    return CarriedKeys(index, texts, faults)


def _binary(keys: Sequence[bytes]) -> pa.Array:
    """Return keys as an array, which Arrow reads from a copy if they are places in memory."""
    if not isinstance(keys, Messages):
        return pa.array(keys, pa.large_binary())
    sizes = keys.ends - keys.starts
    present = np.flatnonzero(sizes)
    data, starts = Messages(keys.starts[present], keys.ends[present]).copied(b"\0")
    # Edges of all keys and of the bytes between them; every second piece is a key.
    edges = np.stack([starts, starts + sizes[present]], 1).reshape(-1)
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(data)]
    pieces = pa.Array.from_buffers(pa.large_binary(), max(0, len(edges) - 1), buffers)
    found = np.full(len(keys), -1)
    found[present] = 2 * np.arange(len(present))
    chosen = pieces.take(pa.array(found, pa.int64(), mask=found < 0))
    return pc.fill_null(chosen, pa.scalar(b"", pa.large_binary()))
