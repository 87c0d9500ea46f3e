"""Days of a zone in a root's answers, in a chain, and in the judge's batch."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from slackwater.codec.result_batches import Assembler, ResultStream
from slackwater.codec.results import ResultHead, encode_boundary
from slackwater.judge.batch import BatchSource, compute_from, end_boundary, windows_source
from slackwater.model.deployment import QuerySpec, WindowSpec
from slackwater.primitives.calendars import Calendar
from slackwater.primitives.key_table import KeyTable
from slackwater.primitives.panes import PaneStore, empty_windows
from slackwater.primitives.rows import RowContents
from slackwater.primitives.windows import Grid
from slackwater.protocols.dpc.soutput.answers import (
    Answered,
    AnswerPlanner,
    EmptyRun,
    Ready,
    RecDone,
    StableWindow,
    TentativeWindow,
    Undo,
)
from slackwater.protocols.dpc.soutput.config import start_of_generation

HOUR = 3_600_000_000
DAY = 24 * HOUR
BERLIN = WindowSpec(DAY, DAY, 0, 0, "Europe/Berlin")
GRID = Grid(250_000, BERLIN)


def at(text: str) -> int:
    when = datetime.fromisoformat(text)
    return (when - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


SATURDAY, SUNDAY, MONDAY, TUESDAY = (
    at(f"2024-{day}") for day in ("03-30T00:00+01:00", "03-31T00:00+01:00",
                                  "04-01T00:00+02:00", "04-02T00:00+02:00")
)  # fmt: skip


def test_a_correction_over_a_short_day_revokes_its_days() -> None:
    answers: AnswerPlanner[str] = AnswerPlanner(Answered.start(SATURDAY), GRID, lambda end: end)
    lacking = [Ready(day, "", 1, missing=("s1",)) for day in (SATURDAY, SUNDAY, MONDAY)]
    tentative = answers.plan([], lacking)
    ends = [e.window_end for e in tentative.effects if isinstance(e, TentativeWindow)]
    assert ends == [SUNDAY, MONDAY, TUESDAY]
    assert MONDAY - SUNDAY == 23 * HOUR
    answers.committed(tentative.after)
    corrected = answers.plan([Ready(SATURDAY, "", 1), Ready(SUNDAY, None, 0, 2)])
    undo, first, run, done = corrected.effects
    assert isinstance(undo, Undo)
    assert (undo.undo_from, undo.undo_to) == (SATURDAY, MONDAY)
    assert isinstance(first, StableWindow)
    assert isinstance(run, EmptyRun)
    assert (run.window_start, run.window_end, run.windows) == (SUNDAY, TUESDAY, 2)
    assert isinstance(done, RecDone)
    assert corrected.after.stable_from == corrected.after.answered_to == TUESDAY


def test_empty_days_are_counted_over_a_change_of_the_clock() -> None:
    store = PaneStore(GRID, RowContents(KeyTable(), ("v",)), SATURDAY)
    store.advance(TUESDAY + HOUR)
    assert empty_windows([store], GRID, SATURDAY) == 3


def test_a_chain_reads_a_run_of_days_up_to_the_end_of_the_next() -> None:
    stream = ResultStream("q", 0, ("v",), ("sum",), DAY, 0, Calendar(BERLIN))
    run = EmptyRun(0, 0, True, SATURDAY, MONDAY, 2, 0, ())
    batch = Assembler(stream).take(0, encode_boundary(ResultHead("q", 0), run, 0))
    assert batch is not None
    assert (batch.prev_watermark, batch.boundary) == (SUNDAY - 1, TUESDAY - 1)


def test_a_new_generation_begins_at_a_day() -> None:
    start = start_of_generation(MONDAY, SATURDAY)
    assert GRID.first_window_holding(start) == MONDAY


def test_the_judge_s_days_and_a_query_that_reads_them() -> None:
    query = QuerySpec("q", ("s",), None, None, BERLIN, ("count",), 2_000_000)
    times = [SUNDAY - 1, SUNDAY, MONDAY - 1, MONDAY]
    result = compute_from(
        query, {"s": BatchSource(("v",), [(t, ("s",), "k", (1.0,)) for t in times])}
    )
    assert {start: of["v"].count for (start, _), of in result.items()} == {
        SATURDAY: 1, SUNDAY: 2, MONDAY: 1,
    }  # fmt: skip
    rows = windows_source(query, result, ("v",)).rows
    assert [row[0] for row in rows] == [SUNDAY - 1, MONDAY - 1, TUESDAY - 1]
    assert end_boundary([query], {}) is None
