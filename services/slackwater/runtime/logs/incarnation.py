"""Take-over of a log by a new writer (rule-6).

One process writes a log at a time, but a paused one may wake up when its successor is at work
(trace-2). No lock can exclude that. So a new writer reads its log, appends START, and the offset
that START gets *is* its incarnation: unique, rising, and the same for every reader of the log.
What an older one appends behind START carries a smaller number and is dropped by all readers
(rule-10). Between the first reading and START a zombie may have appended more, which readers did
accept; therefore the log is read on up to START before any data is written.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Final

from slackwater.runtime.logs.transport import Log, RawRecord, Transport, Writer, read_range

ASK_S: Final = 5.0
"""How long the broker may take to show whether an incarnation has begun."""


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
    """Read the log, append START, await its report, read on to it; returns START's offset.

    ``visit`` sees every record below START once, from ``read_from`` on (None: the beginning) and
    in order. ``make_start`` is called between the two readings, when what was written by then has
    been visited: an orderer names in it the frontier it goes on from, a proxy its spool.
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
    """Append one record and return its offset when it is delivered."""
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
    """Whether the incarnation has begun: whether its START is at that offset (rule-6).

    Heartbeats claim incarnations, and any client that may write to their topic may claim any one.
    Where retention has removed the record the claim is accepted: a writer that ends for it
    starts again behind it. ``LogError`` when the broker does not answer.
    """
    if inc < transport.beginning_offsets([log], timeout_s=ASK_S)[log]:
        return True
    if inc >= transport.end_offsets([log], timeout_s=ASK_S)[log]:
        return False
    records = read_range(transport, log, inc, inc + 1, idle_s_max=ASK_S)
    return any(map(is_start, records))
