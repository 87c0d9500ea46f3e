"""trace-7: both replicas send the same buckets tentatively, with different contents.

A misses s1, B misses s2. If merged, readings of s3 would count twice; if chosen by incarnation, one
replica would always be preferred, even after its end.
"""

from __future__ import annotations

import pytest
from tests.paper.stage import MS, Orderer, Root, Settings, Source, labels, stable_answers

from slackwater.protocols.dpc.soutput.answers import TentativeWindow


@pytest.mark.parametrize("dies", [None, 0, 1])
def test_r07_an_answer_is_made_of_one_replica_per_bucket(dies: int | None) -> None:
    mine = [Source(name) for name in ("s1", "s2", "s3")]
    cut_off = [Source("s1"), Source("s2")]
    a = Orderer([cut_off[0], mine[1], mine[2]], Settings(), replica=0)
    b = Orderer([mine[0], cut_off[1], mine[2]], Settings(), replica=1)
    root = Root([a, b], Settings())
    emitted: list[int] = []

    for now in range(100, 12_001, 100):
        for i, source in enumerate(mine):
            source.emit([now - 60 + i], now, value=10.0**i)
        emitted.append(now)
        if now <= 2_000 or now > 9_000:
            for i, source in enumerate(cut_off):
                for at in emitted:
                    source.emit([at - 60 + i], at, value=10.0**i)
            emitted.clear()
        for replica, node in enumerate((a, b)):
            if replica == dies and now > 6_000:
                continue
            node.listen()
            node.step(now)
            root.core.update_replica(0, replica, node.core.line.state, now * MS)
        root.listen()
        root.step(now)

    reported = [one.effect for one in root.emitted if isinstance(one.effect, TentativeWindow)]
    sums = {
        float(one.content.slice.sum.sum()): one.missing
        for one in reported
        if one.content is not None
    }
    named = {101.0: ("s2",), 110.0: ("s1",), 111.0: ()}
    assert sums.items() <= named.items(), "s3 once, and s1 or s2; all only when both have returned"
    late = {one.window_start // MS for one in reported}
    assert set(range(4_000, 8_000, 100)) <= late, "the other replica continues where one has ended"
    assert stable_answers(root.emitted) == dict.fromkeys(range(0, 12_000, 100), (3.0, 111.0))
    assert labels(root.emitted)[-1] == "stable"
