"""R14: a stream fails and heals whose way to the orderer takes longer than a bucket.

Its boundary never passes the beginning of the bucket that is due. It must be failed no more all the
same once it keeps its deadlines again: else each bucket would be answered tentatively at its normal
time and corrected at once, for ever, and so would everything behind it in a chain.
"""

from __future__ import annotations

import pytest
from tests.paper.stage import MS, Orderer, Settings, Source

from slackwater.model.records import Kind
from slackwater.protocols.dpc.orderer import LineName


@pytest.mark.parametrize("latency", [50, 150, 500, 1_500], ids="{} ms".format)
def test_r14_the_lines_join_when_the_stream_is_in_time_again(latency: int) -> None:
    one, two = Source("s1"), Source("s2")
    orderer = Orderer([one, two], Settings())
    wrote_at: dict[int, int] = {}

    for now in range(2_000, 30_001, 50):
        one.say([now - 50], now)
        if not 10_000 < now < 15_000:
            two.say([now - latency - 50], now - latency)
        orderer.listen()
        for record in orderer.step(now):
            if record.kind is Kind.TENTATIVE:
                wrote_at[record.bucket_end // MS] = now

    assert orderer.core.line.state.value == "STABLE"
    assert min(wrote_at.values()) > 10_000
    assert max(wrote_at.values()) < 17_500, "the failure ends at 15 s, and X is 2 s"
    stable = [r for r in orderer.logs[LineName.STABLE] if r.kind is not Kind.START]
    ends = [r.bucket_end // MS for r in stable]
    assert ends == list(range(ends[0], ends[-1] + 1, 100))
    assert ends[-1] > 30_000 - latency - 200
