"""Readers of a gateway's streams, for ``bench/gateway.py``: many in one event loop.

``python -m bench.gateway_readers PORT QUERY,QUERY FAST SLOW SECONDS`` prints a report as JSON. A
slow reader takes ``SLOW_BYTES`` each second until it is cut off; then it comes back with the id of
its last change, and is fast.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import sys
import time
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np

from slackwater.codec.results import parse_time

SETTLE_S: Final = 5.0
"""After the last reader has connected: until then all get their snapshots."""
SLOW_BYTES: Final = 1_000
SLOW_BUFFER_BYTES: Final = 4_096
CHUNK_BYTES: Final = 65_536
_EMITTED: Final = re.compile(rb'"emitted_at":"([^"]+)"')


@dataclass
class Reader:
    """One reader: the positions of its changes since the last snapshot, and when they came."""

    port: int
    query: str
    is_slow: bool
    runs: list[list[int]] = field(default_factory=lambda: [[]])
    """Positions; a snapshot begins a new run."""
    late_ms: list[tuple[float, float]] = field(default_factory=list)
    """When a change was written, in s, and how much later it was here; not those of the begin."""
    cut_s: float | None = None
    _rest: bytes = b""
    _last_id: str = ""

    async def run(self) -> None:
        """Read until cancelled; come back whenever the stream ends."""
        while True:
            with contextlib.suppress(OSError):
                await self._read_stream(self.is_slow and self.cut_s is None)
            await asyncio.sleep(1.0)

    async def _read_stream(self, slowly: bool) -> None:
        loop, began, self._rest = asyncio.get_running_loop(), time.time(), b""
        with socket.socket() as connection:
            connection.setblocking(False)
            if slowly:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SLOW_BUFFER_BYTES)
            await loop.sock_connect(connection, ("127.0.0.1", self.port))
            after = f"Last-Event-ID: {self._last_id}\r\n" if self._last_id else ""
            # A response of HTTP/1.0 is not in chunks.
            head = f"GET /api/v1/stream?query={self.query} HTTP/1.0\r\nHost: localhost\r\n"
            await loop.sock_sendall(connection, f"{head}{after}\r\n".encode())
            size = SLOW_BYTES if slowly else CHUNK_BYTES
            while data := await loop.sock_recv(connection, size):
                self._take(data, began)
                if slowly:
                    await asyncio.sleep(1.0)
                    # It is cut off now, whatever of what was received it has not read yet.
                    if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                        self.cut_s = time.time() - began
                        return

    def _take(self, data: bytes, began: float) -> None:
        *frames, self._rest = (self._rest + data).split(b"\n\n")
        now = time.time()
        for frame in frames:
            if b"event: snapshot" in frame:
                self.runs.append([])
            elif frame.startswith(b"id: "):
                self._last_id = frame[4 : frame.index(b"\n")].decode()
                self.runs[-1].append(int(self._last_id.rpartition(":")[2]))
                emitted = _EMITTED.search(frame)
                if emitted and (at := parse_time(emitted[1].decode()) / 1e6) > began:
                    self.late_ms.append((at, 1_000 * (now - at)))


def holes(readers: list[Reader]) -> int:
    """How many changes a reader lacks between two that it has, or has twice or out of order."""
    found = 0
    for query in {reader.query for reader in readers}:
        of = [run for reader in readers if reader.query == query for run in reader.runs]
        order = {seq: at for at, seq in enumerate(sorted({seq for run in of for seq in run}))}
        found += sum(order[b] - order[a] != 1 for run in of for a, b in pairwise(run))
    return found


async def read(port: int, queries: list[str], fast: int, slow: int, seconds: float) -> Any:
    """Run the readers and report."""
    readers = [
        Reader(port, queries[n % len(queries)], is_slow=n >= fast) for n in range(fast + slow)
    ]
    tasks = []
    for reader in readers:
        tasks.append(asyncio.create_task(reader.run()))
        await asyncio.sleep(0.002)
    settled = time.time() + SETTLE_S
    await asyncio.sleep(SETTLE_S + seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    others = [each for reader in readers if not reader.is_slow for each in reader.late_ms]
    p50, p99 = np.percentile([ms for at, ms in others if at > settled], [50, 99])
    begin = [ms for at, ms in others if at <= settled]
    cut_s = [reader.cut_s for reader in readers if reader.cut_s is not None]
    return {
        "p50_ms": float(p50),
        "p99_ms": float(p99),
        "begin_p99_ms": float(np.percentile(begin, 99)) if begin else 0.0,
        "changes": sum(len(run) for reader in readers for run in reader.runs),
        "holes": holes(readers),
        "snapshots": sum(len(reader.runs) - 1 for reader in readers),
        "cut": len(cut_s),
        "cut_s_max": max(cut_s, default=float("nan")),
    }


if __name__ == "__main__":
    # They stand for other machines, whose cores are not the pipeline's: they use what is left.
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    port_, queries_, fast_, slow_, seconds_ = sys.argv[1:]
    reported = asyncio.run(
        read(int(port_), queries_.split(","), int(fast_), int(slow_), float(seconds_))
    )
    print(json.dumps(reported))
