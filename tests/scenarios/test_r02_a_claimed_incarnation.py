"""trace-2: a forged heartbeat claims a greater incarnation that does not exist (rule-6).

A client with write access to ``sw.heartbeats`` can send heartbeats with any fragment's name. If an
orderer accepted the claim, it would end and restart in a loop; a proxy would stay down. The log
decides: an incarnation is the offset of a START.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.contracts.transport import no_failure
from tests.support.memory import MemoryBroker

from slackwater.codec import encode_ordered, encode_source
from slackwater.host import procedures
from slackwater.model.records import Kind, OrderedRecord, Position, SourceRecord
from slackwater.proxy import sourcelog
from slackwater.runtime.logs.incarnation import has_begun
from slackwater.runtime.logs.transport import Log, RawRecord

LOG: Log = ("t", 0)


def reported(broker: MemoryBroker, is_start: Callable[[RawRecord], bool]) -> list[int]:
    """Return the accepted claims."""
    return [inc for inc in (1, 2, 3, 4, 2**62) if has_begun(broker, LOG, inc, is_start)]


def logged(start: bytes, other: bytes) -> MemoryBroker:
    """Return START, a record, undecodable bytes, and the successor's START at offset 3."""
    broker = MemoryBroker()
    broker.create_topic("t")
    writer = broker.writer(no_failure)
    for value in (start, other, b"no record at all", start):
        writer.append("t", 0, value)
    return broker


def test_an_incarnation_is_accepted_where_its_start_is() -> None:
    start = SourceRecord(Kind.START, "s", -1, 0, -1, 0, 0, 0)
    other = SourceRecord(Kind.BOUNDARY, "s", 0, 0, -1, 5, 5, 5)
    broker = logged(encode_source(start), encode_source(other))
    assert reported(broker, sourcelog._is_start) == [3]


def test_of_an_orderer_too() -> None:
    start = OrderedRecord(Kind.START, 0, 0, -1, 0, 0, frontier=Position(0))
    other = OrderedRecord(Kind.BOUNDARY, 0, 0, 0, 0, 10)
    broker = logged(encode_ordered(start), encode_ordered(other))
    assert reported(broker, procedures.is_start) == [3]


def test_a_claim_before_the_log_s_beginning_is_accepted() -> None:
    start = encode_source(SourceRecord(Kind.START, "s", -1, 0, -1, 0, 0, 0))
    broker = logged(start, start)
    broker.delete_records({LOG: 3})
    assert reported(broker, sourcelog._is_start) == [1, 2, 3]
