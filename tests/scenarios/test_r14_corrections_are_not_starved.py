"""R14, the other way round: live answers that never stop coming must not starve the corrections.

A transaction takes 50 ms here and windows are of 20 ms, so at every step a live answer is due.
"""

from __future__ import annotations

from tests.paper.stage import MS, Orderer, Root, Settings, Source, label

from slackwater.protocols.dpc.answers import TentativeWindow
from slackwater.protocols.dpc.root import Commit
from slackwater.protocols.dpc.states import LineState


def test_a_query_of_short_windows_comes_out_of_stabilization_on_a_slow_machine() -> None:
    settings = Settings(bound_ms=500, bucket_ms=20, window_ms=20)
    sources = [Source("s1"), Source("s2")]
    orderer = Orderer(sources, settings)
    root = Root([orderer], settings)

    for now in range(50, 12_001, 50):
        for source in sources:
            source.say([now - 25], now)
        if now == 1_000:
            sources[0].disconnect()
        if now == 4_000:
            sources[0].reconnect()
        orderer.listen()
        orderer.step(now)
        root.listen()
        root.core.replica_says(0, 0, orderer.core.line.state, now * MS)
        root.step(now, transactions_max=1)

    assert root.core.line.state is LineState.STABLE
    assert label(root.said[-1].effect) == "stable"
    told = [one for one in root.said if isinstance(one.effect, TentativeWindow)]
    assert max(one.at_ms - one.effect.window_end / MS for one in told
               if isinstance(one.effect, TentativeWindow)) <= 500  # fmt: skip


def test_nothing_is_answered_while_a_transaction_is_under_way() -> None:
    """So a root need not take a turn for each record that comes meanwhile, and is told so."""
    settings = Settings(bucket_ms=20, window_ms=20)
    source = Source("s1")
    orderer = Orderer([source], settings)
    root = Root([orderer], settings)
    source.say([10], 20)
    orderer.listen()
    orderer.step(20)
    root.listen()
    assert [type(effect) for effect in root.core.step(25 * MS)] == [Commit]
    source.say([30], 40)
    orderer.listen()
    orderer.step(40)
    root.listen()
    waits = [root.core.awaits_commit]
    assert root.core.step(45 * MS) == []
    root.core.committed()
    assert [*waits, root.core.awaits_commit] == [True, False]
    assert [type(effect) for effect in root.core.step(46 * MS)] == [Commit]
