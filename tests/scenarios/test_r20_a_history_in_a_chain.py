"""trace-20 with ``clock: data``: a query reads the results of another one over a history.

Each stage has the clock of its own process: it advances with the records that the stage reads. Of
results it advances to the end of the answered windows. Their watermark is one window further, where
no stream has come yet: a reader of it would answer windows without other streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.paper.chain import Chain, Chained
from tests.paper.stage import (
    MS,
    Orderer,
    Root,
    Settings,
    Source,
    label,
    labels,
    stable_answers,
)

from slackwater.host.decoding import watermark_of
from slackwater.model.limits import NEVER
from slackwater.model.records import Kind
from slackwater.primitives.eventclock import DataClock
from slackwater.protocols.common.line import LineName, Schedule
from slackwater.sessions.events import Record

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
DAYS = 10
X_MS = 2_000
HOURLY = Settings(window_ms=HOUR_MS, bucket_ms=HOUR_MS)
DAILY = Settings(window_ms=DAY_MS, bucket_ms=HOUR_MS)


class Clock:
    """The event clock of a stage."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._clock = DataClock()
        self.reached_us = NEVER

    def observe(self, record: Record) -> None:
        """Advance by a record that the stage reads."""
        if (watermark := watermark_of(record)) is not None:
            self.reached_us = max(self.reached_us, watermark)
            self._clock.observe(watermark, self._history.now_ms * MS)

    def of(self, stage: int) -> Schedule:
        """The schedule of the first or the second pair of stages."""
        return Schedule(self._clock.wall, (X_MS - 50 * (5 - stage)) * MS)


class History(Chain):
    """A chain over files, of which any part may have been read."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.clocks = {}
        stages: Sequence[Orderer | Root] = (
            *(self.a_orderer, self.a_root),
            *(self.b_orderer, self.b_root),
        )
        for number, stage in enumerate(stages, 1):
            clock = self.clocks[stage] = Clock(self)
            schedule = clock.of(number)
            if isinstance(stage, Root):
                stage.config = replace(stage.config, is_history=True, schedule=schedule)
            elif isinstance(stage, Chained):
                stage.config = replace(
                    stage.config,
                    reached=lambda: self.clocks[self.b_orderer].reached_us,
                    schedule=schedule,
                )
            else:
                stage.config = replace(stage.config, schedule=schedule)
            stage.observe = clock.observe
            stage.crash()

    def read(self, name: str, days: int, per_record: int = 100) -> None:
        """Read a stream's file to the end of this day: a reading an hour, at half past."""
        source = self.sources[name]
        last_us = source.log[-1].boundary
        first = max(last_us // MS // HOUR_MS, 0)
        for at in range(first, 24 * days, per_record):
            hours = range(at, min(at + per_record, 24 * days))
            source.emit([(hour + 0.5) * HOUR_MS for hour in hours], hours[-1] * HOUR_MS + HOUR_MS)

    def passes(self, ms: int) -> None:
        """Let time pass."""
        for _ in range(0, ms, 100):
            self.now_ms += 100
            self.work()


def counts(history: History) -> dict[int, float]:
    """By day, how many results of query a the stable answers of b have."""
    found = stable_answers(history.emitted)
    return {start // DAY_MS: count / 3 for start, (count, _) in found.items()}


@pytest.mark.parametrize("per_record", [1, 500])
def test_a_history_passes_through_a_chain(per_record: int) -> None:
    history = History(names=("s1",), a=HOURLY, b=DAILY)
    history.read("s1", DAYS, per_record)
    history.passes(X_MS + 1_000)
    assert counts(history) == dict.fromkeys(range(DAYS), 24)
    assert labels(history.a_root.emitted) == labels(history.emitted) == ["stable"]


def test_empty_event_time_is_one_record_in_a_chain_too() -> None:
    """Two readings, a year apart."""
    history = History(names=("s1",), a=HOURLY, b=replace(DAILY, bucket_ms=250))
    days = 365
    history.sources["s1"].emit([HOUR_MS / 2, (24 * days - 0.5) * HOUR_MS], 24 * days * HOUR_MS)
    history.passes(1_000)
    assert counts(history)[0] == counts(history)[days - 1] == 1
    log = history.b_orderer.logs[LineName.STABLE]
    assert len(log) < 20
    assert sum(record.kind is Kind.INSERTION for record in log) == 2


def test_no_query_is_ahead_of_all_streams() -> None:
    """Query a answers once in a day, so its watermark is a day ahead; s3 is as far as the data."""
    history = History(names=("s1",), others=("s3",), a=DAILY, b=replace(HOURLY, bucket_ms=HOUR_MS))
    for day in range(1, DAYS):
        history.read("s1", day)
        history.read("s3", day)
        history.passes(2 * X_MS)
        assert history.b_orderer.core.line.stable_next == day * DAY_MS * MS
        assert history.clocks[history.b_root].reached_us == day * DAY_MS * MS
    assert labels(history.emitted) == ["stable"]


def test_the_roots_of_a_reader_are_not_told_of_time_that_no_stream_has_reached() -> None:
    """Of two children one reads query a and one the stream s3: a's watermark is a day ahead."""
    history = History(names=("s1",), a=DAILY, b=HOURLY)
    s3 = Source("s3")
    other = Orderer([s3], history.b, child=1, query="b")
    other.config = replace(other.config, schedule=history.clocks[history.b_orderer].of(3))
    other.crash()
    root = Root([history.b_orderer, other], history.b)
    clock = Clock(history)
    root.config = replace(root.config, is_history=True, schedule=clock.of(4))
    root.observe = clock.observe
    root.crash()
    for day in (1, 2, 3):
        history.read("s1", day)
        s3.emit([(24 * day - 0.5) * HOUR_MS], day * DAY_MS)
        for _ in range(2 * X_MS // 100):
            history.passes(100)
            for stage in (other, root):
                stage.listen()
                stage.step(history.now_ms)
    assert labels(root.emitted) == ["stable"]
    assert root.core.line.stable_next == 3 * DAY_MS * MS


def test_what_a_silent_stream_lacks_is_tentative_in_the_whole_chain_and_corrected() -> None:
    history = History(names=("s1", "s2"), a=HOURLY, b=DAILY)
    history.read("s1", DAYS)
    history.passes(2 * X_MS)
    assert labels(history.a_root.emitted) == ["tentative"]
    assert labels(history.emitted) == ["tentative"]
    lacking = [one.effect for one in history.emitted if label(one.effect) == "tentative"]
    assert {getattr(effect, "missing", ()) for effect in lacking} == {("s2",)}
    history.read("s2", DAYS)
    history.passes(2 * X_MS)
    assert counts(history) == dict.fromkeys(range(DAYS), 24)
    assert labels(history.emitted)[-1] == "rec_done"


def test_a_reader_that_restarts_in_the_middle_goes_on() -> None:
    history = History(names=("s1",), a=HOURLY, b=DAILY)
    for day in range(1, DAYS + 1):
        history.read("s1", day)
        history.passes(300)
        history.b_orderer.save()
        history.b_orderer.crash()
        history.b_root.crash()
    history.passes(1_000)
    assert counts(history) == dict.fromkeys(range(DAYS), 24)
    assert labels(history.emitted) == ["stable"]
