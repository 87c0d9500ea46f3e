"""Rate of readings over HTTP into the spool, and the time of a small request.

    python -m bench.http_input [READINGS]

The log after the spool is in memory, so only the input is measured: HTTP, parsing, a durable
transaction for each group of requests. The senders are in a separate process.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.client import HTTPConnection
from pathlib import Path

from tests.support.http_site import opened
from tests.support.ports import free_port
from tests.unit.proxy.test_pushed import PushWorld

SENDERS = 8
COLUMNS = """
import sys, time
import numpy as np
import slackwater
port, n, batch = map(int, sys.argv[1:])
with slackwater.Producer("room", url=f"http://127.0.0.1:{port}", batch_readings=batch) as sender:
    keys = np.array([f"sensor-{i}" for i in range(1000)])
    for at in range(0, n, 50_000):
        i = np.arange(at, at + 50_000)
        sender.send({"node": keys[i % 1000], "ts": 1000 + i // 1000, "t": i / 2})
"""
LINES = """
import sys
from http.client import HTTPConnection
port, n, batch = map(int, sys.argv[1:])
connection = HTTPConnection("127.0.0.1", port)
for at in range(0, n, batch):
    body = b"\\n".join(
        b'{"node":"sensor-%d","ts":%d,"t":%d.5}' % (i % 1000, 1000 + i // 1000, i)
        for i in range(at, at + batch)
    )
    connection.request("POST", "/streams/room", body, {"Content-Type": "application/x-ndjson"})
    response = connection.getresponse()
    assert response.status == 200, response.read()
    response.read()
"""


def throughput(name: str, script: str, readings: int, batch: int) -> None:
    """Send readings from another process, and print the rate."""
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        with opened(PushWorld(Path(folder)), port, Path(folder)):
            began, cpu = time.perf_counter(), time.process_time()
            command = [sys.executable, "-c", script, str(port), str(readings), str(batch)]
            subprocess.run(command, check=True)
            took, cpu = time.perf_counter() - began, time.process_time() - cpu
    print(
        f"{name}, {batch:,} readings a request: {readings / took:,.0f} readings/s,"
        f" {cpu / readings * 1e9:,.0f} ns of the proxy's CPU a reading"
    )


def latency(senders: int, seconds: float) -> None:
    """Post single readings over persistent connections, and print rate and times."""
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        with opened(PushWorld(Path(folder)), port, Path(folder)):
            until, times = time.perf_counter() + seconds, list[float]()

            def send(sender: int) -> None:
                connection = HTTPConnection("127.0.0.1", port)
                headers = {"Content-Type": "application/json"}
                n = 0
                while (began := time.perf_counter()) < until:
                    n += 1
                    body = json.dumps({"node": str(sender), "ts": 1000, "t": n})
                    connection.request("POST", "/streams/room", body, headers)
                    connection.getresponse().read()
                    times.append(time.perf_counter() - began)
                connection.close()

            threads = [threading.Thread(target=send, args=(i,)) for i in range(senders)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    times.sort()
    p99 = times[int(len(times) * 0.99)]
    print(
        f"single readings, {senders} senders: {len(times) / seconds:,.0f} requests/s,"
        f" p50 {statistics.median(times) * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms"
    )


def main() -> None:
    """Measure columns, lines and single readings."""
    readings = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000_000
    throughput("Producer", COLUMNS, readings, 10_000)
    throughput("Producer", COLUMNS, readings, 50_000)
    throughput("NDJSON", LINES, readings // 5, 10_000)
    latency(1, 5.0)
    latency(SENDERS, 5.0)


if __name__ == "__main__":
    main()
