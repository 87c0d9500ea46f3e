"""trace-8: a fragment is added to a host whose live consumer already reads its logs.

The next record is far ahead of the fragment's position. This is not a loss by retention, and the
records in between must not be skipped: a cursor that is not at the live consumer's position waits
at its own, and the catch-up reader reads the rest (rule-12).
"""

from __future__ import annotations

import pytest
from tests.paper.chain import Chain, Chained
from tests.paper.stage import Orderer, Settings, Source
from tests.simulator.story import Story

from slackwater.model.records import Kind, OrderedRecord
from slackwater.protocols.common.line import LineName
from slackwater.sessions.events import LiveAt


def joins(orderer: Orderer) -> Orderer:
    """Set its live consumer to the ends of its logs."""
    for at, of in orderer.inputs.items():
        orderer.session.take(LiveAt(at, of.end))
        orderer._read[at] = of.end
    return orderer


def emitted(orderer: Orderer) -> list[tuple[object, ...]]:
    """Return its stable log: each bucket's readings, and its missing streams."""
    return [
        (r.bucket_start, r.keys, [column.tolist() for column in r.values], r.gap)
        for r in without_empty(orderer.logs[LineName.STABLE])
    ]


def without_empty(records: list[OrderedRecord]) -> list[OrderedRecord]:
    """Remove empty buckets: a run of them may be written as one or as several."""
    return [r for r in records if r.kind is Kind.INSERTION]


@pytest.mark.parametrize("silent", [False, True], ids=["all speak", "one is silent"])
@pytest.mark.parametrize("join_within_ms", [None, 100], ids=["union", "join"])
def test_it_reads_what_the_host_has_read_and_writes_what_the_others_write(
    silent: bool, join_within_ms: int | None
) -> None:
    sources, settings = [Source("s1"), Source("s2")], Settings(join_within_ms=join_within_ms)
    veteran = Orderer(sources, settings, replicas=2)
    newcomer: Orderer | None = None
    for now in range(100, 12_001, 100):
        if silent and now == 4_000:
            sources[1].disconnect()
        if silent and now == 8_000:
            sources[1].reconnect()
        for source in sources:
            source.emit([now - 70, now - 30], now, value=float(now))
        if now == 6_000:
            newcomer = joins(Orderer(sources, settings, replica=1, replicas=2))
        for orderer in (veteran, newcomer):
            if orderer is not None:
                orderer.listen()
                orderer.step(now)
    assert newcomer is not None
    assert emitted(newcomer) == emitted(veteran)
    assert newcomer.core.line.state is veteran.core.line.state
    assert all(c.attached for c in (*newcomer.core.logs.stable, *newcomer.core.logs.live))


@pytest.mark.parametrize("more", [0, 1], ids=["between windows", "within one"])
def test_it_reads_the_results_of_another_query_from_the_beginning_too(more: int) -> None:
    """The live consumer may be in the middle of a window, whose first rows it does not have."""
    chain = Chain(a=Settings(window_ms=500), b=Settings(window_ms=500))
    chain.run_to(5_000)
    newcomer = Chained([], [chain.topics], chain.b)
    for at, of in newcomer.inputs.items():
        place = [offset for offset, _ in of.read(0)][-2:][:1] or [of.end]
        newcomer.session.take(LiveAt(at, place[0] + more))
        newcomer._read[at] = place[0] + more
    while chain.now_ms < 9_000:
        chain.run_to(chain.now_ms + 50)
        newcomer.listen()
        newcomer.step(chain.now_ms)
    assert emitted(newcomer)
    assert emitted(newcomer) == emitted(chain.b_orderer)


@pytest.mark.parametrize("replicas", [1, 2])
def test_an_orderer_that_starts_again_in_a_host_loses_nothing_and_claims_no_loss(
    replicas: int,
) -> None:
    story = Story(replicas=replicas, hosted=True)
    story.time_passes(3)
    story.kill_for_good("orderer/q.0.a")
    story.time_passes(4)
    story.start_again("orderer/q.0.a")
    story.time_passes(2)
    story.kill(f"orderer/q.0.{'ab'[replicas - 1]}")
    story.silence("s1", for_s=1)
    story.time_passes(3)
    story.all_is_well_again()
    story.every_guarantee_holds()
