"""trace-14: a stream fails and heals whose latency to the orderer exceeds a bucket.

Its boundary never passes the start of the due bucket. It must nevertheless recover once it meets
its deadlines again: otherwise each bucket, and each later query of a chain, would be answered
tentatively at its normal time and corrected at once, for ever. Nor may the other stream's cursor be
parked permanently because it is ahead by as much.
"""

from __future__ import annotations

import pytest
from tests.paper.stage import MS, Orderer, Settings, Source

from slackwater.model.records import Kind
from slackwater.protocols.common.line import LineName


@pytest.mark.parametrize("latency", [50, 150, 500, 1_500, 2_500, 4_500], ids="{} ms".format)
def test_r14_the_lines_join_when_the_stream_is_in_time_again(latency: int) -> None:
    one, two = Source("s1"), Source("s2")
    orderer = Orderer([one, two], Settings(bound_ms=5_000))
    wrote_at: dict[int, int] = {}

    for now in range(5_000, 40_001, 50):
        one.emit([now - 50], now)
        if not 10_000 < now < 20_000:
            two.emit([now - latency - 50], now - latency)
        orderer.listen()
        for record in orderer.step(now):
            if record.kind is Kind.TENTATIVE:
                wrote_at[record.bucket_end // MS] = now

    assert orderer.core.line.state.value == "STABLE"
    assert min(wrote_at.values()) > 10_000
    assert max(wrote_at.values()) < 22_500, "the failure ends at 20 s, and X is 5 s"
    stable = [r for r in orderer.logs[LineName.STABLE] if r.kind is not Kind.START]
    ends = [r.bucket_end // MS for r in stable]
    assert ends == list(range(ends[0], ends[-1] + 1, 100))
    assert ends[-1] > 40_000 - latency - 200
