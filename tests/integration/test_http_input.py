"""Readings posted to a proxy with curl: accepted, refused, killed meanwhile, repeated."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.support.ports import free_port
from tests.support.quarantine_counts import DistinctCounts
from tests.support.waiting import eventually

from slackwater.codec import decode_source
from slackwater.model.names import Names
from slackwater.model.records import SourcePosition, SourceRecord
from slackwater.primitives.eventclock import WallClock
from slackwater.protocols.dpc.sunion.cursor import SourceCursor
from slackwater.runtime.logs.kafka import KafkaTransport, read_to_end
from slackwater.runtime.logs.topics import ensure_topics, topics_for
from slackwater.runtime.service.heartbeats import HeartbeatListener
from slackwater.runtime.service.registry import Registry

TOKEN = "a-token-of-this-test-only"
PREFIX = "posted."
DEPLOYMENT = """
apiVersion: slackwater/v1
prefix: {prefix}
http: {{listen: "127.0.0.1:{port}"}}
streams:
  room: &room
    http: {{}}
    key: {{field: node}}
    time: {{field: ts, unit: us}}
    fields: [t]
    expect_every: 1h
    disorder: 1h
  killed: *room
  guarded:
    http: {{token_file: tokens.txt}}
    key: {{field: node}}
    time: {{field: ts, unit: us}}
    fields: [t]
    expect_every: 1h
    disorder: 1h
queries:
  q: {{from: [room, killed, guarded], window: {{size: 1m}}, aggregate: [count], bound: 2s}}
"""


@dataclass
class Posting:
    """A proxy process with HTTP streams, on the shared broker under a separate prefix."""

    bootstrap: str
    folder: Path
    port: int
    transport: KafkaTransport
    listener: HeartbeatListener
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def proxy(self, *streams: str, options: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        started_us = time.time_ns() // 1000
        command = [sys.executable, "-m", "slackwater.proxy", *streams, *options]
        command += ["--deployment", str(self.folder / "d.yaml"), "--bootstrap", self.bootstrap]
        command += ["--data-dir", str(self.folder)]
        with (self.folder / "proxy.log").open("ab") as log:
            process = subprocess.Popen(command, stderr=log)
        self.processes.append(process)

        def ready(stream: str) -> bool:
            beat = self.listener.latest(f"proxy/{stream}")
            return beat is not None and beat.ready and beat.started_at >= started_us

        eventually(lambda: all(map(ready, streams)) or process.poll() is not None, "it is ready")
        assert process.poll() is None, (self.folder / "proxy.log").read_text()
        return process

    def url(self, stream: str) -> str:
        return f"http://127.0.0.1:{self.port}/streams/{stream}"

    def curl(
        self, stream: str, body: Any, *options: str, kind: str = "application/json"
    ) -> tuple[int, dict[str, Any]]:
        """Post with curl; return the status and the JSON of the response."""
        curl = shutil.which("curl")
        assert curl is not None, "these tests post with curl: apt-get install curl"
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        command = [curl, "--silent", "--show-error", "--write-out", "\n%{http_code}"]
        command += ["-H", f"Content-Type: {kind}", "--data-binary", "@-", *options]
        done = subprocess.run(
            [*command, self.url(stream)], input=raw, capture_output=True, check=False, timeout=300
        )
        # With --retry the response of each attempt is a line.
        *answers, status = done.stdout.decode().splitlines() or [""]
        last = next((answer for answer in reversed(answers) if answer), "{}")
        return int(status or 0), json.loads(last)

    def readings(self, stream: str) -> list[tuple[int, str, float]]:
        """Return (stime, key, value) of all accepted readings; their ids have no gap."""
        found: list[tuple[int, str, float]] = []
        cursor = SourceCursor(SourcePosition(0, 0, 0, -(2**62)), strict=True)
        for raw in read_to_end(self.transport, (self.transport.names.source(stream), 0)):
            record = decode_source(raw.value)
            if cursor.offer(raw.offset, record) and record.readings:
                assert record.first_id == len(found)
                found += _rows(record)
        return found

    def quarantined(self, stream: str) -> dict[str, int]:
        distinct = DistinctCounts()
        for raw in read_to_end(self.transport, (self.transport.names.quarantine(stream), 0)):
            distinct.add(raw.value)
        return dict(distinct.counts.get(stream, {}))


def _rows(record: SourceRecord) -> list[tuple[int, str, float]]:
    assert record.columns is not None
    columns = record.columns.load()
    keys = [columns.keys[i] for i in columns.key_index.tolist()]
    return list(zip(columns.stimes.tolist(), keys, columns.values[0].tolist(), strict=True))


@pytest.fixture(scope="module")
def posting(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Posting]:
    folder, port = tmp_path_factory.mktemp("posted"), free_port()
    (folder / "d.yaml").write_text(DEPLOYMENT.format(prefix=PREFIX, port=port))
    (folder / "tokens.txt").write_text(f"# of the plant\n{TOKEN}\n")
    (folder / "tokens.txt").chmod(0o600)
    transport = KafkaTransport(bootstrap, Names(PREFIX))
    ensure_topics(bootstrap, topics_for(["room", "killed", "guarded"], [], Names(PREFIX)), 120)
    Registry(transport).publish_clock(WallClock())
    listener = HeartbeatListener(transport).start()
    made = Posting(bootstrap, folder, port, transport, listener)
    yield made
    for process in made.processes:
        process.kill()
        process.wait()
    listener.stop()


def now_us() -> int:
    return time.time_ns() // 1000


def test_what_is_posted_is_in_the_source_log(posting: Posting) -> None:
    process = posting.proxy("room", "guarded")
    at = now_us()
    one = {"node": "a", "ts": at, "t": 1.5}
    assert posting.curl("room", one) == (200, {"stream": "room", "accepted": 1})
    several = [{"node": "b", "ts": at + i, "t": i} for i in range(3)]
    assert posting.curl("room", several)[1]["accepted"] == 3
    lines = b"\n\n".join(json.dumps({"node": 7, "ts": at, "t": i}).encode() for i in range(3))
    assert posting.curl("room", lines, kind="application/x-ndjson")[1]["accepted"] == 3
    status, answer = posting.curl("room", [one, {"node": "a", "ts": at, "t": "warm"}])
    assert (status, answer["accepted"], answer["malformed"]) == (200, 1, 1)
    assert answer["errors"] == [{"index": 1, "reason": "malformed", "detail": "field t"}]

    eventually(lambda: len(posting.readings("room")) == 8)
    wanted = [(at, "a", 1.5)] + [(at + i, "b", i) for i in range(3)]
    wanted += [(at, "7", i) for i in range(3)] + [(at, "a", 1.5)]
    assert posting.readings("room") == wanted
    eventually(lambda: posting.quarantined("room") == {"malformed": 1})
    _refused(posting)
    _only_with_its_token(posting)
    _bytes_of_any_kind(posting)
    assert process.poll() is None
    assert posting.curl("room", one)[0] == 200
    process.terminate()
    assert process.wait(60) == 0


def _refused(posting: Posting) -> None:
    """Check that none of these is stored, and each response names the error."""
    status, answer = posting.curl("room", [{"node": "a"}, 7])
    assert (status, [error["index"] for error in answer["errors"]]) == (400, [0, 1])
    assert posting.curl("room", b"[{]")[0] == 400
    assert posting.curl("room", b"a=1", kind="application/x-www-form-urlencoded")[0] == 415
    assert posting.curl("nowhere", {})[0] == 404
    assert posting.curl("room", {}, "-X", "PUT")[0] == 405
    assert posting.curl("room", {}, "-H", "Host: rebound.example")[0] == 421
    assert posting.curl("room", {}, "-H", "Idempotency-Key;")[0] == 400
    assert posting.curl("room", {}, "-H", "X: " + "x" * 40_000)[0] == 431
    large = b" " * (17 * 1024 * 1024)
    assert posting.curl("room", large)[0] == 413
    assert posting.curl("room", large, "-H", "Transfer-Encoding: chunked")[0] in (413, 0)
    many = b"\n".join([b"{}"] * 100_001)
    assert posting.curl("room", many, kind="application/x-ndjson")[0] == 413


def _only_with_its_token(posting: Posting) -> None:
    body = {"node": "a", "ts": now_us(), "t": 1}
    for header in ("X: y", "Authorization: Bearer wrong", f"Authorization: Basic {TOKEN}"):
        assert posting.curl("guarded", body, "-H", header)[0] == 401
    assert posting.curl("guarded", body, "-H", f"Authorization: Bearer {TOKEN}")[0] == 200
    assert TOKEN not in (posting.folder / "proxy.log").read_text()


def _bytes_of_any_kind(posting: Posting) -> None:
    """Connections that send no HTTP, or too slowly, are closed; the process continues.

    All are open at the same time, so the time limit for headers passes once for all.
    """
    randomness = random.Random(1)
    head = b"POST /streams/room HTTP/1.1\r\nHost: localhost\r\n"
    with ExitStack() as opened:
        connections = []
        for data in (
            randomness.randbytes(5_000),
            b"\r\n" * 10_000,
            head + b"Content-Type: application/json\r\nContent-Length: -1\r\n\r\n{}",
            head + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            head + b"X: " + b"y" * 100,  # the headers never end
        ):
            connection = socket.create_connection(("127.0.0.1", posting.port), timeout=60)
            opened.enter_context(connection).sendall(data)
            connections.append(connection)
        for connection in connections:
            try:
                while connection.recv(65_536):
                    pass  # until the proxy closes the connection
            except ConnectionResetError:
                pass


def test_a_full_spool_is_answered_with_retry_after(posting: Posting) -> None:
    process = posting.proxy("room", options=["--spool-bytes-max", str(1024 * 1024)])
    body = b"\n".join(b'{"node":"a","ts":%d,"t":1}' % (now_us() + i) for i in range(90_000))
    headers = posting.folder / "headers"
    status, answer = posting.curl(
        "room", body, "--dump-header", str(headers), kind="application/x-ndjson"
    )
    assert status == 429
    assert "is full" in answer["error"]
    assert "retry-after: 5" in headers.read_text().lower()
    process.kill()
    process.wait()


def test_killed_while_it_is_posted_to_nothing_is_lost_or_doubled(posting: Posting) -> None:
    """Each sender repeats a request, with its key, until it is answered."""
    seed = int(os.environ.get("SLACKWATER_TEST_SEED", time.time_ns() % 10**9))
    randomness = random.Random(seed)
    senders, requests, size = 3, 25, 4
    failed: list[str] = []
    sent = threading.Semaphore(0)
    begin = now_us()

    def send(sender: int) -> None:
        for i in range(requests):
            first = i * size
            body = [
                {"node": f"s{sender}", "ts": begin + n, "t": n} for n in range(first, first + size)
            ]
            options = ["-H", f"Idempotency-Key: {sender}-{i}"]
            options += ["--retry", "200", "--retry-all-errors", "--retry-delay", "1"]
            options += ["--max-time", "20", "--retry-max-time", "280"]
            try:
                status, answer = posting.curl("killed", body, *options)
                if (status, answer.get("accepted")) != (200, size):
                    failed.append(f"{sender}-{i}: {status} {answer}")
            except (ValueError, subprocess.TimeoutExpired) as error:
                failed.append(f"{sender}-{i}: {error!r}")
            sent.release()

    process = posting.proxy("killed")
    threads = [threading.Thread(target=send, args=(sender,)) for sender in range(senders)]
    for thread in threads:
        thread.start()
    for _ in range(6):
        for _ in range(randomness.randint(3, 9)):
            sent.acquire()
        time.sleep(randomness.random() * 0.02)  # anywhere within a request
        process.kill()
        process.wait()
        process = posting.proxy("killed")
    for thread in threads:
        thread.join()
    assert not failed, f"seed {seed}: {failed}"
    wanted = sorted(
        (begin + n, f"s{sender}", float(n)) for sender in range(senders) for n in range(100)
    )
    eventually(lambda: len(posting.readings("killed")) >= len(wanted), f"all arrive; seed {seed}")
    assert sorted(posting.readings("killed")) == wanted, f"seed {seed}"
    assert posting.quarantined("killed") == {}
    process.kill()
    process.wait()
