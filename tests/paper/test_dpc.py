"""DPC, section by section.

The paper is Balazinska et al., *Fault-Tolerance in the Borealis Distributed Stream Processing
System*. Each test names the section (or figure, or table) on which it is based, and has three
parts: set-up, events, expectations. Where this project deliberately differs from the paper, the
test has the word *Difference*; ``docs/protocols/dpc.md`` lists them all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.paper.stage import (
    FIELDS,
    MS,
    Emitted,
    Orderer,
    Root,
    Settings,
    Source,
    Stage,
    aggregated,
    first_answers,
    label,
    labels,
    readings,
    stable_answers,
)
from tests.support.answer_history import History
from tests.support.proxy_world import World

from slackwater.client.answers import BestAnswers, Change, Undone, WindowAnswer
from slackwater.codec.results import ResultHead, parse_result
from slackwater.host.results import ResultsWriter
from slackwater.model.deployment import FailurePolicy, StabilizationPolicy
from slackwater.model.records import Kind, OrderedRecord, SourceRecord
from slackwater.protocols.common.line import PROCESS, LineName, Policy
from slackwater.protocols.common.states import LineState
from slackwater.protocols.dpc.soutput.answers import (
    RecDone,
    StableWindow,
    TentativeWindow,
    Transaction,
    Undo,
)
from slackwater.protocols.dpc.soutput.config import Commit, DeltaLog
from slackwater.proxy.sensors import hand_over
from slackwater.proxy.sourcelog import SourceLog

WITHIN_MS = 2_000 - 2 * 50
"""X less both stages' margins, with the default settings: the orderer's maximum wait."""


def check_history(emitted: list[Emitted], settings: Settings | None = None) -> None:
    """Check the invariants of results, from the transactions alone."""
    grid = (settings or Settings()).grid
    assert grid.window is not None
    history = History(0, grid.window.slide_us)
    for _, group in groupby(emitted, key=lambda one: one.transaction):
        history.transaction([one.effect for one in group])


def tentative(emitted: list[Emitted]) -> list[Emitted]:
    return [one for one in emitted if isinstance(one.effect, TentativeWindow)]


def delays_ms(emitted: list[Emitted]) -> dict[int, float]:
    """Return the delay of first answers after their normal time, by window start (ms)."""
    delays = {}
    for start, one in first_answers(emitted).items():
        assert isinstance(one.effect, StableWindow | TentativeWindow)
        delays[start] = one.at_ms - one.effect.window_end / MS
    return delays


def content(records: list[OrderedRecord]) -> list[tuple[object, ...]]:
    """Return the content of a log, without writers and times."""
    return [
        (
            r.kind,
            r.bucket_start,
            r.bucket_end,
            r.piece,
            r.first_id,
            r.last_id,
            tuple(r.keys),
            r.offsets.tobytes(),
            tuple(v.tobytes() for v in r.values),
        )
        for r in records
        if r.kind is not Kind.START
    ]


def without_runs(records: list[OrderedRecord]) -> list[tuple[object, ...]]:
    """Return the content with runs of empty buckets joined: their division is arbitrary."""
    reported = content([r for r in records if r.kind is not Kind.BOUNDARY])
    ends = [r.bucket_end for r in records if r.kind is not Kind.START]
    return [*reported, ("covers to", max(ends, default=0))]


# Section 2: query model, availability, measures.


class Died(Exception):
    """The end of a process."""


def test_2_2_a_source_logs_every_tuple_before_it_is_read_and_every_reader_can_replay_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Difference: two logs. The spool has acknowledged readings, Kafka those to be read."""
    world = World(tmp_path)
    path = world.file([f"n,{1_100 + i},{i}" for i in range(40)])
    proxy = world.sensors()
    hand_over(tmp_path / "a", "room", "sensor", path)

    def dying(_: object, records: Sequence[SourceRecord], _delivered: object = None) -> None:
        if any(record.readings for record in records):
            raise Died

    with monkeypatch.context() as patch:
        patch.setattr(SourceLog, "append", dying)
        with pytest.raises(Died):
            world.run(proxy, 8)
    kept_bytes = world.contexts[-1].spool.bytes_held
    seen_before = world.readings()
    world.contexts[-1].spool.close()
    world.run(world.sensors(), 45)

    assert kept_bytes > 0
    assert seen_before == []
    assert [(id_, value) for id_, _, value in world.readings()] == [(i, i) for i in range(40)]
    world.check()


def sent_to_client(stage: Stage) -> Iterator[tuple[BestAnswers, Change | None, Emitted]]:
    """Return the library's output for the lines of the three topics, line by line."""
    client = BestAnswers()
    writer = ResultsWriter(ResultHead("q", 0), FIELDS, ("count", "sum"))
    core, state = stage.root.core, stage.root.state
    assert state is not None
    for _, group in groupby(stage.emitted, key=lambda one: one.transaction):
        for one in group:
            at_us = round(one.at_ms * MS)
            answered = core.answers.state
            transaction = Transaction((one.effect,), answered, answered, more=False)
            commit = Commit(transaction, state, core.keys)
            for _, lines in writer.lines(commit, at_us):
                for _, line in lines:
                    yield client, client.apply(parse_result(line), at_us), one


def test_2_2_a_client_that_speaks_dpc_has_the_best_answer_there_is() -> None:
    """The proxy of section 2.2 is a library here: it applies UNDO and the corrections."""
    stage = Stage()
    stage.run_to(2_000)
    stage.sources["s1"].disconnect()
    stage.run_to(6_000)
    stage.sources["s1"].reconnect()
    stage.run_to(7_000)

    for client, change, one in sent_to_client(stage):
        if isinstance(change, WindowAnswer):
            assert client.best(change.window_start)[0] == change
        elif isinstance(change, Undone):
            assert isinstance(one.effect, Undo)
            assert client.best(change.undo_from) == client.best(change.undo_to) == {}
            assert {a.label for a in client.windows()} == {"stable"}

    answers = {
        a.window_start // MS: (a.rows["k"]["v"]["count"], a.rows["k"]["v"]["sum"])
        for a in client.windows()
        if a.label == "stable"
    }
    assert answers == stable_answers(stage.emitted)
    assert len(answers) == len(client.windows()) == 70


@pytest.mark.parametrize("first_ms", [0, 130, 990])
def test_2_1_windows_are_aligned_independently_of_the_first_tuple(first_ms: int) -> None:
    settings = Settings(window_ms=500)
    source = Source("s1")
    orderer = Orderer([source], settings)
    root = Root([orderer], settings)

    source.emit([first_ms], boundary_ms=1_500)
    orderer.listen()
    orderer.step(1_500)
    root.listen()
    root.step(1_500)

    starts = [s.effect.window_start for s in root.emitted if isinstance(s.effect, StableWindow)]
    assert set(starts) <= {0, 500 * MS, 1_000 * MS}
    assert stable_answers(root.emitted)[first_ms // 500 * 500] == (1.0, 1.0)


@pytest.mark.parametrize("failure_ms", [4_000, 8_000, 16_000, 60_000])
def test_5_2_table_iii_proc_new_does_not_depend_on_the_length_of_the_failure(
    failure_ms: int,
) -> None:
    """X = 3 s as in Table III; Proc_new was 2.8 s there for every failure of 4 s and more."""
    stage = Stage(settings=Settings(bound_ms=3_000), tick_ms=100)
    stage.run_to(2_000)

    stage.sources["s1"].disconnect()
    stage.run_to(2_000 + failure_ms)
    stage.sources["s1"].reconnect()
    stage.run_to(2_000 + failure_ms + 5_000)

    delays = delays_ms(stage.emitted)
    assert max(delays.values()) == 3_000 - 2 * 50
    assert min(delays.values()) >= 0, "nothing is answered before its normal time (trace-36)"
    assert len(delays) == (7_000 + failure_ms) // 100, "every window has an answer"
    check_history(stage.emitted)


@pytest.mark.parametrize("failure_ms", [500, 1_000, 1_850])
def test_2_3_1_a_failure_shorter_than_the_bound_leaves_no_trace(failure_ms: int) -> None:
    stage = Stage()
    stage.run_to(2_000)

    stage.sources["s1"].disconnect()
    stage.run_to(2_000 + failure_ms)
    stage.sources["s1"].reconnect()
    stage.run_to(8_000)

    assert labels(stage.emitted) == ["stable"]
    assert max(delays_ms(stage.emitted).values()) <= WITHIN_MS
    assert not [r for r in stage.orderer.logs[LineName.LIVE] if r.kind is not Kind.START]


def test_2_3_1_property_1_answers_keep_coming_when_every_source_is_silent() -> None:
    """The paper guarantees results while *some* source is available; here also when none is."""
    stage = Stage()
    stage.run_to(2_000)

    for source in stage.sources.values():
        source.disconnect()
    stage.run_to(10_000)

    delays = delays_ms(stage.emitted)
    due = range(0, 10_000 - WITHIN_MS - 100, 100)
    assert set(due) <= set(delays)
    assert max(delays.values()) <= WITHIN_MS
    assert min(delays.values()) >= 0
    empty = [label(one.effect) for one in stage.emitted if one.at_ms > 5_000]
    assert set(empty) == {"tentative"}


def test_2_3_3_definition_2_inconsistency_is_zero_again_after_the_last_stable_answer() -> None:
    stage = Stage()
    stage.run_to(2_000)
    stage.sources["s1"].disconnect()
    stage.run_to(6_000)
    during = len(tentative(stage.emitted))
    stage.sources["s1"].reconnect()
    stage.run_to(8_000)

    since_stable = 0
    for one in stage.emitted:
        status = label(one.effect)
        since_stable = {"tentative": since_stable + 1, "stable": 0}.get(status, since_stable)

    assert during > 0
    assert since_stable == 0


def test_2_3_1_and_2_3_3_the_client_measures_proc_new_delay_new_and_n_tentative() -> None:
    """Definitions 1 and 2: the worst *new* answer, its delay, tentative answers since stable."""
    stage = Stage(settings=Settings(bound_ms=3_000))
    stage.run_to(2_000)
    stage.sources["s1"].disconnect()
    stage.run_to(6_000)
    stage.sources["s1"].reconnect()
    stage.run_to(8_000)

    most = 0
    for client, _, _ in sent_to_client(stage):
        most = max(most, client.measures.n_tentative)

    measures = client.measures
    worst_ms = max(delays_ms(stage.emitted).values())
    assert measures.n_tentative_all == most == len(tentative(stage.emitted)) > 0
    assert measures.n_tentative == 0, "the last answer is stable"
    assert measures.proc_new == worst_ms * MS == 2_900 * MS, "a correction is not new"
    assert measures.normal_count == len(stable_answers(stage.emitted)) - most
    assert measures.delay_new == measures.proc_new - measures.normal_sum // measures.normal_count


# Section 3: SUnion and SJoin.


def test_3_sjoin_pairs_what_lies_within_its_window_in_the_order_of_sunion() -> None:
    """For any order of arrival: by time, then by place in the left and in the right stream.

    Difference: a pair's time is the later of the two, so that it belongs to exactly one bucket.
    """
    settings = Settings(join_within_ms=100)
    emitted = []
    for right_first in (False, True):
        light, warmth = Source("light"), Source("warmth")
        orderer = Orderer([light, warmth], settings)
        for source in (warmth, light) if right_first else (light, warmth):
            times, value = ([20, 150], 1.0) if source is light else ([90, 150, 250, 251], 2.0)
            for i, at in enumerate(times):
                source.emit([at], at, value=value + i / 10)
                orderer.listen()
            source.emit([], 400)
        orderer.listen()
        orderer.step(400)
        emitted.append([r for r in orderer.logs[LineName.STABLE] if r.kind is Kind.INSERTION])

    assert content(emitted[0]) == content(emitted[1])
    assert [(r.bucket_start // MS, *(v.tolist() for v in r.values)) for r in emitted[0]] == [
        (0, [1.0], [2.0]),
        (100, [1.1, 1.1], [2.0, 2.1]),
        (200, [1.1], [2.2]),
    ]


def test_3_sjoin_labels_its_output_by_its_input_and_blocks_without_one_of_them() -> None:
    """Section 4.1: without an input Join has no output; output from tentative input is tentative.

    Difference: while blocked, it emits tentative boundaries, with the missing streams.
    """
    stage = Stage(names=("s1", "s2"), settings=Settings(join_within_ms=120))
    stage.run_to(2_000)

    stage.sources["s2"].disconnect()
    stage.run_to(7_000)
    stage.sources["s2"].reconnect()
    stage.run_to(10_000)

    live = [r for r in stage.orderer.logs[LineName.LIVE] if r.kind is not Kind.START]
    assert live[0].kind is Kind.TENTATIVE, "the window still contains s2's last readings"
    assert {r.kind for r in live[2:30]} == {Kind.BOUNDARY}
    answers = tentative(stage.emitted)
    assert all(one.effect.missing == ("s2",) for one in answers[:30])  # type: ignore[union-attr]
    undisturbed = Stage(names=("s1", "s2"), settings=Settings(join_within_ms=120))
    undisturbed.run_to(10_000)
    assert stable_answers(stage.emitted) == stable_answers(undisturbed.emitted)
    check_history(stage.emitted)


# Section 4.1: the data model.


def test_4_1_table_i_the_tuple_types_and_where_they_are() -> None:
    """Difference: UNDO and REC_DONE are in the results alone (trace-3).

    START and VOID are added.
    """
    stage = Stage()
    stage.run_to(2_000)
    stage.sources["s1"].disconnect()
    stage.run_to(5_000)
    stage.sources["s1"].reconnect()
    stage.run_to(7_000)

    stable = Counter(r.kind for r in stage.orderer.logs[LineName.STABLE])
    live = Counter(r.kind for r in stage.orderer.logs[LineName.LIVE])

    assert set(stable) == {Kind.START, Kind.INSERTION}
    assert set(live) == {Kind.START, Kind.TENTATIVE}
    assert {kind.name for kind in Kind} == {"START", "INSERTION", "TENTATIVE", "BOUNDARY", "VOID"}
    assert labels(stage.emitted) == ["stable", "tentative", "undo", "stable", "rec_done", "stable"]


def test_4_1_a_tentative_tuple_comes_from_a_subset_of_the_inputs_and_names_the_others() -> None:
    stage = Stage()
    stage.run_to(2_000)
    stage.sources["s1"].disconnect()
    stage.sources["s3"].disconnect()
    stage.run_to(6_000)

    in_log = [r for r in stage.orderer.logs[LineName.LIVE] if r.kind is Kind.TENTATIVE]
    answers = [one.effect for one in tentative(stage.emitted)]

    assert {r.missing for r in in_log} == {("s1", "s3")}
    assert {r.values[0].tolist()[0] for r in in_log} == {1.0}, "only the readings of s2"
    assert answers
    assert {a.missing for a in answers if isinstance(a, TentativeWindow)} == {("s1", "s3")}


TUPLES = Settings(bucket_ms=10, rows=True)
"""Without a window the tuples themselves are the result (trace-21)."""


def test_4_1_union_passes_tuples_on_labelled_by_the_input() -> None:
    """While s2 is disconnected its tuples are absent, and those of s1 are tentative."""
    stage = Stage(names=("s1", "s2"), settings=TUPLES, tick_ms=10)
    stage.run_to(100)
    stage.sources["s2"].disconnect()
    stage.run_to(2_200)
    reported = readings(stage.root, stage.emitted)
    assert {value for label, _, _, value in reported if label == "stable"} == {0.0, 1.0}
    assert {value for label, _, _, value in reported if label == "tentative"} == {0.0}


def test_3_a_filter_that_keeps_nothing_of_a_tentative_bucket_still_marks_it() -> None:
    """An empty answer may be wrong as well: the tuples of s2 would have passed the filter."""
    stage = Stage(names=("s1", "s2"), settings=replace(TUPLES, where="v > 0.5"), tick_ms=10)
    stage.run_to(100)
    stage.sources["s2"].disconnect()
    stage.run_to(2_200)
    reported = readings(stage.root, stage.emitted)
    assert {(label, value) for label, _, _, value in reported} == {("stable", 1.0)}
    empty = [one.effect for one in stage.emitted if isinstance(one.effect, TentativeWindow)]
    assert empty
    assert {(answer.rows, answer.missing) for answer in empty} == {(0, ("s2",))}


def test_4_4_2_after_rec_done_every_tuple_is_stable_once_and_in_order() -> None:
    stage = Stage(names=("s1", "s2"), settings=TUPLES, tick_ms=10)
    stage.run_to(100)
    stage.sources["s2"].disconnect()
    stage.run_to(2_200)
    stage.sources["s2"].reconnect()
    stage.run_to(2_400)
    stable = [row[1:] for row in readings(stage.root, stage.emitted) if row[0] == "stable"]
    ticks = range(0, 2_400, 10)
    assert stable == [(tick + 1, "k", value) for tick in ticks for value in (0.0, 1.0)]
    assert labels(stage.emitted)[-3:] == ["stable", "rec_done", "stable"]


def test_4_1_operators_downstream_label_their_output_by_their_input() -> None:
    """The aggregator forwards the label; the root's answer from tentative input is tentative."""
    source = Source("s1")
    orderer = Orderer([source, Source("s2")], Settings())
    source.emit([10, 20], boundary_ms=100)
    orderer.listen()
    orderer.step(100)

    (record,) = [r for r in orderer.step(100 + WITHIN_MS) if r.kind is Kind.TENTATIVE]
    delta = aggregated(record, seq=1)

    assert (delta.kind, delta.missing) == (Kind.TENTATIVE, ("s2",))
    assert delta.count.tolist() == [[2.0]]


def test_4_1_an_application_may_simply_wait_for_the_stable_tuples() -> None:
    """Stable answers alone are the failure-free output: exact, in order, once each."""
    calm, hit = Stage(), Stage()
    calm.run_to(9_000)
    hit.run_to(2_000)
    hit.sources["s2"].disconnect()
    hit.run_to(6_000)
    hit.sources["s2"].reconnect()
    hit.run_to(9_000)

    assert stable_answers(hit.emitted) == stable_answers(calm.emitted)
    assert list(stable_answers(hit.emitted)) == sorted(stable_answers(hit.emitted))


# Section 4.2: the STABLE state.


def test_4_2_1_figure_7_bucket_stability_at_four_points_in_time() -> None:
    """Three streams, buckets of 5 time units, the least boundary at 20, 25, 27 and 30."""
    streams = [Source(name) for name in ("S1", "S2", "S3")]
    orderer = Orderer(streams, Settings(bucket_ms=5, window_ms=5))
    boundaries = [(20, 21, 22), (25, 27, 26), (29, 27, 31), (32, 30, 33)]
    reached = []

    for now, at in enumerate(boundaries):
        for source, boundary in zip(streams, at, strict=True):
            low = max(0, boundary - 8)
            source.emit([low, boundary - 1] if low > 0 else [], boundary)
        orderer.listen()
        orderer.step(now)
        stable = [r for r in orderer.logs[LineName.STABLE] if r.kind is not Kind.START]
        reached.append(stable[-1].bucket_end // MS)

    assert reached == [20, 25, 25, 30]


def test_4_2_1_equation_1_is_strict() -> None:
    """A boundary of 20 allows a reading at 20 to follow; it belongs to the next bucket."""
    source = Source("s1")
    orderer = Orderer([source], Settings(bucket_ms=20, window_ms=20))

    source.emit([5], boundary_ms=20)
    orderer.listen()
    first = orderer.step(20)
    source.emit([20], boundary_ms=40)
    orderer.listen()
    second = orderer.step(40)

    assert [(r.bucket_end // MS, r.offsets[-1]) for r in first] == [(20, 1.0)]
    assert [(r.bucket_end // MS, r.offsets[-1]) for r in second] == [(40, 1.0)]


def test_4_2_1_the_order_inside_a_bucket_is_by_stime_then_stream_then_id() -> None:
    """Between two boundaries readings may be in any order."""
    one, two = Source("s1"), Source("s2")
    orderer = Orderer([one, two], Settings())

    two.emit([6, 5], boundary_ms=50, value=2.0)
    one.emit([7, 5, 6], boundary_ms=100, value=1.0)
    two.emit([5], boundary_ms=50, value=3.0)  # below 50, its watermark: skipped
    two.emit([6, 51], boundary_ms=100, value=4.0)  # so is the first of these, but not its record
    orderer.listen()
    (record,) = orderer.step(100)

    assert record.values[0].tolist() == [1.0, 2.0, 1.0, 2.0, 1.0, 4.0]


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[list[list[tuple[list[int], int]]], list[int], list[int]]:
    """Return the readings of three streams, and two possible orders of arrival."""
    text = []
    for _ in range(3):
        stream, boundary = [], 0
        for _ in range(draw(st.integers(1, 5))):
            to = boundary + draw(st.integers(1, 120))
            stream.append((draw(st.lists(st.integers(boundary, to + 30), max_size=6)), to))
            boundary = to
        text.append(stream)
    turns = [i for i, stream in enumerate(text) for _ in stream]
    return text, draw(st.permutations(turns)), draw(st.permutations(turns))


@settings(max_examples=150)
@given(arrivals())
def test_4_2_1_replicas_agree_whatever_the_order_of_arrival(
    case: tuple[list[list[tuple[list[int], int]]], list[int], list[int]],
) -> None:
    text, *orders = case
    logs = []

    for order in orders:
        streams = [Source(f"s{i}") for i in range(3)]
        replica = Orderer(streams, Settings(bucket_ms=20, window_ms=60))
        left = [iter(stream) for stream in text]
        for turn in order:
            times, boundary = next(left[turn])
            streams[turn].emit(times, boundary, value=turn + 0.1)
            replica.listen()
            replica.step(0)
        logs.append(without_runs(replica.logs[LineName.STABLE]))

    assert logs[0] == logs[1]


def test_4_2_1_ids_and_boundaries_are_monotonic_in_the_output() -> None:
    stage = Stage()
    stage.run_to(2_000)
    stage.sources["s1"].disconnect()
    stage.run_to(5_000)
    stage.sources["s1"].reconnect()
    stage.run_to(7_000)

    log = [r for r in stage.orderer.logs[LineName.STABLE] if r.kind is not Kind.START]

    assert [r.bucket_start for r in log[1:]] == [r.bucket_end for r in log[:-1]]
    assert [r.first_id for r in log] == [0, *(r.last_id + 1 for r in log[:-1])]


def test_4_2_3_boundaries_are_heartbeats_no_data_is_not_a_failure() -> None:
    """s2 has no readings, but boundaries: nothing is missing."""
    settings = Settings()
    one, two = Source("s1"), Source("s2")
    orderer = Orderer([one, two], settings)
    root = Root([orderer], settings)

    for now in range(100, 6_001, 100):
        one.emit([now - 50], boundary_ms=now)
        two.emit([], boundary_ms=now)
        orderer.listen()
        orderer.step(now)
        root.listen()
        root.step(now)

    assert labels(root.emitted) == ["stable"]
    assert len(stable_answers(root.emitted)) == 60


def test_4_2_3_silence_is_a_failure() -> None:
    stage = Stage(names=("s1", "s2"))
    stage.run_to(2_000)
    stage.sources["s2"].disconnect()

    stage.run_to(2_000 + WITHIN_MS + 50)
    before = stage.orderer.core.line.state
    stage.run_to(2_000 + WITHIN_MS + 200)

    assert before is LineState.STABLE
    assert stage.orderer.core.line.state is LineState.UP_FAILURE
    assert stage.orderer.core.line.failed == {1}


def test_4_2_3_a_node_that_was_paused_declares_no_input_missing() -> None:
    """Paused for 3 X: its timers are due at once, but its logs are read first (trace-11)."""
    stage = Stage()
    stage.run_to(2_000)

    for source in stage.sources.values():
        source.emit(range(2_001, 8_000, 50), boundary_ms=8_000)
    asleep = stage.orderer.step(8_000)  # a timer before any input
    stage.orderer.listen()
    awake = stage.orderer.step(8_000)

    assert asleep == []
    assert {record.kind for record in awake} == {Kind.INSERTION}
    assert awake[-1].bucket_end == 8_000 * MS


# Section 4.3: UP_FAILURE.


def test_4_3_available_input_is_processed_within_the_bound_and_without_delay_later() -> None:
    """At the first detection the full bound is used (6.3); later windows are answered when due."""
    stage = Stage()
    stage.run_to(2_000)

    stage.sources["s1"].disconnect()
    stage.run_to(8_000)

    delays = delays_ms(stage.emitted)
    assert delays[2_000] == WITHIN_MS
    waited = [delay for start, delay in delays.items() if start > 2_000 + WITHIN_MS]
    assert waited
    assert set(waited) == {0.0}, "Process: no further delay once the failure is known"


def two_replicas() -> tuple[Source, Source, Source, Orderer, Orderer, Root]:
    """A and B over s1 and s2; B has a separate link to s1."""
    one, ones_other_link, two = Source("s1"), Source("s1"), Source("s2")
    a = Orderer([one, two], Settings(), replica=0)
    b = Orderer([ones_other_link, two], Settings(), replica=1)
    return one, ones_other_link, two, a, b, Root([a, b], Settings())


def test_4_3_table_ii_a_stable_replica_is_preferred_to_one_in_up_failure() -> None:
    """Rows 1 and 2: B is cut off from s1, A is not. No answer is tentative (trace-34)."""
    one, other_link, two, a, b, root = two_replicas()

    for now in range(100, 8_001, 100):
        one.emit([now - 50], now)
        if now <= 2_000:
            other_link.emit([now - 50], now)
        two.emit([now - 50], now)
        for node in (b, a):  # B, which is wrong, emits first
            node.listen()
            node.step(now)
            root.listen()
            for replica, emitted in enumerate((a, b)):
                root.core.update_replica(0, replica, emitted.core.line.state, now * MS)
            root.step(now)

    assert b.core.line.state is LineState.UP_FAILURE
    assert labels(root.emitted) == ["stable"]
    assert len(stable_answers(root.emitted)) == 80


def test_4_3_table_ii_without_a_stable_replica_one_in_up_failure_serves() -> None:
    """Row 4: A ends while B is in UP_FAILURE; then B heals, and corrects from A's end.

    Difference: nothing is subscribed or replayed on a switch; both logs are read all the time, and
    the frontier determines where the other replica's log continues (trace-8).
    """
    one, other_link, two, a, b, root = two_replicas()
    missed: list[int] = []

    for now in range(100, 9_001, 100):
        one.emit([now - 50], now)
        two.emit([now - 50], now)
        if now <= 2_000 or now > 7_000:
            for was in [*missed, now]:
                other_link.emit([was - 50], was)
            missed.clear()
        else:
            missed.append(now)
        for node in [a, b] if now <= 4_000 else [b]:
            node.listen()
            node.step(now)
        if now <= 4_000:
            root.core.update_replica(0, 0, LineState.STABLE, now * MS)
        root.core.update_replica(0, 1, b.core.line.state, now * MS)
        root.listen()
        root.step(now)

    assert labels(root.emitted) == ["stable", "tentative", "undo", "stable", "rec_done", "stable"]
    first = tentative(root.emitted)[0].effect
    assert isinstance(first, TentativeWindow)
    assert first.window_start == 4_000 * MS
    assert first.missing == ("s1",)
    assert stable_answers(root.emitted) == dict.fromkeys(range(0, 9000, 100), (2.0, 2.0))
    assert max(delays_ms(root.emitted).values()) <= 2_000
    check_history(root.emitted)


def test_5_1_from_the_death_of_a_replica_to_the_other_s_data_it_is_no_more_than_140_ms() -> None:
    """Keep-alives every 100 ms and 40 ms to switch there; here a report valid for 120 ms.

    B is in UP_FAILURE when A ends, so its buckets wait for A's until A's last report is stale.
    """
    one, other_link, two, a, b, root = two_replicas()
    dies_ms, tick_ms = 4_990, 10

    for now in range(tick_ms, 7_001, tick_ms):
        one.emit([now - 5], now)
        two.emit([now - 5], now)
        if now <= 2_000:
            other_link.emit([now - 5], now)
        for replica, node in enumerate([a, b]):
            if node is b or now <= dies_ms:
                node.listen()
                node.step(now)
                root.core.update_replica(0, replica, node.core.line.state, now * MS)
        root.listen()
        root.step(now)

    late = {start: delay for start, delay in delays_ms(root.emitted).items() if delay > tick_ms}
    assert b.core.line.state is LineState.UP_FAILURE
    assert labels(root.emitted) == ["stable", "tentative"]
    assert list(late) == [4_900], "it was due 10 ms after A's end; the next one was not late"
    assert 100 < late[4_900] <= 140
    check_history(root.emitted)


# Section 4.4: STABILIZATION.


def test_4_4_figure_5_the_states_of_an_output() -> None:
    stage = Stage()
    seen: list[LineState] = []

    def run(end_ms: int) -> None:
        while stage.now_ms < end_ms:
            for source in stage.sources.values():
                source.emit([stage.now_ms + 1], stage.now_ms + 50)
            stage.now_ms += 50
            stage.orderer.listen()
            stage.orderer.step(stage.now_ms)
            stage.root.listen()
            stage.root.step(stage.now_ms, transactions_max=1)
            seen.append(stage.root.core.line.state)

    run(2_000)
    stage.sources["s1"].disconnect()
    run(20_000)
    stage.sources["s1"].reconnect()
    run(22_000)

    assert [state.value for state, _ in groupby(seen)] == [
        "STABLE",
        "UP_FAILURE",
        "STABILIZATION",
        "STABLE",
    ]


def test_4_4_1_what_is_redone_equals_what_would_have_been_without_the_failure() -> None:
    """Definition 1. Difference: nothing is rolled back; the stable line reads no tentative input.

    The stable log of a node with two failures is therefore, byte for byte, that of a node without
    any.
    """
    calm, hit = Stage(), Stage()
    calm.run_to(12_000)
    hit.run_to(2_000)
    hit.sources["s1"].disconnect()
    hit.run_to(5_000)
    hit.sources["s1"].reconnect()
    hit.run_to(6_000)
    hit.sources["s3"].disconnect()
    hit.run_to(10_000)
    hit.sources["s3"].reconnect()
    hit.run_to(12_000)

    redone = content(hit.orderer.logs[LineName.STABLE])

    assert redone == content(calm.orderer.logs[LineName.STABLE])


def test_4_4_2_soutput_one_undo_then_the_corrections_then_rec_done() -> None:
    """Difference: the UNDO names the first and the last window that it revokes.

    The paper's names the last tuple that is not undone. Here it is in one transaction with the
    corrections.
    """
    stage = Stage()
    stage.run_to(2_000)
    stage.sources["s1"].disconnect()
    stage.run_to(6_000)
    revoked = [one.effect for one in tentative(stage.emitted)]
    stage.sources["s1"].reconnect()

    stage.run_to(6_050)

    at = next(i for i, one in enumerate(stage.emitted) if isinstance(one.effect, Undo))
    transaction = [
        o.effect for o in stage.emitted if o.transaction == stage.emitted[at].transaction
    ]
    undo, *corrections, done = transaction
    assert isinstance(undo, Undo)
    assert isinstance(done, RecDone)
    assert undo.undo_from == 2_000 * MS
    assert undo.undo_to == 5_900 * MS
    assert len(corrections) == len(revoked) == 40
    assert all(isinstance(one, StableWindow) and one.epoch == undo.epoch for one in corrections)
    assert done.epoch == undo.epoch == 1
    assert [one.seq for one in transaction] == sorted(one.seq for one in transaction)


def test_4_4_2_no_undo_where_nothing_was_tentative() -> None:
    stage = Stage()

    stage.run_to(5_000)

    assert labels(stage.emitted) == ["stable"]
    assert {o.effect.epoch for o in stage.emitted if isinstance(o.effect, StableWindow)} == {0}


def test_4_4_2_an_undo_takes_back_no_more_than_is_replaced_at_once() -> None:
    """Difference: s1 returns with one second of readings and is disconnected again (trace-4).

    After the paper's single UNDO the rest would have no answer until the second failure ends.
    """
    stage = Stage()
    stage.run_to(2_000)
    stage.sources["s1"].disconnect()
    stage.run_to(6_000)
    held = stage.sources["s1"].held
    assert held is not None
    stage.sources["s1"].log += held[:20]
    del held[:20]

    stage.run_to(9_000)

    undone = [one.effect for one in stage.emitted if isinstance(one.effect, Undo)]
    assert undone
    assert undone[0].undo_from == 2_000 * MS
    assert max(one.undo_to for one in undone) == 2_900 * MS
    assert not [one for one in stage.emitted if isinstance(one.effect, RecDone)]
    check_history(stage.emitted)


@pytest.mark.parametrize("a_dies", [False, True])
def test_4_4_3_figure_9_replicas_reconcile_one_after_the_other(a_dies: bool) -> None:
    """Request, grant, refuse: the lower id is first, B waits for it, or for its lease to end.

    Difference: a waiting replica continues to process new tuples, and so does the other: each has a
    line for them. Staggering saves work, and nothing depends on it (trace-30).
    """
    sources = [Source("s1"), Source("s2")]
    a, b = (Orderer(sources, Settings(), replica=r, replicas=2) for r in range(2))
    stable_to: list[tuple[int, int]] = []

    for now in range(50, 40_001, 50):
        for source in sources:
            source.emit([now - 25], now)
        if now == 2_000:
            sources[0].disconnect()
        if now == 12_000:
            sources[0].reconnect()
        living = [b] if a_dies and now > 14_000 else [a, b]
        statuses = {node.config.replica: node.core.stagger.status() for node in living}
        for node in living:
            for replica, status in statuses.items():
                if replica != node.config.replica:
                    node.core.stagger.update(replica, status, now * MS)
            node.listen()
            node.step(now, turns_max=1)
        stable_to.append((a.core.line.stable_next // MS, b.core.line.stable_next // MS))

    at_13_s, at_14_s = (stable_to[ms // 50 - 1] for ms in (13_000, 14_000))
    assert at_14_s[0] > at_13_s[0], "A is reconciling"
    assert at_14_s[1] == at_13_s[1] < 8_000, "B has emitted its input, and grants the lease"
    first = next(i for i, (_, at) in enumerate(stable_to) if at > at_14_s[1]) * 50
    if a_dies:
        assert 14_000 + 1_000 <= first <= 14_000 + 1_000 + 2_000, "the lease, and then its own work"
    else:
        assert first > 18_000, "when A has caught up"
    assert b.core.line.state is LineState.STABLE
    logs = [without_runs(node.logs[LineName.STABLE]) for node in (a, b)]
    assert logs[0][:-1] == logs[1][: len(logs[0]) - 1], "and their logs are equal"
    tentative_to = [r.bucket_end for r in b.logs[LineName.LIVE] if r.kind is Kind.TENTATIVE]
    assert max(tentative_to) > 14_000 * MS, "meanwhile B answered new windows"


def test_4_4_3_new_tuples_are_processed_while_corrections_are_made() -> None:
    """With one copy: a line that continues tentatively, and one that reconciles."""
    stage = Stage()
    stage.run_to(2_000)
    stage.sources["s1"].disconnect()
    stage.run_to(30_000)
    stage.sources["s1"].reconnect()

    first = len(stage.emitted)
    while stage.now_ms < 33_000:  # corrections as for a slow consumer: one transaction per tick
        for source in stage.sources.values():
            source.emit([stage.now_ms + 1], stage.now_ms + 50)
        stage.now_ms += 50
        stage.orderer.listen()
        stage.orderer.step(stage.now_ms)
        stage.root.listen()
        stage.root.step(stage.now_ms, transactions_max=1)

    healing = stage.emitted[first:]
    reported = [label(one.effect) for one in healing]
    last_undo = len(reported) - 1 - reported[::-1].index("undo")
    meanwhile = [one.effect for one in healing[:last_undo] if label(one.effect) == "tentative"]
    assert meanwhile, "new windows were answered before the corrections were through"
    assert {one.missing for one in meanwhile if isinstance(one, TentativeWindow)} == {()}
    assert max(delays_ms(stage.emitted).values()) <= WITHIN_MS
    assert reported.count("undo") >= 280 // 100
    assert reported.count("rec_done") == 1
    assert labels(stage.emitted)[-2:] == ["rec_done", "stable"]
    check_history(stage.emitted)


# Section 4.5: recovery of a crashed node.


@pytest.mark.parametrize("saved_ms", [0, 1_000, 2_900])
def test_4_5_a_restarted_node_repeats_nothing_and_loses_nothing(saved_ms: int) -> None:
    """An old state record is as correct as a new one (rule-5): only more input is read again."""
    calm, hit = Stage(), Stage()
    calm.run_to(6_000)
    hit.run_to(saved_ms)
    hit.orderer.save()
    hit.run_to(3_000)

    hit.orderer.crash()
    hit.run_to(6_000)

    hit_log = content(hit.orderer.logs[LineName.STABLE])
    assert hit_log == content(calm.orderer.logs[LineName.STABLE])
    assert labels(hit.emitted) == ["stable"]


def test_4_5_a_restarted_node_emits_nothing_tentative_before_it_has_read_its_input() -> None:
    stage = Stage()
    stage.run_to(2_000)
    stage.orderer.save()
    stage.run_to(3_000)

    stage.orderer.crash()
    unread = stage.orderer.core
    suppressed = unread.suppress_tentative
    effects = unread.step(20_000 * MS)

    assert suppressed
    assert effects == []
    assert unread.line.state is LineState.STABLE


def test_4_5_a_node_restarted_in_a_failure_serves_although_it_is_not_stable() -> None:
    """Difference: the paper's node is silent until STABLE (trace-6).

    If s1 were disconnected for an hour, two replicas that crash one after the other would both be
    silent for the rest of it.
    """
    stage = Stage()
    stage.run_to(2_000)
    stage.sources["s1"].disconnect()
    stage.run_to(6_000)

    stage.orderer.crash()
    stage.run_to(10_000)
    stage.sources["s1"].reconnect()
    stage.run_to(12_000)

    assert max(delays_ms(stage.emitted).values()) <= WITHIN_MS
    emitted_twice = Counter(
        r.bucket_start for r in stage.orderer.logs[LineName.LIVE] if r.kind is Kind.TENTATIVE
    )
    assert set(emitted_twice.values()) == {1}
    assert len(stable_answers(stage.emitted)) == 120
    check_history(stage.emitted)


@pytest.mark.parametrize("crash_ms", [1_550, 3_950, 5_000, 6_050, 6_100])
def test_4_5_a_restarted_root_undoes_nothing_and_repeats_nothing(crash_ms: int) -> None:
    """Killed when stable, at the fork, in the failure, in the corrections, after them."""
    stage = Stage()
    cut, healed = False, False

    while stage.now_ms < 9_000:
        if not cut and stage.now_ms >= 2_000:
            stage.sources["s1"].disconnect()
            cut = True
        if not healed and stage.now_ms >= 6_000:
            stage.sources["s1"].reconnect()
            healed = True
        stage.run_to(stage.now_ms + 50)
        if stage.now_ms == crash_ms:
            before = len(stage.emitted)
            stage.root.crash()
            assert not [one for one in stage.root.step(stage.now_ms) if label(one.effect) == "undo"]
            assert len(stage.emitted) >= before

    check_history(stage.emitted)
    assert len(stable_answers(stage.emitted)) == 90
    assert max(delays_ms(stage.emitted).values()) <= WITHIN_MS


def test_4_5_a_restarted_root_emits_nothing_tentative_before_it_has_read_its_deltas() -> None:
    """B's tentative output comes first; in A's log, not yet read, all of it is stable (rule-27)."""
    one, other_link, two, a, b, root = two_replicas()
    for now in range(100, 8_001, 100):
        one.emit([now - 50], now)
        two.emit([now - 50], now)
        if now <= 2_000:
            other_link.emit([now - 50], now)
        for replica, node in enumerate((a, b)):
            node.listen()
            node.step(now)
            root.core.update_replica(0, replica, node.core.line.state, now * MS)
        if now <= 6_000:
            root.listen()
            root.step(now)

    root.crash()
    for at, record in enumerate(b.logs[LineName.LIVE]):
        root.core.receive(DeltaLog(0, 1, LineName.LIVE), at, aggregated(record, at))
    unread = root.step(8_000)
    root.listen()
    root.step(8_000)

    assert unread == []
    assert labels(root.emitted) == ["stable"]
    assert len(stable_answers(root.emitted)) == 80


# Section 5.1: eventual consistency, Figure 11.


def test_5_1_figure_11_a_overlapping_failures() -> None:
    """Failure 1 on stream 1, then failure 2 on stream 3; failure 1 heals first.

    Difference: the paper waits for all failures to heal before it reconciles, and states that a
    node could do it "as soon as" some window is complete on all inputs. This is implemented here:
    windows that are complete when failure 1 heals are corrected then, and only those.
    """
    stage = Stage()
    stage.run_to(2_000)
    stage.sources["s1"].disconnect()
    stage.run_to(5_000)
    stage.sources["s3"].disconnect()
    stage.run_to(9_000)
    overlap = len(stage.emitted)
    stage.sources["s1"].reconnect()
    stage.run_to(13_000)
    one_healed = len(stage.emitted)
    stage.sources["s3"].reconnect()
    stage.run_to(15_000)

    assert labels(stage.emitted[:overlap]) == ["stable", "tentative"]
    assert labels(stage.emitted[overlap:one_healed]) == ["undo", "stable", "tentative"]
    assert labels(stage.emitted[one_healed:]) == ["undo", "stable", "rec_done", "stable"]
    missing = {
        tuple(one.effect.missing): one.effect.window_start // MS
        for one in tentative(stage.emitted)
        if isinstance(one.effect, TentativeWindow)
    }
    assert list(missing) == [("s1",), ("s1", "s3"), ("s3",)]
    assert len(stable_answers(stage.emitted)) == 150
    check_history(stage.emitted)


def test_5_1_figure_11_b_a_failure_during_recovery() -> None:
    """Failure 2 begins at the time at which failure 1 heals.

    As in the figure: corrections, REC_DONE, a pause of at most the bound, tentative tuples again;
    then only those of the second failure are corrected, and a second REC_DONE follows.
    """
    stage = Stage()
    stage.run_to(2_000)
    stage.sources["s1"].disconnect()
    stage.run_to(6_000)
    stage.sources["s1"].reconnect()
    stage.sources["s3"].disconnect()
    stage.run_to(10_000)
    stage.sources["s3"].reconnect()
    stage.run_to(13_000)

    assert labels(stage.emitted) == [
        "stable",
        "tentative",
        *("undo", "stable", "rec_done"),
        "tentative",
        *("undo", "stable", "rec_done"),
        "stable",
    ]
    undone = [one.effect for one in stage.emitted if isinstance(one.effect, Undo)]
    assert [(u.undo_from // MS, u.undo_to // MS) for u in undone] == [
        (2_000, 5_900),
        (6_000, 9_900),
    ]
    assert [u.epoch for u in undone] == [1, 2]
    assert len(stable_answers(stage.emitted)) == 130
    assert max(delays_ms(stage.emitted).values()) <= WITHIN_MS
    check_history(stage.emitted)


def test_5_1_all_tentative_tuples_get_corrected_and_no_stable_tuple_is_duplicated() -> None:
    """A flapping source: every second it is connected for 50 ms, and sends its backlog."""
    stage = Stage()
    stage.run_to(1_000)
    for again in range(12):
        stage.sources["s2"].disconnect()
        stage.run_to(1_000 + 2_550 * (again + 1) - 50)
        stage.sources["s2"].reconnect()
        stage.run_to(1_000 + 2_550 * (again + 1))

    stage.run_to(35_000)

    calm = Stage()
    calm.run_to(35_000)
    assert stable_answers(stage.emitted) == stable_answers(calm.emitted)
    assert "tentative" in labels(stage.emitted)
    check_history(stage.emitted)


def state(stage: Stage) -> LineState:
    return stage.orderer.core.line.state


# Section 6.1: what to do with new tuples in UP_FAILURE and in STABILIZATION.


FAILURE: tuple[FailurePolicy, ...] = ("delay", "process")
STABILIZATION: tuple[StabilizationPolicy, ...] = ("suspend", "delay", "process")
POLICIES = [Policy(*pair) for pair in product(FAILURE, STABILIZATION)]


@cache
def one_failure(policy: Policy, failure_ms: int) -> Stage:
    """X = 3 s; s1 is disconnected for some time; redoing a second takes slightly more than half."""
    settings = Settings(bound_ms=3_000, policy=policy)
    stage = Stage(settings=settings, turns_max=1)
    stage.run_to(2_000)
    stage.sources["s1"].disconnect()
    stage.run_to(2_000 + failure_ms)
    stage.sources["s1"].reconnect()
    stage.run_to(2_000 + 2 * failure_ms + 5_000)
    return stage


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_6_1_all_policies_mask_a_failure_shorter_than_the_bound(policy: Policy) -> None:
    stage = one_failure(policy, 2_000)
    assert labels(stage.emitted) == ["stable"]


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_6_1_figure_13_the_six_policies(policy: Policy) -> None:
    """Proc_new stays below X unless something is suspended; consistency is always restored."""
    stage = one_failure(policy, 10_000)
    delays = delays_ms(stage.emitted)
    healed, within = 12_000, 3_000 - 2 * 50

    in_failure = {delays[s] for s in range(2_500 + within, healed - within - 500, 100)}
    assert in_failure == ({within} if policy.failure == "delay" else {0.0})
    new_after = [one for one in tentative(stage.emitted) if one.at_ms > healed + 100]
    if policy.stabilization == "suspend":
        assert new_after == [], "nothing tentative until the lines have joined"
        assert max(delays.values()) > 3_000, "the cost of this policy"
    else:
        assert new_after
        assert max(delays.values()) <= within
    assert labels(stage.emitted)[-1] == "stable"
    assert list(stable_answers(stage.emitted)) == list(range(0, stage.now_ms, 100))
    assert stable_answers(stage.emitted) == stable_answers(one_failure(PROCESS, 10_000).emitted)
    check_history(stage.emitted)


def test_6_1_figure_13_delaying_reduces_n_tentative() -> None:
    """Delay & Delay has the fewest tentative tuples of those that keep the bound."""
    reported = {policy: len(tentative(one_failure(policy, 10_000).emitted)) for policy in POLICIES}

    def count(failure: FailurePolicy, stabilization: StabilizationPolicy) -> int:
        return reported[Policy(failure, stabilization)]

    assert count("process", "process") == max(reported.values())
    assert count("delay", "delay") < count("process", "process")
    assert count("delay", "delay") <= count("process", "delay") <= count("process", "process")
    assert count("delay", "delay") <= count("delay", "process") <= count("process", "process")
    assert count("process", "suspend") < count("process", "process")


def test_6_1_suspended_a_second_failure_brings_availability_back() -> None:
    """Difference: suspending ends with the stabilization, also when that ends in a new failure."""
    policy = Policy("process", "suspend")
    stage = Stage(settings=Settings(bound_ms=1_000, policy=policy), turns_max=1)
    stage.run_to(2_000)
    stage.sources["s1"].disconnect()
    stage.run_to(12_000)
    stage.sources["s1"].reconnect()
    stage.run_to(13_000)
    assert state(stage) is LineState.STABILIZATION
    before = len(tentative(stage.emitted))
    stage.sources["s2"].disconnect()
    stage.run_to(16_000)
    assert state(stage) is LineState.UP_FAILURE
    again = tentative(stage.emitted)[before:]
    assert again[0].at_ms == 13_000 + 100 + 900, "the deadline of the first unit that s2 lacks"
    stage.sources["s2"].reconnect()
    stage.run_to(30_000)
    assert labels(stage.emitted)[-1] == "stable"
    assert list(stable_answers(stage.emitted)) == list(range(0, 30_000, 100))
    check_history(stage.emitted)


# Section 6.2: several nodes in sequence.


def test_6_2_only_the_stage_whose_own_input_is_missing_delays() -> None:
    """Difference: Delay & Delay does not add D per node; deadlines are one margin per stage apart.

    The root forwards at once what the orderer has delayed (trace-13).
    """
    stage = one_failure(Policy("delay", "delay"), 10_000)
    written = {
        r.bucket_start // MS for r in stage.orderer.logs[LineName.LIVE] if r.kind is Kind.TENTATIVE
    }
    delays = delays_ms(stage.emitted)
    assert {delays[start] for start in written if start < 9_000} == {2_900}


# Section 6.3: assigning delays.


def test_6_3_every_stage_may_wait_for_the_whole_bound_and_their_waits_do_not_add_up() -> None:
    """Both stages wait at the same time; they are one margin apart, so the first emits first.

    If an orderer emits nothing, the root waits by itself, until its own deadline.
    """
    stage = Stage()
    stage.run_to(2_000)
    stage.sources["s1"].disconnect()
    stage.run_to(8_000)
    suppressed = Stage()
    suppressed.run_to(2_000)

    for now in range(2_050, 8_001, 50):  # the orderer is down: only the root runs
        suppressed.now_ms = now
        suppressed.root.listen()
        suppressed.root.step(now)

    assert max(delays_ms(stage.emitted).values()) == 2_000 - 2 * 50
    assert max(delays_ms(suppressed.emitted).values()) == 2_000 - 50
    (missing,) = {
        one.effect.missing
        for one in tentative(suppressed.emitted)
        if isinstance(one.effect, TentativeWindow)
    }
    assert missing == ("s1", "s2", "s3"), "a silent child lacks all its streams (trace-31)"


def test_6_3_a_bound_of_8_s_masks_a_failure_of_6_5_s() -> None:
    """The paper's figure for a chain of four nodes; here the two stages of a query, and more."""
    stage = Stage(settings=Settings(bound_ms=8_000))
    stage.run_to(2_000)

    stage.sources["s1"].disconnect()
    stage.run_to(2_000 + 7_850)
    stage.sources["s1"].reconnect()
    stage.run_to(14_000)

    assert labels(stage.emitted) == ["stable"]


# Section 8: buffers, granularity.


def test_8_1_no_buffer_grows_with_the_length_of_a_failure() -> None:
    """Difference: neither back-pressure nor truncation is needed; positions replace the buffer."""
    stage = Stage(names=("s1", "s2"), tick_ms=100)
    stage.run_to(2_000)
    stage.sources["s1"].disconnect()
    held = []

    for step in range(1, 6):  # 20 x the bound between two samples
        stage.run_to(2_000 + step * 40_000)
        cursors = [*stage.orderer.core.logs.stable, *stage.orderer.core.logs.live]
        held.append(sum(cursor.bytes_held for cursor in cursors))
    stage.orderer.save()
    parked = {s.stream: s.next.next_id for s in stage.orderer.saved.streams}

    assert max(held[1:]) <= 2 * held[0] < 100_000
    assert parked["s2"] <= 21, "s2 will be read again from the stable line's position"
    stage.sources["s1"].reconnect()
    stage.run_to(204_000)
    assert len(stable_answers(stage.emitted)) == 2_040
    check_history(stage.emitted)


def test_8_2_only_outputs_that_see_the_failure_change_their_state() -> None:
    """Two children: a failure in one does not affect the other's logs and state."""
    settings = Settings()
    names = ("s1", "s2")
    sources = [Source(name) for name in names]
    children = [Orderer([source], settings, child=i) for i, source in enumerate(sources)]
    root = Root(children, settings)

    for now in range(100, 8_001, 100):
        sources[0].emit([now - 50], now)
        if now <= 2_000:
            sources[1].emit([now - 50], now)
        for child in children:
            child.listen()
            child.step(now)
        root.listen()
        root.step(now)

    assert [child.core.line.state.value for child in children] == ["STABLE", "UP_FAILURE"]
    assert {r.kind for r in children[0].logs[LineName.LIVE]} == {Kind.START}
    assert {r.kind for r in children[1].logs[LineName.LIVE]} == {Kind.START, Kind.BOUNDARY}
    last = tentative(root.emitted)[-1].effect
    assert isinstance(last, TentativeWindow)
    assert last.missing == ("s2",)
    assert last.content is not None
    assert np.all(last.content.slice.count == 1), "the healthy child's readings are in the answer"
