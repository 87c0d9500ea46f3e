"""trace-25: a source lags by more than X: the fork, and the join when it stops lagging.

If "caught up" meant to reach the live line's output, the lines would either never meet or join and
fork at every bucket. They meet at the live line's next bucket, before its deadline.
"""

from __future__ import annotations

from tests.paper.stage import MS, Settings, Stage, first_answers, labels, stable_answers

from slackwater.model.records import Kind
from slackwater.protocols.common.line import LineName

LAG_MS = 3_000


def run(stage: Stage, end_ms: int, lag_ms: int) -> None:
    """s1 is complete up to ``lag_ms`` ago, s2 up to now."""
    one, two = stage.sources["s1"], stage.sources["s2"]
    while stage.now_ms < end_ms:
        stage.now_ms += 50
        two.emit([stage.now_ms - 20], stage.now_ms)
        boundary = max(0, stage.now_ms - lag_ms)
        last = one.log[-1].boundary // MS if len(one.log) > 1 else 0
        one.emit([t + 30 for t in range(last, boundary, 50)], boundary)
        stage.work()


def test_r25_the_lines_run_side_by_side_and_join_when_the_lag_is_over() -> None:
    stage = Stage(names=("s1", "s2"), settings=Settings(bound_ms=2_000))

    run(stage, 20_000, LAG_MS)
    lagging = list(stage.emitted)
    forks = stage.orderer.core.counters.forks
    run(stage, 21_000, 0)
    run(stage, 24_000, 0)

    assert forks == 1, "one fork, not one per bucket"
    words = labels(lagging)
    assert "stable" in words, "each window is corrected 3 s after its time"
    assert words.count("undo") > 100
    waited = [one.at_ms - start - 100 for start, one in first_answers(lagging).items()]
    assert max(waited) <= 1_900
    emitted = [
        r.bucket_start for r in stage.orderer.logs[LineName.LIVE] if r.kind is Kind.TENTATIVE
    ]
    assert len(emitted) == len(set(emitted)), "one TENTATIVE per bucket"
    assert labels(stage.emitted[len(lagging) :])[-2:] == ["rec_done", "stable"]
    assert stage.orderer.core.line.state.value == "STABLE"
    assert list(stable_answers(stage.emitted)) == list(range(0, 24_000, 100))
