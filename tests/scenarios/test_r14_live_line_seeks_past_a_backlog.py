"""trace-14: a stream returns with a backlog of hours, which its proxy sends in small batches.

The live line must not read through it: it seeks to the log's end, and accepts the record there as
the next one, with its own counters. The stable line reads everything, from its parked position.

See trace-14 and trace-35.
"""

from __future__ import annotations

from itertools import pairwise

from tests.paper.stage import MS, Orderer, Settings, Source

from slackwater.model.records import Kind, OrderedRecord, SourceRecord
from slackwater.protocols.common.line import LineName


class CountingOrderer(Orderer):
    """An orderer whose live consumer is as slow as a real one: some records at a time."""

    records_per_read = 50


def test_r14_live_answers_go_on_while_a_backlog_is_read() -> None:
    one, two = Source("s1"), Source("s2")
    orderer = CountingOrderer([one, two], Settings())
    backlog: list[SourceRecord] = []
    written: dict[int, list[OrderedRecord]] = {}

    for now in range(100, 60_001, 100):
        one.emit([now - 50], now)
        two.emit([now - 50], now)
        if 2_000 < now < 40_000:
            backlog += [two.log.pop()]  # held at the disconnected proxy
        if now == 40_000:
            two.log[-1:-1] = [empty for record in backlog for empty in split(record)]
        orderer.listen()
        written[now] = orderer.step(now)

    live = [r for r in orderer.logs[LineName.LIVE] if r.kind is Kind.TENTATIVE]
    assert orderer.core.counters.skipped > 1_000, "the live line has skipped the backlog"
    assert [b.bucket_start - a.bucket_start for a, b in pairwise(live)] == [100 * MS] * (
        len(live) - 1
    )
    for now, records in written.items():
        ends = [r.bucket_end // MS for r in records if r.kind is Kind.TENTATIVE]
        assert all(end <= now <= end + 2_000 for end in ends), "within X, and never early"
    stable = [r for r in orderer.logs[LineName.STABLE] if r.kind is not Kind.START]
    assert [r.bucket_start // MS for r in stable] == list(range(0, 60_000, 100))
    assert {float(r.offsets[-1]) for r in stable} == {2.0}, "no reading of the backlog is lost"
    assert orderer.core.line.state.value == "STABLE"


def split(record: SourceRecord) -> list[SourceRecord]:
    """Return the record after three empty ones: a backlog has many records."""
    prev_watermark = record.stime_min - 10 * MS
    nothing = SourceRecord(
        Kind.BOUNDARY,
        record.stream,
        0,
        record.first_id,
        record.first_id - 1,
        prev_watermark,
        prev_watermark,
        prev_watermark,
    )
    return [nothing, nothing, nothing, record]
