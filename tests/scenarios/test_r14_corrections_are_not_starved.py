"""trace-14, reversed: continuous live answers do not starve the corrections.

A transaction takes 50 ms here and windows are of 20 ms, so at every step a live answer is due.
Neither may they cause a transaction without end.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

import numpy as np
import pytest
from tests.paper.stage import MS, Orderer, Root, Settings, Source, label

from slackwater.model.records import Kind, OrderedRecord
from slackwater.protocols.common.line import LineName
from slackwater.protocols.common.states import LineState
from slackwater.protocols.dpc.soutput.answers import TentativeWindow
from slackwater.protocols.dpc.soutput.config import Commit
from slackwater.protocols.dpc.soutput.decision import LIVE_ROWS_MAX


def test_a_query_of_short_windows_comes_out_of_stabilization_on_a_slow_machine() -> None:
    settings = Settings(bound_ms=500, bucket_ms=20, window_ms=20)
    sources = [Source("s1"), Source("s2")]
    orderer = Orderer(sources, settings)
    root = Root([orderer], settings)

    for now in range(50, 12_001, 50):
        for source in sources:
            source.emit([now - 25], now)
        if now == 1_000:
            sources[0].disconnect()
        if now == 4_000:
            sources[0].reconnect()
        orderer.listen()
        orderer.step(now)
        root.listen()
        root.core.update_replica(0, 0, orderer.core.line.state, now * MS)
        root.step(now, transactions_max=1)

    assert root.core.line.state is LineState.STABLE
    assert label(root.emitted[-1].effect) == "stable"
    reported = [one for one in root.emitted if isinstance(one.effect, TentativeWindow)]
    assert max(one.at_ms - one.effect.window_end / MS for one in reported
               if isinstance(one.effect, TentativeWindow)) <= 500  # fmt: skip


@pytest.mark.parametrize(
    ("commit_ms", "window_ms", "met_by_ms", "reading_every_ms"),
    [
        pytest.param(700, 1, 13_000, 20, id="slow broker"),
        pytest.param(2_000, 1, 22_000, 20, id="very slow broker"),
        pytest.param(200, 8, 16_000, 20, id="busy machine"),
        pytest.param(100, 10, 17_000, 20, id="slow windows"),
        pytest.param(1_000, 1, 17_000, 100, id="slow broker, most windows empty"),
    ],
)
def test_corrections_gain_on_live_answers_however_long_a_transaction_takes(
    commit_ms: float, window_ms: float, met_by_ms: int, reading_every_ms: int
) -> None:
    """On a busy machine each transaction is longer than the windows in it.

    If each transaction corrects as many windows as become due while it is written, the lines never
    meet. With 10 ms for each window of 20 ms both lines need all of the root's time and more.
    """
    settings = Settings(bound_ms=4_000, bucket_ms=20, window_ms=20)
    sources = [Source("s1"), Source("s2")]
    orderer = Orderer(sources, settings)
    root = Root([orderer], settings)
    root.config = replace(root.config, live_windows_max=640)  # as of a query without a window
    root.commit_ms, root.window_ms = commit_ms, window_ms
    root.crash()
    for now in range(20, met_by_ms + 1, 20):
        for source in sources:
            source.emit([now - 10] if now % reading_every_ms == 0 else [], now)
        if now == 4_000:
            sources[0].disconnect()
        if now == 10_000:
            sources[0].reconnect()
        orderer.listen()
        orderer.step(now)
        root.listen()
        root.core.update_replica(0, 0, orderer.core.line.state, now * MS)
        if now >= root.free_at_ms:
            root.step(now, transactions_max=1)
    assert root.core.line.state is LineState.STABLE, "corrections starve"


def test_nothing_is_answered_while_a_transaction_is_under_way() -> None:
    """A root therefore needs no turn for records that arrive meanwhile."""
    settings = Settings(bucket_ms=20, window_ms=20)
    source = Source("s1")
    orderer = Orderer([source], settings)
    root = Root([orderer], settings)
    source.emit([10], 20)
    orderer.listen()
    orderer.step(20)
    root.listen()
    assert [type(effect) for effect in root.core.step(25 * MS)] == [Commit]
    source.emit([30], 40)
    orderer.listen()
    orderer.step(40)
    root.listen()
    waits = [root.core.awaits_commit]
    assert root.core.step(45 * MS) == []
    root.core.committed(45 * MS)
    assert [*waits, root.core.awaits_commit] == [True, False]
    assert [type(effect) for effect in root.core.step(46 * MS)] == [Commit]


def test_late_live_answers_of_many_keys_are_not_one_huge_transaction() -> None:
    """A root that was down during a silence has many due answers that can still be in time.

    64 windows of 100,000 keys take longer to write than a transaction may, and the next root would
    start with the same ones.
    """
    settings = Settings(bound_ms=60_000, bucket_ms=100, window_ms=100)
    orderer = Orderer([Source("s1"), Source("s2")], settings)
    root = Root([orderer], settings)
    keys, windows = tuple(f"k{i:05}" for i in range(LIVE_ROWS_MAX // 4)), 12
    offsets, ones = np.arange(len(keys) + 1.0), (np.ones(len(keys)),) * len(settings.fields)
    for start in range(0, windows * 100 * MS, 100 * MS):
        bucket = OrderedRecord(
            Kind.TENTATIVE, 0, 0, 0, start, start + 100 * MS, 0, 1, 0, -1, None,
            ("s2",), (), keys, offsets, settings.fields, ones,
        )  # fmt: skip
        orderer.logs[LineName.LIVE].append(bucket)
    root.listen()
    emitted = root.step(60_000)

    rows = [
        sum(one.effect.rows for one in of if isinstance(one.effect, TentativeWindow))
        for _, of in groupby(emitted, lambda one: one.transaction)
    ]
    assert sum(rows) == windows * len(keys)
    assert max(rows) == LIVE_ROWS_MAX
