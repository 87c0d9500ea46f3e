"""trace-43: a query that another one reads is changed.

Query q reads three sources, and p reads q's results. The third source is removed for good, so q's
answers stay tentative, and p's with them. q is changed to read the other two. p reads on, and finds
each window of q once: those before the cut from the earlier generation, the others from the later
one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from tests.paper.chain import AGGREGATE, Chain, Chained, missing_of
from tests.paper.stage import (
    MS,
    Emitted,
    Orderer,
    Root,
    Settings,
    first_answers,
    label,
    labels,
    stable_answers,
)

from slackwater.codec.result_batches import Assembler, ResultStream
from slackwater.codec.results import ResultHead, encode_boundary
from slackwater.control.control_state import ControlState
from slackwater.control.generations import as_generation
from slackwater.deployment.parse import parse_deployment
from slackwater.model.deployment import Deployment
from slackwater.model.names import ORDERER, ROOT
from slackwater.model.records import Kind, OrderedRecord, SourcePosition
from slackwater.protocols.common.line import LineName, Schedule
from slackwater.protocols.dpc.soutput.answers import EmptyRun
from slackwater.protocols.dpc.soutput.config import start_of_generation
from slackwater.protocols.dpc.sunion.chain import ResultCursor

REMOVED, CHANGED, READY, END = 4_000, 8_000, 9_000, 14_000
WINDOW = 500

TEXT = """\
apiVersion: slackwater/v1
streams:
  s1: {key: {value: k}, time: {column: t, unit: s}, fields: [v], expect_every: 1s}
  s2: {key: {value: k}, time: {column: t, unit: s}, fields: [v], expect_every: 1s}
  s3: {key: {value: k}, time: {column: t, unit: s}, fields: [v], expect_every: 1s}
queries:
  q: {from: SOURCES, window: {size: 500ms}, aggregate: [count, sum, avg], bound: 2s}
  p: {from: [q], window: {size: 500ms}, aggregate: [count, sum, avg], bound: 2s}
"""


def with_change() -> Deployment:
    """Both generations of q, and p; the later one has a longer bound than p."""
    first = parse_deployment(TEXT.replace("SOURCES", "[s1, s2, s3]"), "d.yaml").deployment
    longer = TEXT.replace("SOURCES", "[s1, s2]").replace("bound: 2s", "bound: 3s", 1)
    changed = parse_deployment(longer, "d.yaml").deployment
    later, _ = as_generation(changed, "q", ControlState())
    return replace(first, queries={**first.queries, **later.queries})


@dataclass
class OfDeployment(Settings):
    """The deadlines are those of a query of a deployment."""

    deployment: Deployment | None = None
    query: str = "q"

    def schedule(self, stage: int) -> Schedule:
        assert self.deployment is not None
        kind = (ORDERER, ROOT)[stage - 1]
        return Schedule(lambda e: e, self.deployment.deadline_us(self.query, kind))


class Change:
    """p reads q, which is replaced by its generation 1; in a ``Chain`` they are b and a."""

    def __init__(self, q: Settings | None = None, later: Settings | None = None) -> None:
        self.settings = q or Settings(window_ms=WINDOW)
        self.later_settings = later or self.settings
        self.chain = Chain(names=("s1", "s2", "s3"), a=self.settings, b=Settings(window_ms=WINDOW))
        self.chain.run_to(REMOVED)
        self.chain.sources["s3"].disconnect()
        self.chain.run_to(CHANGED)
        state = self.chain.a_root.state
        assert state is not None
        self.begins = start_of_generation(state.stable_from, 0)
        kept = [self.chain.sources[name] for name in ("s1", "s2")]
        self.later_settings = replace(self.later_settings, stages=4)
        self.orderer = Orderer(kept, self.later_settings, query="q.g1", start_time=self.begins)
        self.of_earlier: list[Emitted] = []

    def run_both_to(self, end_ms: int) -> None:
        """Run to a time, in which generation 0 answers and generation 1 computes."""
        while self.chain.now_ms < end_ms:
            self.chain.run_to(self.chain.now_ms + self.chain.tick_ms)
            self.orderer.listen()
            self.orderer.step(self.chain.now_ms)

    def take_over(self, aggregate: tuple[str, ...] = AGGREGATE) -> None:
        """Generation 1 continues the results."""
        chain, state = self.chain, self.chain.a_root.state
        assert state is not None
        root = Root([self.orderer], self.later_settings, "q.g1", self.begins, {0: state})
        self.of_earlier = list(chain.a_root.emitted)
        chain.topics.replaced_by(root, 1, aggregate)
        chain.a_orderer, chain.a_root = self.orderer, root

    def stable_of_q(self) -> dict[int, tuple[float, float]]:
        """Stable answers of both generations, by window start (ms)."""
        return stable_answers([*self.of_earlier, *self.chain.a_root.emitted])


def figures_read(of_q: dict[int, tuple[float, float]]) -> dict[int, tuple[float, float]]:
    """What p answers to windows of one row each: its three figures are counted, and added up."""
    return {start: (3.0, count + total + total / count) for start, (count, total) in of_q.items()}


@pytest.mark.parametrize("restarts", ["none", "before the cut", "after the cut"])
def test_a_reader_finds_one_sequence(restarts: str) -> None:
    change = Change()
    change.run_both_to(READY)
    chain = change.chain
    assert labels(chain.emitted)[-1] == "tentative"
    assert {missing_of(e) for e in chain.emitted if label(e.effect) == "tentative"} == {("s3",)}
    if restarts == "before the cut":
        chain.b_orderer.save()
        chain.b_orderer.crash()
    change.take_over()
    chain.run_to(READY + WINDOW)
    if restarts == "after the cut":
        chain.b_orderer.crash()  # it reads the whole history again, with both generations
        chain.b_root.crash()
    chain.run_to(END)

    of_q, of_p = change.stable_of_q(), stable_answers(chain.emitted)
    windows = list(range(0, END - 2 * WINDOW, WINDOW))
    assert [start for start in sorted(of_p) if start in windows] == windows, "each window once"
    expected = figures_read(of_q)
    assert {start: of_p[start] for start in windows} == {s: expected[s] for s in windows}
    cut = change.begins // MS
    assert cut == REMOVED, "q cannot complete a window without the third source"
    assert {of_q[start][0] for start in windows if start < cut} == {30.0}, "of three sources"
    assert {of_q[start][0] for start in windows if start >= cut} == {20.0}, "of two"
    # What was tentative is undone in p, too, and nothing is tentative afterwards.
    assert "undo" in labels(chain.emitted)
    assert labels(chain.emitted)[-2:] == ["rec_done", "stable"]


def test_a_reader_is_given_its_time_across_a_change() -> None:
    """The later generation answers before p stops waiting for it, as the earlier one does.

    With deadlines of its own it would answer after 3 s, when p has named q as missing.
    """
    both = with_change()
    earlier = OfDeployment(window_ms=WINDOW, deployment=both, query="q")
    change = Change(earlier, replace(earlier, query="q.g1"))
    change.run_both_to(READY)
    change.take_over()
    chain = change.chain
    chain.run_to(11_000)
    before = len(chain.emitted)
    chain.sources["s2"].disconnect()
    chain.run_to(16_000)
    tentative = [e for e in chain.emitted[before:] if label(e.effect) == "tentative"]
    assert {missing_of(e) for e in tentative} == {("s2",)}
    late = [e.at_ms - start - WINDOW for start, e in first_answers(chain.emitted).items()]
    assert max(late) <= Settings().bound_ms


def test_columns_that_earlier_rows_lack_are_missing_values() -> None:
    """A query that is applied after the change reads a column that only later rows have.

    These rows are not damaged, so none is counted as lost.
    """
    change = Change()
    change.run_both_to(READY)
    wider = (*AGGREGATE, "max")
    change.take_over(wider)
    chain = change.chain
    chain.run_to(END)
    topics = chain.topics
    topics.stream = ResultStream("a", 0, topics.settings.fields, wider, WINDOW * MS, generation=1)
    settings = replace(chain.b, reads=tuple(f"v_{figure}" for figure in wider))
    reader = Chained([], [topics], settings, query="c")
    for _ in range(3):
        reader.listen()
        reader.step(chain.now_ms)
    records = [r for r in reader.logs[LineName.STABLE] if r.kind is Kind.INSERTION]
    by_start = {record.bucket_start // MS: record for record in records}
    assert not [record for record in records if record.gap], "nothing is lost"
    at = {start + WINDOW - 100: start for start in range(0, END - WINDOW, WINDOW)}
    assert by_start.keys() >= at.keys()
    has_max = {at[bucket]: "v_max" in _figures(by_start[bucket]) for bucket in at}
    assert has_max == {start: start >= change.begins // MS for start in at.values()}


def test_a_shorter_window_would_be_below_what_a_reader_takes_for_complete() -> None:
    """Why the window is not changed: after [12, 16) the topic states that no row before 20 follows.

    The row of [16, 17) would be at 17, and a reader drops what lies below a boundary.
    """
    second = 1_000_000
    cursor = ResultCursor(SourcePosition(0, 0, -1, 16 * second - 1), "q", strict=True)
    taken = []
    for offset, (start, end) in enumerate([(12, 16), (16, 20), (20, 21)]):
        run = EmptyRun(offset, 0, True, start * second, end * second, 1, 0, ())
        answer = encode_boundary(ResultHead("q", 0), run, 0)
        size = end - start
        stream = ResultStream("q", 0, ("v",), ("sum",), size * second)
        batch = Assembler(stream).take(offset, answer)
        assert batch is not None
        taken.append(cursor.offer(offset, batch))
    assert taken == [True, True, False]


def _figures(record: OrderedRecord) -> set[str]:
    """The columns in which a record's only row has a value."""
    named = zip(record.fields, record.values, strict=True)
    return {name for name, values in named if not np.isnan(values).any()}
