"""Every checker can fail: a correct history passes, a modified one does not."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from tests.simulator.checkers import (
    CHECKERS,
    Violation,
    bounded,
    check,
    convergent,
    counted,
    exact,
    future,
    honest,
    logs,
    memory,
    order,
    placed,
    tenures,
)
from tests.simulator.checkers.facts import Facts
from tests.simulator.clock import MS, SECOND
from tests.simulator.config import START_TIME_US, Added, Chain, Machines, Sharing, WorldConfig
from tests.simulator.faults import Fault
from tests.simulator.history import Committed, History, Note, Outage, Sample
from tests.simulator.plans import Plan
from tests.simulator.readings import Habits
from tests.simulator.run import run

from slackwater.model.records import Kind
from slackwater.protocols.dpc.soutput.answers import (
    EmptyRun,
    RecDone,
    StableWindow,
    TentativeWindow,
    Undo,
)

Doctor = Callable[[History], None]
CHAIN = Chain(window_us=600 * MS, slide_us=300 * MS)
SHARING = Sharing(window_us=600 * MS, slide_us=300 * MS)


@cache
def _lived(second: Chain | Sharing | None = None) -> History:
    """A source is silent for longer than the bound, and returns."""
    config = WorldConfig(
        window_us=300 * MS, slide_us=300 * MS, bound_us=400 * MS, margin_us=20 * MS, pace=0.3,
        habits=Habits(every_us=40 * MS, late_every=10, late_us=SECOND),
        chain=second if isinstance(second, Chain) else None,
        sharing=second if isinstance(second, Sharing) else None,
    )  # fmt: skip
    silence = Fault(2_200 * MS, "silence", "s1", 1_500 * MS)
    outcome = run(Plan(3, config, 4 * SECOND, (silence,)))
    assert outcome.violation is None, str(outcome)
    return outcome.history


@pytest.fixture
def history() -> History:
    """A copy that may be modified."""
    lived = _lived()
    return replace(
        lived,
        committed=list(lived.committed),
        reported_states=list(lived.reported_states),
        samples=list(lived.samples),
        outages=list(lived.outages),
        sent={stream: list(readings) for stream, readings in lived.sent.items()},
        refused={stream: list(readings) for stream, readings in lived.refused.items()},
        source_logs={stream: list(log) for stream, log in lived.source_logs.items()},
        ordered_logs={at: list(log) for at, log in lived.ordered_logs.items()},
    )


def test_what_was_right_passes(history: History) -> None:
    check(history)
    assert len(CHECKERS) == 14


def _nth(history: History, effect: type, n: int = 0, **same: Any) -> tuple[int, Any]:
    """Return the n-th commit with such an effect, and the effect."""
    found = [
        (i, e)
        for i, committed in enumerate(history.committed)
        for e in committed.transaction.effects
        if isinstance(e, effect) and all(getattr(e, k) == v for k, v in same.items())
    ]
    return found[n]


def _change(history: History, at: int, old: Any, *new: Any) -> None:
    committed = history.committed[at]
    effects = list(committed.transaction.effects)
    i = effects.index(old)
    effects[i : i + 1] = new
    transaction = replace(committed.transaction, effects=tuple(effects))
    history.committed[at] = committed._replace(transaction=transaction)


def _rows(history: History, effect: type) -> tuple[int, Any, Committed]:
    for n in range(100):
        at, answer = _nth(history, effect, n)
        if history.committed[at].keys.get(answer.seq):
            return at, answer, history.committed[at]
    raise AssertionError("no answer has rows")


# guarantee-1


def _one_reading_twice(history: History) -> None:
    at, answer, committed = _rows(history, StableWindow)
    (key, figures), *others = committed.keys[answer.seq]
    doubled = (key, (figures[0] + 1, *figures[1:]))
    history.committed[at] = committed._replace(
        keys={**committed.keys, answer.seq: [doubled, *others]}
    )


def _a_window_left_out(history: History) -> None:
    at, answer = _nth(history, StableWindow, 2)
    _change(history, at, answer)


def _a_row_that_seq_skips(history: History) -> None:
    at, answer = _nth(history, StableWindow, 2)
    history.committed[at].keys[answer.seq].pop()


def _a_row_below_the_condition(history: History) -> None:
    history.config = replace(history.config, count_min=10_000)


def _lost_although_nothing_was_cut(history: History) -> None:
    from slackwater.model.records import Gap

    at, answer = _nth(history, StableWindow, 2)
    _change(history, at, answer, replace(answer, gap=(Gap("s1", 3),)))


def _stable_before_its_end(history: History) -> None:
    at, answer = _nth(history, StableWindow, 2)
    early = answer.window_start + history.config.window_us // 4
    history.committed[at] = history.committed[at]._replace(at=early)


# guarantee-2


def _late(history: History) -> None:
    at, _ = _nth(history, TentativeWindow)
    history.committed[at] = history.committed[at]._replace(at=history.committed[at].at + 200 * MS)


def _early(history: History) -> None:
    at, _ = _nth(history, TentativeWindow)
    early = history.committed[at].at - history.config.bound_us - 100 * MS
    history.committed[at] = history.committed[at]._replace(at=early)


def _for_nothing(history: History) -> None:
    history.outages.clear()


def _passed_over_in_time(history: History) -> None:
    at, of = _nth(history, TentativeWindow)
    run = EmptyRun(of.seq, of.epoch, False, of.window_start, of.window_end, 1, of.due_at, ())
    _change(history, at, of, replace(run, skipped=True))


# guarantee-3


def _not_named(history: History) -> None:
    at, answer = _nth(history, TentativeWindow, 1)
    assert answer.missing == ("s1",)
    _change(history, at, answer, replace(answer, missing=()))


def _counted_twice(history: History) -> None:
    at, answer, committed = _rows(history, TentativeWindow)
    (key, figures), *others = committed.keys[answer.seq]
    doubled = (key, (figures[0] + 1_000, *figures[1:]))
    history.committed[at] = committed._replace(
        keys={**committed.keys, answer.seq: [doubled, *others]}
    )


def _without_undo(history: History) -> None:
    at, undo = _nth(history, Undo)
    _change(history, at, undo)


# guarantee-4


def _never_corrected(history: History) -> None:
    at, _ = _nth(history, Undo)
    del history.committed[at:]


def _without_rec_done(history: History) -> None:
    at, done = _nth(history, RecDone)
    _change(history, at, done)


def _lines_left_forked(history: History) -> None:
    history.reported_states.append(Note(history.ended_at, "orderer/q.0.a", "says STABILIZATION"))


# guarantee-5


def _a_process_that_grows(history: History) -> None:
    history.samples.append(Sample(history.ended_at, {"root/q.0": 1_000_000}))


def _an_orderer_that_grows(history: History) -> None:
    history.samples.append(Sample(history.ended_at, {"orderer/q.0.a": 1 << 30}))


# guarantee-6


def _a_reading_dropped(history: History) -> None:
    reason, reading = history.refused["s1"].pop(0)
    assert reason == "late"
    assert reading.stime


def _a_reading_sent_twice(history: History) -> None:
    history.refused["s2"].append(("late", history.sent["s2"][0]))


# The logs.


def _replicas_disagree(history: History) -> None:
    log = history.ordered_logs[0, 1, 0]
    i = next(i for i, (_, r) in enumerate(log) if r.kind is Kind.INSERTION and r.values)
    offset, record = log[i]
    log[i] = (offset, replace(record, values=(record.values[0] + 1.0,)))


def _an_id_left_out(history: History) -> None:
    log = history.ordered_logs[0, 0, 0]
    i = [i for i, (_, r) in enumerate(log) if r.kind is Kind.INSERTION][3]
    offset, record = log[i]
    log[i] = (offset, replace(record, first_id=record.first_id + 1))


def _a_writer_without_start(history: History) -> None:
    offset, record = history.source_logs["s1"][-1]
    history.source_logs["s1"][-1] = (offset, replace(record, inc=record.inc + 1))


def _a_state_record_of_another(history: History) -> None:
    last = history.committed[-1]
    assert last.state is not None
    wrong = replace(last.state, next_seq=last.state.next_seq + 1)
    history.committed[-1] = last._replace(state=wrong)


def _an_older_placement(history: History) -> None:
    last = history.committed[-1]
    assert last.state is not None
    history.committed[-1] = last._replace(state=replace(last.state, placement=-1))


def _an_earlier_generation_again(history: History) -> None:
    for at, later in ((-2, "root/q.g1.0"), (-1, "root/q.0")):
        committed = history.committed[at]
        assert committed.state is not None
        state = replace(committed.state, fragment=later)
        history.committed[at] = committed._replace(state=state)


@pytest.mark.parametrize(
    ("checker", "doctor"),
    [
        (exact, _one_reading_twice),
        (exact, _a_window_left_out),
        (exact, _lost_although_nothing_was_cut),
        (future, _stable_before_its_end),
        (bounded, _late),
        (bounded, _early),
        (bounded, _for_nothing),
        (bounded, _passed_over_in_time),
        (honest, _not_named),
        (honest, _counted_twice),
        (order, _without_undo),
        (order, _without_rec_done),
        (order, _a_window_left_out),
        (order, _a_row_that_seq_skips),
        (exact, _a_row_below_the_condition),
        (honest, _a_row_below_the_condition),
        (convergent, _never_corrected),
        (convergent, _without_rec_done),
        (convergent, _lines_left_forked),
        (memory, _a_process_that_grows),
        (memory, _an_orderer_that_grows),
        (counted, _a_reading_dropped),
        (counted, _a_reading_sent_twice),
        (logs, _replicas_disagree),
        (logs, _an_id_left_out),
        (logs, _a_writer_without_start),
        (logs, _a_state_record_of_another),
        (logs, _an_older_placement),
        (logs, _an_earlier_generation_again),
    ],
)
def test_a_doctored_history_is_noticed(history: History, checker: Any, doctor: Doctor) -> None:
    doctor(history)
    with pytest.raises(Violation) as raised:
        checker.check(Facts(history))
    assert raised.value.guarantee == checker.__name__.rpartition(".")[2]


@pytest.mark.parametrize(("whose", "is_noticed"), [("q", False), ("r", True)])
def test_a_root_of_another_query_is_no_reason(whose: str, is_noticed: bool) -> None:
    complete = deepcopy(_lived(SHARING))
    start, end = complete.config.start_time_us, complete.ended_at
    complete.outages[:] = [Outage(start, end, f"root/{whose}.0 down")]
    if not is_noticed:
        bounded.check(Facts(complete))
        return
    with pytest.raises(Violation, match="no failure near it"):
        bounded.check(Facts(complete))


def _a_reader_that_grows(history: History) -> None:
    history.samples.append(Sample(history.ended_at, {f"root/{history.config.name}.0": 1 << 30}))


@pytest.mark.parametrize("second", [CHAIN, SHARING], ids=["chain", "sharing"])
@pytest.mark.parametrize(
    ("checker", "doctor"),
    [
        (exact, _one_reading_twice),
        (exact, _a_window_left_out),
        (exact, _lost_although_nothing_was_cut),
        (bounded, _late),
        (bounded, _early),
        (honest, _not_named),
        (honest, _counted_twice),
        (order, _without_undo),
        (convergent, _never_corrected),
        (convergent, _without_rec_done),
        (memory, _a_reader_that_grows),
        (logs, _replicas_disagree),
        (logs, _a_state_record_of_another),
    ],
)
def test_a_doctored_history_of_a_reader_is_noticed(
    checker: Any, doctor: Doctor, second: Chain | Sharing
) -> None:
    complete = deepcopy(_lived(second))
    of_reader = complete.of_reader
    assert of_reader is not None
    doctor(of_reader)
    facts = Facts(complete).reader
    assert facts is not None
    with pytest.raises(Violation) as raised:
        checker.check(facts)
    assert raised.value.guarantee == checker.__name__.rpartition(".")[2]
    with pytest.raises(Violation):
        check(complete)


@cache
def _on_machines() -> History:
    """A run in which q is changed, v is applied and deleted, and a node is killed."""
    faults = (
        Fault(2 * SECOND, "apply"),
        Fault(3 * SECOND, "change"),
        Fault(5 * SECOND, "node-kill", "n1", 4 * SECOND),
        Fault(7 * SECOND, "delete"),
    )
    config = WorldConfig(machines=Machines(), added=Added())
    outcome = run(Plan(1, config, 10 * SECOND, faults))
    assert outcome.violation is None, str(outcome)
    return outcome.history


def _runs_twice(history: History) -> None:
    name, node = history.running[0]
    history.running.append((name, {"n1": "n2"}.get(node, "n1")))


def _runs_elsewhere(history: History) -> None:
    name, node = history.running[0]
    history.running[0] = (name, {"n1": "n2"}.get(node, "n1"))


def _does_not_run(history: History) -> None:
    del history.running[0]


def _is_placed_nowhere(history: History) -> None:
    del history.placed[next(iter(history.placed))]


def _is_not_ready(history: History) -> None:
    history.not_ready.append("q/root.0")


def _of_a_deleted_query_is_left(history: History) -> None:
    history.alive.append(("orderer/v.0.a", "n1"))


def _of_an_earlier_generation_is_left(history: History) -> None:
    history.running.append(("root/q.0", "n1"))


def _is_aggregated_elsewhere(history: History) -> None:
    name, node = next(each for each in history.alive if each[0].startswith("orderer/"))
    history.alive.append((name, {"n1": "n2"}.get(node, "n1")))


def _is_deleted_and_recorded(history: History) -> None:
    history.recorded.append("v")


def _is_applied_and_lost(history: History) -> None:
    history.accepted.append("w")


def _is_changed_and_lost(history: History) -> None:
    history.accepted.append("q.g2")


def _is_registered_for_ever(history: History) -> None:
    history.registered["v"] = "running"


def _is_never_forgotten(history: History) -> None:
    history.tombstones.append("v")


def _starts_over_and_over(history: History) -> None:
    name, node = history.running[0]
    history.notes += [Note(n, name, f"started on {node}") for n in range(100)]


def test_a_query_that_is_deleted_owes_its_answers_until_then() -> None:
    faults = Fault(1 * SECOND, "apply"), Fault(9 * SECOND, "delete")
    config = WorldConfig(
        machines=Machines(),
        added=Added(window_us=200 * MS, slide_us=200 * MS),
        bound_us=300 * MS,
        margin_us=20 * MS,
        pace=0.3,
    )
    outcome = run(Plan(1, config, 10 * SECOND, faults))
    assert outcome.violation is None, str(outcome)
    added = outcome.history.reader
    assert added is not None
    added.committed = [each for each in added.committed if each.at < START_TIME_US + 5 * SECOND]
    with pytest.raises(Violation, match="has no answer") as raised:
        check(outcome.history)
    assert raised.value.guarantee == "bounded"


@pytest.mark.parametrize(
    "doctor",
    [
        _runs_twice,
        _runs_elsewhere,
        _does_not_run,
        _is_placed_nowhere,
        _is_not_ready,
        _of_a_deleted_query_is_left,
        _of_an_earlier_generation_is_left,
        _is_aggregated_elsewhere,
        _is_deleted_and_recorded,
        _is_applied_and_lost,
        _is_changed_and_lost,
        _is_registered_for_ever,
        _is_never_forgotten,
        _starts_over_and_over,
    ],
)
def test_a_placement_that_is_not_carried_out_is_noticed(doctor: Doctor) -> None:
    history = deepcopy(_on_machines())
    placed.check(Facts(history))
    doctor(history)
    with pytest.raises(Violation) as raised:
        placed.check(Facts(history))
    assert raised.value.guarantee == "placed"


def _twice(history: History) -> None:
    history.tenures.append(history.tenures[-1])


def _goes_back(history: History) -> None:
    state = history.committed[-1].state
    assert state is not None
    earlier = replace(state, term=1, copy=0, placement=1)
    history.committed.append(history.committed[-1]._replace(state=earlier))


def _of_unknown_cause(history: History) -> None:
    state = history.committed[-1].state
    assert state is not None
    zombie = replace(state, placement=state.placement - 1)
    history.committed.append(history.committed[-1]._replace(state=zombie))


def _many(history: History) -> None:
    last = history.tenures[-1]
    for term in range(last.state.term + 1, last.state.term + 20):
        history.tenures.append(last._replace(state=replace(last.state, term=term)))


@pytest.mark.parametrize("doctor", [_twice, _goes_back, _of_unknown_cause, _many])
def test_two_copies_that_answer_at_once_are_noticed(doctor: Doctor) -> None:
    """Copy b takes over after the death of a, which follows from its restart on."""
    config = WorldConfig(copies=2, window_us=300 * MS, slide_us=300 * MS)
    kill = Fault(2_200 * MS, "kill", "root/q.0.a")
    outcome = run(Plan(3, config, 3 * SECOND, (kill,)))
    assert outcome.violation is None, str(outcome)
    assert [begun.state.copy for begun in outcome.history.tenures] == [0, 1]
    doctor(outcome.history)
    with pytest.raises(Violation):
        tenures.check(Facts(outcome.history))


def _without_a_pane(history: History) -> None:
    installed = history.installed[-1]
    history.installed[-1] = installed._replace(panes=dict([*installed.panes.items()][1:]))


def _another_pane(history: History) -> None:
    installed = history.installed[-1]
    panes = {at: pane[:-1] + bytes([pane[-1] ^ 1]) for at, pane in installed.panes.items()}
    history.installed[-1] = installed._replace(panes=panes)


def _a_pane_too_many(history: History) -> None:
    installed = history.installed[-1]
    twice = {(child, start - SECOND): pane for (child, start), pane in installed.panes.items()}
    history.installed[-1] = installed._replace(panes=installed.panes | twice)


@pytest.mark.parametrize("doctor", [_without_a_pane, _another_pane, _a_pane_too_many])
def test_panes_that_are_not_those_of_the_logs_are_noticed(doctor: Doctor) -> None:
    config = WorldConfig(window_us=SECOND, slide_us=200 * MS, head_us=100)
    kill = Fault(3_200 * MS, "kill", "root/q.0")
    outcome = run(Plan(3, config, 4 * SECOND, (kill,)))
    assert outcome.violation is None, str(outcome)
    assert outcome.history.installed
    doctor(outcome.history)
    with pytest.raises(Violation, match="moved"):
        check(outcome.history)


def _another_merged_pane(history: History) -> None:
    records = history.merged[0].records
    at = next(n for n, of in enumerate(records) if of.pane.ref.rows)
    pane = records[at].pane
    other = replace(pane.columns, figures=pane.columns.figures + 1.0)
    records[at:] = [replace(records[at], pane=replace(pane, columns=other))]


def _a_merged_pane_without_rows(history: History) -> None:
    records = history.merged[0].records
    at = next(n for n, of in enumerate(records) if of.pane.ref.rows)
    pane = records[at].pane
    empty = replace(pane, ref=pane.ref._replace(rows=0, pieces=0))
    records[at:] = [replace(records[at], pane=empty)]


def _a_merged_pane_of_other_windows(history: History) -> None:
    records = history.merged[0].records
    records[-1] = replace(records[-1], end=records[-1].end + 1)


@pytest.mark.parametrize(
    "doctor", [_another_merged_pane, _a_merged_pane_without_rows, _a_merged_pane_of_other_windows]
)
def test_merged_panes_that_are_not_those_of_the_deltas_are_noticed(doctor: Doctor) -> None:
    config = WorldConfig(window_us=SECOND, slide_us=200 * MS, mergers=2)
    outcome = run(Plan(3, config, 3 * SECOND, ()))
    assert outcome.violation is None, str(outcome)
    assert outcome.history.merged
    doctor(outcome.history)
    with pytest.raises(Violation, match="merged"):
        check(outcome.history)


def _without_a_linked_pane(history: History) -> None:
    records = history.linked[0].at_centre
    middle = records[len(records) // 2].start
    records[:] = [of for of in records if of.start != middle]


def _another_linked_pane(history: History) -> None:
    records = history.linked[0].at_centre
    at = next(n for n, of in enumerate(records) if of.pane.ref.rows)
    columns = records[at].pane.columns
    pane = replace(records[at].pane, columns=replace(columns, figures=columns.figures + 1.0))
    records[at] = replace(records[at], pane=pane)


def _keys_that_were_never_sent(history: History) -> None:
    records = history.linked[0].at_centre
    at = next(n for n, of in enumerate(records) if of.keys_hash)
    records[at] = replace(records[at], keys_hash=records[at].keys_hash + 1)


@pytest.mark.parametrize(
    "doctor", [_without_a_linked_pane, _another_linked_pane, _keys_that_were_never_sent]
)
def test_panes_at_the_centre_that_are_not_those_of_the_site_are_noticed(doctor: Doctor) -> None:
    config = WorldConfig(
        window_us=400 * MS, slide_us=200 * MS, mergers=2, sites=True,
        sharing=Sharing(400 * MS, 200 * MS),
    )  # fmt: skip
    cut = Fault(1_000 * MS, "unlink", "", 700 * MS)
    outcome = run(Plan(3, config, 3 * SECOND, (cut,)))
    assert outcome.violation is None, str(outcome)
    assert outcome.history.linked
    doctor(outcome.history)
    with pytest.raises(Violation, match="linked"):
        check(outcome.history)
