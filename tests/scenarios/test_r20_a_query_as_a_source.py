"""trace-20: a query reads another: placement of rows, missing streams, corrections."""

from __future__ import annotations

import numpy as np
import pytest
from tests.paper.chain import Chain, missing_of
from tests.paper.stage import (
    MS,
    Emitted,
    Settings,
    first_answers,
    label,
    labels,
    stable_answers,
)

from slackwater.model.records import Gap, Kind, ResultBatch, SourceColumns, SourcePosition
from slackwater.protocols.common.line import LineName
from slackwater.protocols.dpc.soutput.answers import TentativeWindow
from slackwater.protocols.dpc.sunion.chain import ResultCursor, live_columns, live_gaps


def tentative(emitted: list[Emitted]) -> list[Emitted]:
    return [one for one in emitted if label(one.effect) == "tentative"]


def named(emitted: list[Emitted]) -> set[str]:
    return {name for one in tentative(emitted) for name in missing_of(one)}


def _effect(emitted: Emitted) -> object:
    return emitted.effect


def test_a_window_s_row_falls_into_the_reader_s_window_that_ends_with_it() -> None:
    """With stime = window end, [0, 500) would be counted in [500, 1000)."""
    chain = Chain(a=Settings(window_ms=500), b=Settings(window_ms=500, bucket_ms=100))
    chain.run_to(3_000)
    # Every window of a has one row, with three figures, in b's window of the same time.
    found = stable_answers(chain.emitted)
    assert sorted(found) == [0, 500, 1_000, 1_500, 2_000, 2_500]
    a = stable_answers(chain.a_root.emitted)
    for start, (count, total) in found.items():
        of_a = a[start]
        assert count == 3
        assert total == of_a[0] + of_a[1] + of_a[1] / of_a[0]


def test_a_reader_s_windows_are_much_shorter_and_nothing_is_tentative() -> None:
    """Query a answers once in 60 s; its watermark extends to just before the next answer."""
    chain = Chain(
        others=("s3",),
        a=Settings(window_ms=60_000, bucket_ms=100),
        b=Settings(window_ms=1_000, bucket_ms=100),
        tick_ms=250,
    )
    chain.run_to(125_000)
    assert labels(chain.emitted) == ["stable"]
    assert len(stable_answers(chain.emitted)) >= 124
    late = [s.at_ms - start - 1_000 for start, s in first_answers(chain.emitted).items()]
    assert max(late) <= 250


def test_a_sliding_query_as_a_source() -> None:
    chain = Chain(
        a=Settings(window_ms=1_000, slide_ms=250), b=Settings(window_ms=1_000, bucket_ms=50)
    )
    chain.run_to(5_000)
    assert labels(chain.emitted) == ["stable"]
    found = stable_answers(chain.emitted)
    assert found[2_000][0] == 12  # four windows end in it, three figures each


def test_a_silent_query_is_missing_itself() -> None:
    chain = Chain(others=("s3",), a=Settings(window_ms=500), b=Settings(window_ms=500))
    chain.run_to(3_000)
    chain.dead.add("a_root")
    chain.run_to(8_000)
    assert named(chain.emitted) == {"a"}
    chain.dead.clear()
    chain.run_to(11_000)
    assert labels(chain.emitted)[-1] == "stable"
    # The windows with missing rows are answered exactly by a, so b's were undone and replaced.
    assert "undo" in labels(chain.emitted)
    assert "rec_done" in labels(chain.emitted)
    assert labels(chain.a_root.emitted) == ["stable"]


@pytest.mark.parametrize("is_silent", ["a_root", "s2"])
def test_the_lease_is_requested_when_the_source_query_is_stable_again(
    monkeypatch: pytest.MonkeyPatch, is_silent: str
) -> None:
    """Its tentative topic is never written, or only during the failure (trace-30).

    More windows are corrected than a forked line takes ahead, 16 (rule-12): without rows between
    its windows, fewer are all in memory, and there is nothing to take turns at.
    """
    chain = Chain(others=("s3",), a=Settings(window_ms=500), b=Settings(window_ms=500))
    asked: list[bool] = []
    stagger = chain.b_orderer.core.stagger

    def may_catch_up(_now: int, *, needs: bool, progress: int) -> bool:
        asked.append(needs)
        return True

    monkeypatch.setattr(stagger, "may_catch_up", may_catch_up)
    chain.run_to(3_000)
    if is_silent == "s2":
        chain.sources["s2"].disconnect()
    else:
        chain.dead.add("a_root")
    chain.run_to(14_000)
    assert tentative(chain.emitted)
    assert not any(asked), "nothing can be read on"
    if is_silent == "s2":
        chain.sources["s2"].reconnect()
    chain.dead.clear()
    chain.run_to(17_000)
    assert any(asked)
    assert not asked[-1]


def test_what_the_source_query_lacked_is_named_by_its_source() -> None:
    chain = Chain(a=Settings(window_ms=500), b=Settings(window_ms=500))
    chain.run_to(3_000)
    chain.sources["s2"].disconnect()
    chain.run_to(8_000)
    assert named(chain.emitted) == {"s2"}
    chain.sources["s2"].reconnect()
    chain.run_to(11_000)
    assert labels(chain.emitted)[-1] == "stable"


def test_a_correction_of_the_source_query_corrects_its_reader() -> None:
    """No UNDO is forwarded: b's own root decides (trace-3)."""
    chain = Chain(a=Settings(window_ms=500), b=Settings(window_ms=500))
    chain.run_to(3_000)
    chain.sources["s2"].disconnect()
    chain.run_to(8_000)
    before = tentative(chain.emitted)
    assert before
    chain.sources["s2"].reconnect()
    chain.run_to(11_000)
    undamaged = Chain(a=Settings(window_ms=500), b=Settings(window_ms=500))
    undamaged.run_to(11_000)
    found, expected = stable_answers(chain.emitted), stable_answers(undamaged.emitted)
    assert found == expected
    undone = [one.effect for one in chain.emitted if label(one.effect) == "undo"]
    assert undone
    replaced = {
        e.window_start // MS for e in map(_effect, before) if isinstance(e, TentativeWindow)
    }
    assert replaced <= set(found)


def test_the_reader_s_orderer_restarts_while_its_source_query_is_tentative() -> None:
    chain = Chain(a=Settings(window_ms=500), b=Settings(window_ms=500))
    chain.run_to(3_000)
    chain.sources["s2"].disconnect()
    chain.run_to(6_000)
    chain.b_orderer.save()
    chain.run_to(7_000)
    answered = first_answers(chain.emitted)
    chain.b_orderer.crash()
    chain.run_to(9_000)
    again = first_answers(chain.emitted)
    assert len(again) > len(answered)
    assert named(chain.emitted) == {"s2"}
    chain.sources["s2"].reconnect()
    chain.run_to(12_000)
    undamaged = Chain(a=Settings(window_ms=500), b=Settings(window_ms=500))
    undamaged.run_to(12_000)
    assert stable_answers(chain.emitted) == stable_answers(undamaged.emitted)


def test_a_restart_from_the_beginning_reads_the_whole_history() -> None:
    """Without a state record, and with revoked tentative answers in the topics."""
    chain = Chain(a=Settings(window_ms=500), b=Settings(window_ms=500))
    chain.dead |= {"b_orderer", "b_root"}
    chain.run_to(1_000)
    chain.sources["s2"].disconnect()
    chain.run_to(5_000)
    chain.sources["s2"].reconnect()
    chain.run_to(7_000)
    chain.dead.clear()
    chain.b_orderer.crash()
    chain.b_root.crash()
    chain.run_to(9_000)
    assert labels(chain.emitted) == ["stable"]
    undamaged = Chain(a=Settings(window_ms=500), b=Settings(window_ms=500))
    undamaged.run_to(9_000)
    assert stable_answers(chain.emitted) == stable_answers(undamaged.emitted)


@pytest.mark.parametrize("more", [0, 1], ids=["between windows", "within one"])
def test_what_retention_took_from_the_results_is_said(more: int) -> None:
    """A reader that starts after its log was truncated reports the loss, and answers."""
    chain = Chain(a=Settings(window_ms=500), b=Settings(window_ms=500))
    chain.dead |= {"b_orderer", "b_root"}
    chain.run_to(4_000)
    stable = chain.topics.records["stable"]
    del stable[: len(stable) // 4 * 2 + more]
    chain.dead.clear()
    chain.b_orderer.crash()
    chain.b_root.crash()
    chain.run_to(6_000)
    assert "gap" in labels(chain.emitted)
    assert labels(chain.emitted)[-1] == "stable"
    gaps = [r.gap for records in chain.b_orderer.logs.values() for r in records if r.gap]
    assert all(g.stream == "a" and g.lost > 0 for gap in gaps for g in gap)


def test_a_row_that_cannot_be_read_is_lost_and_its_reader_s_window_reports_it() -> None:
    """Damaged after its kind.

    Found when the window is assembled, and the row cannot be sent again.
    """
    complete, chain = (
        Chain(a=Settings(window_ms=500), b=Settings(window_ms=500)) for _ in range(2)
    )
    for each in (complete, chain):
        each.dead |= {"b_orderer", "b_root"}
        each.run_to(4_000)
    stable = chain.topics.records["stable"]
    at = next(i for i, (_, line) in enumerate(stable) if b'"kind":"stable"' in line)
    stable[at] = (stable[at][0], stable[at][1][:-1])
    for each in (complete, chain):
        each.dead.clear()
        each.run_to(6_000)
    gaps = {g for records in chain.b_orderer.logs.values() for r in records for g in r.gap}
    assert gaps == {Gap("a", 1)}
    assert set(labels(chain.emitted)) == {"stable", "gap"}
    found, expected = stable_answers(chain.emitted), stable_answers(complete.emitted)
    assert [start for start in expected if found.get(start) != expected[start]] == [0]


def test_two_versions_of_a_window_are_not_added_up() -> None:
    """The stable version arrives while b still waits for another stream."""
    chain = Chain(others=("s3",), tick_ms=25)
    chain.run_to(3_000)
    chain.sources["s2"].disconnect()
    chain.sources["s3"].disconnect()
    chain.run_to(3_000 + 100 + 1_825)  # a has answered its first window tentatively, b has not
    assert "tentative" in labels(chain.a_root.emitted)
    assert "tentative" not in labels(chain.emitted)
    chain.sources["s2"].reconnect()
    chain.run_to(8_000)
    counts = []
    for one in tentative(chain.emitted):
        effect = one.effect
        if isinstance(effect, TentativeWindow) and effect.content is not None:
            counts.append(effect.content.slice.count[1:].max(initial=0.0))
    assert counts
    assert max(counts) == 1, "one row of a in each window of b"


def _bucket(offset: int, *stimes_ms: int) -> ResultBatch:
    """Return the answer to [0, 100) of a query without a window, which had lost two readings."""
    stimes = np.array([at * MS for at in stimes_ms], np.int64)
    nothing, values = np.zeros(len(stimes), np.int32), np.ones(len(stimes))
    return ResultBatch(
        Kind.INSERTION,
        "a",
        offset,
        offset + len(stimes) + 1,
        prev_watermark=0,
        boundary=100 * MS,
        first_id=0,
        last_id=len(stimes) - 1,
        lost=2,
        stime_min=int(stimes.min()),
        stime_max=int(stimes.max()),
        columns=SourceColumns(stimes, nothing, ["k"], ("v",), (values,)),
    )


def test_a_bucket_that_began_before_the_reader_s_position_is_there_once() -> None:
    """E0 may lie within the first bucket, and a reader's position is at E0, not at its start.

    The position alone is not a stable answer to that bucket.
    """
    start_time = SourcePosition(0, 0, -1, 50 * MS)
    stable, tentative = (ResultCursor(start_time, "a", strict=False) for _ in range(2))

    def rows() -> list[int]:
        found = live_columns(stable, tentative, 0, 100 * MS)
        return [int(at) // MS for columns, _ in found for at in columns.stimes]

    def lost() -> list[int]:
        return [gap.lost for _, _, gap in live_gaps(stable, tentative)]

    tentative.offer(0, _bucket(0, 70))
    assert (rows(), lost()) == ([70], [2])
    stable.offer(0, _bucket(0, 60, 70))
    assert (rows(), lost()) == ([60, 70], [2])


def test_a_tentative_answer_that_is_read_first_covers_nothing_before_it() -> None:
    """A consumer that receives one of the two topics late has no order between them."""
    chain = Chain(a=Settings(window_ms=500), b=Settings(window_ms=500))
    chain.run_to(4_950)
    chain.b_orderer.deaf_to.add("a")
    chain.run_to(5_000)
    chain.sources["s2"].disconnect()
    chain.run_to(9_500)
    # a's exact answer to [4.5, 5) is in the delayed topic. The next one, tentative, has arrived
    # when b must answer; it covers the time after its own window's last instant.
    missing = {r.bucket_start // MS: r.missing for r in chain.b_orderer.logs[LineName.LIVE][1:]}
    assert [missing[start] for start in range(4_900, 5_400, 100)] == [("a",)] * 5
    assert missing[5_400] == ("a", "s2")
    assert missing[5_500] == ("s2",)
    chain.b_orderer.deaf_to.clear()
    chain.sources["s2"].reconnect()
    chain.run_to(12_000)
    undamaged = Chain(a=Settings(window_ms=500), b=Settings(window_ms=500))
    undamaged.run_to(12_000)
    assert stable_answers(chain.emitted) == stable_answers(undamaged.emitted)


def test_windows_of_many_rows_that_come_in_small_pieces() -> None:
    """Windows are never read in part, for any size of the consumer's batches."""
    chain = Chain(a=Settings(window_ms=500), b=Settings(window_ms=500))
    chain.b_orderer.records_per_read = 1
    chain.run_to(6_000)
    complete = Chain(a=Settings(window_ms=500), b=Settings(window_ms=500))
    complete.run_to(6_000)
    found = stable_answers(chain.emitted)
    assert found
    assert found.items() <= stable_answers(complete.emitted).items()
