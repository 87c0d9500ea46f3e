"""trace-38: a root that cannot keep up skips overdue windows and answers the current ones.

A window takes the root 0.5 s here, and one is due every 0.2 s, so it never catches up by itself.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from tests.simulator.config import Chain
from tests.simulator.story import Questions, Story

from slackwater.protocols.dpc.soutput.answers import EmptyRun, TentativeWindow

X_S = 1.0
ROOT = "root/q.0"


def story(**config: Any) -> Story:
    shape = {"window_us": 200_000, "slide_us": 200_000, "bound_us": 1_000_000, "replicas": 1}
    reported = Story(**(shape | config))
    reported.time_passes(3)
    return reported


def skipped(of: Questions) -> list[float]:
    return [answer.window for answer in of.tentative if answer.skipped]


def runs(of: Questions) -> list[tuple[EmptyRun, Any]]:
    """Return each skipped run, and the answers after it in its transaction."""
    found = []
    for committed in of.history.committed:
        effects = [*committed.transaction.effects, None]
        for run, behind in pairwise(effects):
            if isinstance(run, EmptyRun) and run.skipped:
                found.append((run, behind))
    return found


@pytest.mark.parametrize("for_s", [10, 40])
def test_first_answers_are_in_time_again_as_soon_as_the_load_ends(for_s: int) -> None:
    reported = story()
    reported.overload(ROOT, for_s=for_s, unit_s=0.5)
    reported.time_passes(for_s)
    reported.time_passes(6)
    assert skipped(reported), "the load exceeded the root's capacity"
    assert reported.latest_first_answer_s() < 5, "the delay grows with the load"
    # The limit is 5 s; a root that does not have to compute past windows needs no extra time.
    assert reported.latest_first_answer_s(since_s=3 + for_s) < X_S
    assert reported.rec_done, "all skipped windows are corrected"
    reported.every_guarantee_holds()


def test_a_run_is_one_line_and_the_next_answer_has_figures() -> None:
    reported = story()
    reported.overload(ROOT, for_s=20, unit_s=0.5)
    reported.time_passes(26)
    found = runs(reported)
    assert len(found) > 2
    assert max(run.windows for run, _ in found) > 2
    for run, behind in found:
        assert not run.missing, "no stream was silent: the windows are only overdue"
        assert isinstance(behind, TentativeWindow)
        assert behind.rows
    reported.every_guarantee_holds()


def test_what_a_source_lacks_is_named_though_nothing_is_computed() -> None:
    reported = story(children=(("s1",), ("s2",)))
    reported.silence("s2", for_s=20)
    reported.time_passes(2)
    reported.overload(ROOT, for_s=15, unit_s=0.5)
    reported.time_passes(17)
    found = runs(reported)
    assert found
    assert {run.missing for run, _ in found} == {("s2",)}
    reported.all_is_well_again()
    reported.every_guarantee_holds()


def test_sliding_windows_are_passed_over_and_share_their_buckets_with_the_next() -> None:
    reported = story(window_us=600_000)
    reported.overload(ROOT, for_s=10, unit_s=0.5)
    reported.time_passes(16)
    assert skipped(reported)
    reported.every_guarantee_holds()


def test_a_root_that_dies_after_it_has_passed_windows_over_goes_on_behind_them() -> None:
    reported = story()
    reported.overload(ROOT, for_s=20, unit_s=0.5)
    while not skipped(reported):
        reported.time_passes(0.1)
    reported.kill(ROOT)
    reported.time_passes(30)
    reported.every_guarantee_holds()


def test_a_root_that_was_asleep_has_figures_for_what_one_transaction_holds() -> None:
    reported = story()
    reported.pause(ROOT, for_s=6)
    reported.time_passes(14)
    assert reported.latest_first_answer_s() > 4
    assert not skipped(reported)
    reported.every_guarantee_holds()


def test_after_a_long_absence_the_present_comes_first() -> None:
    """The overdue windows exceed a transaction, and a source is silent, so nothing is stable."""
    reported = story()
    reported.silence("s2", for_s=100)
    reported.kill_for_good(ROOT)
    reported.time_passes(60)
    reported.start_again(ROOT)
    reported.time_passes(3)
    (run, behind), *more = runs(reported)
    assert run.windows > 200
    assert run.missing == ("s2",)
    assert isinstance(behind, TentativeWindow)
    assert not more
    reported.all_is_well_again(12)
    assert not set(skipped(reported)) - {answer.window for answer in reported.stable}
    reported.every_guarantee_holds()


def test_a_query_that_reads_it_later_lacks_the_query_and_takes_nothing_for_empty() -> None:
    reported = story(chain=Chain(window_us=400_000, slide_us=400_000, replicas=1))
    reader = ["orderer/p.0.a", "root/p.0"]
    for name in reader:
        reported.kill_for_good(name)
    reported.overload(ROOT, for_s=15, unit_s=0.5)
    reported.time_passes(10)
    for name in reader:
        reported.start_again(name)
        reported.time_passes(1)
    reported.time_passes(8)
    assert skipped(reported)
    late = [a for a in reported.reader.tentative if a.at > 13 and 5 < a.window < 11]
    assert late, "windows due meanwhile are answered from the available input"
    assert not any(answer.skipped for answer in late)
    assert any("q" in answer.missing for answer in late)
    reported.all_is_well_again()
    reported.every_guarantee_holds()


def test_a_query_that_reads_it_answers_in_time() -> None:
    reported = story(chain=Chain(window_us=400_000, slide_us=400_000))
    reported.overload(ROOT, for_s=15, unit_s=0.5)
    reported.time_passes(25)
    assert skipped(reported)
    assert any("q" in answer.missing for answer in reported.reader.tentative)
    assert reported.reader.latest_first_answer_s() < X_S + 0.1, "no other process is delayed by it"
    reported.every_guarantee_holds()


def test_without_a_window_buckets_are_passed_over() -> None:
    reported = story(rows=True, w_us=200_000)
    reported.overload(ROOT, for_s=10, unit_s=0.5)
    reported.time_passes(16)
    assert skipped(reported)
    assert reported.latest_first_answer_s(since_s=13) < X_S
    reported.every_guarantee_holds()


@pytest.mark.parametrize("unit_s", [0.15, 2.0])
def test_an_overloaded_orderer_delays_nobody_and_is_at_the_present_soon(unit_s: float) -> None:
    """It has no such policy: its live line is never behind by more than a bucket's deadline."""
    reported = story()
    reported.overload("orderer/q.0.a", for_s=20, unit_s=unit_s)
    reported.time_passes(30)
    assert reported.latest_first_answer_s() < X_S
    assert not skipped(reported)
    lacking = [answer.window for answer in reported.tentative if answer.missing]
    assert lacking, "it could not keep up"
    assert max(lacking) < 3 + 20 + 5
    reported.every_guarantee_holds()
