"""trace-34: a replica is killed that reported STABLE just before a failure's first deadline.

Its last report is valid for another 120 ms, and the deadline is earlier. The other replica then has
to emit a second of short buckets, which takes a while, so most of them reach the root after the
deadline of the first. They are nevertheless answered from its output, and none of them is empty.
"""

from __future__ import annotations

from tests.paper.stage import MS, Orderer, Root, Settings, Source

from slackwater.protocols.common.states import LineState
from slackwater.protocols.dpc.soutput.answers import EmptyRun, TentativeWindow

CUT, BOUND, MARGIN = 1_000, 1_000, 50
DEADLINE = CUT + 20 + BOUND - 2 * MARGIN
KILLED = DEADLINE - 40
ROWS = Settings(bound_ms=BOUND, margin_ms=MARGIN, bucket_ms=20, rows=True, empty_wait_ms=100)


def test_the_other_replica_s_output_is_used() -> None:
    sources = [Source("s1"), Source("s2")]
    dying, living = (Orderer(sources, ROWS, replica=r, replicas=2) for r in range(2))
    root = Root([dying, living], ROWS)

    for now in range(20, 2_501, 10):
        if now % 20 == 0:
            for source in sources:
                source.emit([now - 15], now)
        if now == CUT:
            sources[0].disconnect()
        for replica, orderer in enumerate([dying, living]):
            if orderer is dying and now >= KILLED:
                continue
            orderer.listen()
            if now % 20 == 0:
                orderer.step(now, turns_max=1)  # eight buckets: it takes 120 ms to emit all
            root.core.update_replica(0, replica, orderer.core.line.state, now * MS)
        root.listen()
        root.step(now)

    assert not [one for one in root.emitted if isinstance(one.effect, EmptyRun)]
    reported = [
        (one.at_ms, one.effect) for one in root.emitted if isinstance(one.effect, TentativeWindow)
    ]
    assert {answer.missing for _, answer in reported} == {("s1",)}
    assert all(answer.rows for _, answer in reported)
    windows = [answer.window_start // MS for _, answer in reported]
    assert windows == list(range(CUT, windows[-1] + 1, 20)), "each of them, in order"
    assert windows[-1] >= 2_400
    assert max(at_ms - answer.window_end / MS for at_ms, answer in reported) <= BOUND - MARGIN


def test_a_slow_replica_s_report_counts_again_after_progress() -> None:
    """Replica 0 has lost a source and is tentative.

    Replica 1 is complete, and hangs for a second.
    """
    sources = [Source("s1"), Source("s2")]
    sick, complete = (Orderer(sources, ROWS, replica=r, replicas=2) for r in range(2))
    root = Root([sick, complete], ROWS)
    hangs = range(2_500, 3_600)

    for now in range(20, 6_001, 10):
        if now % 20 == 0:
            for source in sources:
                source.emit([now - 15], now)
        for replica, orderer in enumerate([sick, complete]):
            if orderer is sick:
                receive_only(orderer, "s2", until_ms=CUT, now=now)
            elif now not in hangs:
                orderer.listen()
            if orderer is sick or now not in hangs:
                orderer.step(now)
            state = orderer.core.line.state if orderer is sick else LineState.STABLE
            root.core.update_replica(0, replica, state, now * MS)
        root.listen()
        root.step(now)

    at = [one.at_ms for one in root.emitted if isinstance(one.effect, TentativeWindow)]
    assert at, "while it hangs the faulty replica's output is used"
    assert min(at) >= hangs.start + BOUND - MARGIN
    assert max(at) <= hangs.stop + 20
    assert root.core.line.state is LineState.STABLE


def receive_only(orderer: Orderer, stream: str, *, until_ms: int, now: int) -> None:
    """From ``until_ms`` on its consumer fetches no other stream."""
    if now >= until_ms:
        orderer.deaf_to = {source.name for source in orderer.sources} - {stream}
    orderer.listen()
