"""Take-over of a log by a new writer (rule-6).

A log has one writer at a time, but a paused writer may resume while its successor writes (trace-2),
and no lock prevents that. A new writer therefore reads its log and appends START. The offset of
START is the writer's *incarnation*: it is unique, increasing, and the same for every reader of the
log. Records that an older writer, a *zombie*, appends after START have a smaller incarnation, and
all readers drop them (rule-10). Between the first read and START a zombie may have appended records
that readers accept. The log is therefore read on up to START before any data is written.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Final

from slackwater.runtime.logs.transport import Log, RawRecord, Transport, Writer, read_range

ASK_S: Final = 5.0
"""Time-out of each request of ``has_begun``."""


def start_incarnation(
    transport: Transport,
    writer: Writer,
    log: Log,
    make_start: Callable[[], bytes],
    *,
    read_from: int | None = None,
    visit: Callable[[RawRecord], None] = lambda _: None,
    timeout_s: float = 60.0,
) -> int:
    """Read the log, append START, await its delivery, read on up to it; return START's offset.

    ``visit`` is called once for every record from ``read_from`` (None: the beginning) to START, in
    order. ``make_start`` is called between the two reads, after the records of the first have been
    visited: the START of an orderer has the frontier from which it continues, that of a proxy names
    its spool.

    Raises:
        NoAnswerError: a step took longer than ``timeout_s``.
    """
    if read_from is None:
        read_from = transport.beginning_offsets([log], timeout_s=timeout_s)[log]
    seen_to = transport.end_offsets([log], timeout_s=timeout_s)[log]
    for record in read_range(transport, log, read_from, seen_to, idle_s_max=timeout_s):
        visit(record)
    inc = append_and_wait(writer, log, make_start(), timeout_s=timeout_s)
    for record in read_range(transport, log, max(read_from, seen_to), inc, idle_s_max=timeout_s):
        visit(record)
    return inc


def append_and_wait(
    writer: Writer, log: Log, value: bytes, key: bytes | None = None, *, timeout_s: float = 60.0
) -> int:
    """Append one record, wait for its delivery, and return its offset."""
    offsets: list[int] = []
    reported = Event()

    def delivered(offset: int) -> None:
        offsets.append(offset)
        reported.set()

    writer.append(*log, value, key, on_delivery=delivered)
    if not reported.is_set():
        writer.await_delivered(timeout_s)
    assert len(offsets) == 1, "a delivered record has exactly one offset"
    return offsets[0]


def has_begun(
    transport: Transport, log: Log, inc: int, is_start: Callable[[RawRecord], bool]
) -> bool:
    """Return whether the incarnation's START is at that offset (rule-6).

    Heartbeats claim incarnations, and any client with write access to their topic can forge a
    claim. If retention has removed the record, the claim is accepted: a writer that stops because
    of it starts again with a greater incarnation. Raises ``LogError`` without an answer.
    """
    if inc < transport.beginning_offsets([log], timeout_s=ASK_S)[log]:
        return True
    if inc >= transport.end_offsets([log], timeout_s=ASK_S)[log]:
        return False
    records = read_range(transport, log, inc, inc + 1, idle_s_max=ASK_S)
    return any(map(is_start, records))
