"""The data sources: this process writes the proxies' records, so that a failure begins on time.

Every stream has one record for each ``flush_us`` of event time, written as soon as that has passed,
followed by the boundary. A stream that is *cut* continues and keeps its records, as a proxy's spool
does; when reconnected, it sends all of them at once. The value of each reading is the wall time
(us) at which it was written, so that a reader can compute its latency.
"""

from __future__ import annotations

import threading
import time

import numpy as np

from slackwater.codec.source_records import encode_source
from slackwater.model.names import Names
from slackwater.model.records import Kind, SourceColumns, SourceRecord
from slackwater.runtime.logs.kafka import KafkaTransport, start_incarnation

FIELD = "written"


class Source:
    """One stream's log.

    Its readings have ``keys`` keys in turn (0: one, with the stream's name).
    """

    def __init__(self, transport: KafkaTransport, stream: str, keys: int = 0) -> None:
        self.stream = stream
        self._keys = tuple(f"sensor-{i:04d}" for i in range(keys)) or (stream,)
        self._writer = transport.writer(_fatal)
        self._log = (Names().source(stream), 0)
        self._next_id = 0
        self._held: list[bytes] = []
        self.cut = False
        start = SourceRecord(Kind.START, stream, -1, 0, -1, -(2**62), -(2**62), -(2**62))
        self._inc = start_incarnation(
            transport, self._writer, self._log, lambda: encode_source(start)
        )

    def emit(self, stimes: np.ndarray, boundary: int) -> None:
        """Write readings at these event times (us), followed by the boundary."""
        count = len(stimes)
        first, self._next_id = self._next_id, self._next_id + count
        columns = SourceColumns(
            stimes.astype(np.int64),
            ((first + np.arange(count)) % len(self._keys)).astype(np.int32),
            self._keys,
            (FIELD,),
            (np.full(count, time.time() * 1e6),),
        )
        low, high = (int(stimes[0]), int(stimes[-1])) if count else (boundary, boundary)
        record = SourceRecord(
            Kind.INSERTION if count else Kind.BOUNDARY,
            self.stream,
            self._inc,
            first,
            self._next_id - 1,
            boundary,
            low,
            high,
            columns=columns if count else None,
        )
        self._held.append(encode_source(record))
        if self.cut:
            return
        held, self._held = self._held, []
        for value in held:
            self._writer.append(*self._log, value)

    def close(self) -> None:
        """Release the writer."""
        self._writer.close(timeout_s=1.0)


def _fatal(why: str) -> None:
    raise SystemExit(f"a source's log cannot be written: {why}")


class Feeder(threading.Thread):
    """Lets all sources write in time, until stopped."""

    def __init__(self, sources: list[Source], *, per_s: int, flush_us: int = 100_000) -> None:
        super().__init__(name="sources", daemon=True)
        self._sources = {source.stream: source for source in sources}
        self._flush_us = flush_us
        self._count = max(1, per_s * flush_us // 1_000_000)
        self._stopping = threading.Event()
        self._wanted: dict[str, bool] = {}
        self._done = threading.Condition()

    def cut(self, stream: str) -> float:
        """Stop delivery from the next flush on; return the wall time (s) of its last boundary."""
        return self._set(stream, cut=True)

    def reconnect(self, stream: str) -> float:
        """Deliver all kept records now; return the wall time (s)."""
        return self._set(stream, cut=False)

    def stop(self) -> None:
        """Stop writing."""
        self._stopping.set()
        self.join()

    def run(self) -> None:
        """Flush at every multiple of ``flush_us``."""
        at = int(time.time() * 1e6) // self._flush_us * self._flush_us
        while not self._stopping.is_set():
            end = at + self._flush_us
            pause = end / 1e6 - time.time()
            if pause > 0:
                self._stopping.wait(pause)
            with self._done:
                for stream, cut in self._wanted.items():
                    self._sources[stream].cut = cut
                self._wanted.clear()
                stimes = at + np.arange(self._count) * self._flush_us // self._count
                for source in self._sources.values():
                    source.emit(stimes, end)
                self._done.notify_all()
            at = end

    def _set(self, stream: str, *, cut: bool) -> float:
        with self._done:
            self._wanted[stream] = cut
            self._done.wait_for(lambda: stream not in self._wanted, 10)
        now_us = int(time.time() * 1e6)
        return now_us // self._flush_us * self._flush_us / 1e6
