"""trace-70 to trace-73: a site with a Kafka of its own, and the centre without it (rule-37)."""

from __future__ import annotations

from random import Random

import pytest
from tests.support.remote_child import HERE, NORTH, Centre, merged_pane
from tests.support.uplinks import CHILD, GRID, PANE, Site, pieces_of

from slackwater.model.records import Gap, Position
from slackwater.protocols.dpc.soutput.core import RootCore
from slackwater.protocols.fargo.parent import MergedPanes
from slackwater.protocols.fargo.uplink import Uplink
from slackwater.sessions.uplink import complete_to_of

X_MS = 1_000

# trace-70: a site deletes what the centre lacks.


def test_what_the_centre_lacks_is_kept_while_the_link_is_cut() -> None:
    site = Site(Random(1))
    site.start(0)
    site.is_cut = True
    for _ in range(20):
        site.complete_pane()
        site.merge(0)
        site.read(0)
        site.send(0)
        site.arrive(0)
        site.truncate()
    assert site.beginning == 0, "nothing has arrived"
    site.run(0)
    site.check()


def test_what_the_centre_has_is_deleted_whichever_uplink_has_sent_it() -> None:
    site = Site(Random(1))
    site.complete_pane()
    site.merge(0)
    for copy in (0, 1):
        site.start(copy)
        for _ in site.log:
            site.read(copy)
    one, other = site.senders
    assert one is not None
    assert other is not None
    for record in one.panes.write():
        site.centre.append(record)
        one.panes.acknowledged()
    site.report(0)
    assert other.panes.kept_from == one.panes.kept_from == len(site.log)
    assert other.panes.write() == [], "it is not sent again"


# trace-71: an uplink begins in the wrong place.


def test_an_uplink_that_died_within_a_pane_is_followed_from_the_pane_on() -> None:
    first, second = pieces_of(0, PANE, 5), pieces_of(PANE, 2 * PANE, 5, 3)
    at_centre = [*first, *second[:2]]
    uplink = Uplink(CHILD, 1, 0)
    uplink.centre_has(max(map(complete_to_of, at_centre[-1:])))
    for offset, record in enumerate([*first, *second]):
        uplink.take(offset, record)
    assert [(of.start, of.pane.piece) for of in uplink.write()] == [
        (PANE, 0),
        (PANE, 1),
        (PANE, 2),
    ]


def test_a_pane_that_the_site_lacks_is_not_passed() -> None:
    uplink = Uplink(CHILD, 1, 0)
    for offset, start in enumerate((0, PANE, 3 * PANE)):
        uplink.take(offset, *pieces_of(start, start + PANE, 5))
    assert [of.start for of in uplink.write()] == [0, PANE]
    assert uplink.hole == 2 * PANE


# trace-72: the centre waits for a site.


def test_without_the_site_each_window_is_answered_within_x_and_names_its_stream() -> None:
    centre = Centre()
    centre.run_to(3_500, NORTH, HERE)
    assert centre.of("stable") == [0, 1_000, 2_000]
    centre.run_to(10_500, HERE)
    lacking = [each for each in centre.answers if each[1] == "tentative"]
    assert [start for _, _, start, _ in lacking] == [*range(3_000, 10_000, 1_000)]
    assert {missing for *_, missing in lacking} == {("at-north",)}
    assert all(at - (start + 1_000) <= X_MS for at, _, start, _ in lacking)
    later = [at - start - 1_000 for at, _, start, _ in lacking[1:]]
    assert max(later) <= 100, "a child that has failed is not waited for again"

    for start in range(3_000, 10_000, 1_000):
        centre.receive(merged_pane(NORTH, start))
    centre.run_to(12_500, NORTH, HERE)
    assert centre.of("stable") == [*range(0, 12_000, 1_000)], "each once, in order"
    assert [kind for _, kind, *_ in centre.answers].count("undo") == 1
    assert [kind for _, kind, *_ in centre.answers].count("rec_done") == 1


def test_panes_that_are_late_and_in_time_change_no_answer() -> None:
    centre = Centre()
    centre.run_to(2_500, NORTH, HERE)
    centre.run_to(3_600, HERE)  # 0.6 s late, X is 1 s
    centre.receive(merged_pane(NORTH, 2_000))
    centre.step()
    assert centre.of("tentative") == []
    assert centre.of("stable") == [0, 1_000, 2_000]


def test_a_root_that_never_falls_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant: a child of which nothing comes is never judged as failed."""
    monkeypatch.setattr(RootCore, "_note_read", lambda *_: None)
    with pytest.raises(AssertionError):
        test_without_the_site_each_window_is_answered_within_x_and_names_its_stream()


def test_a_pane_with_a_loss_counts_at_the_centre_and_says_so() -> None:
    """A root that has deltas leaves it to them (trace-68)."""
    for remote, stable in (((NORTH, HERE), [0, 1_000]), ((), [])):
        centre = Centre(remote)
        for start in (0, 1_000):
            centre.receive(merged_pane(NORTH, start, gap=(Gap("at-north", 4),)))
            centre.receive(merged_pane(HERE, start))
        centre.run_to(2_000)
        assert centre.of("stable") == stable
        assert set(centre.lost) == ({"at-north"} if remote else set())


# trace-73: two places start at two times.


def test_a_remote_child_that_begins_within_a_pane_never_comes() -> None:
    """So the start is a pane's edge: a pane that has begun has no other source."""
    panes = MergedPanes(GRID, lambda e: e, PANE, 1, is_remote=True)
    (record,) = pieces_of(0, PANE, 5)
    assert panes.take(record, Position(PANE // 2), 0) is None
    assert panes.take(record, Position(0), 0) is not None
