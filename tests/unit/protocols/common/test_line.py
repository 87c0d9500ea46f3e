"""The decisions of a stage under the six policies of DPC, section 6.1.

Units are of 100 ms; the bound leaves 1 s after their normal time. Times are ms here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.model.deployment import FailurePolicy, StabilizationPolicy
from slackwater.protocols.common.line import (
    AnswerTentatively,
    Line,
    Policy,
    ReadToEnd,
    Schedule,
    Wait,
)
from slackwater.protocols.common.states import LineState

UNIT = 100
WITHIN = 1_000
FAILURE: tuple[FailurePolicy, ...] = ("process", "delay")
STABILIZATION: tuple[StabilizationPolicy, ...] = ("process", "delay", "suspend")
POLICIES = [Policy(*pair) for pair in product(FAILURE, STABILIZATION)]


class Buckets:
    """Adjacent units."""

    def end(self, start: int) -> int:
        return start + UNIT

    def following(self, start: int) -> int:
        return start + UNIT

    def news_from(self, start: int) -> int:
        return start


@dataclass
class Stage:
    """A line over two inputs, driven as by the cores, with its outputs and their times."""

    policy: Policy = field(default_factory=Policy)
    live: list[int] = field(default_factory=lambda: [0, 0])
    stable_to: int = 0
    now: int = 0
    tentative: set[int] = field(default_factory=set)
    excused: set[int] = field(default_factory=set)
    latency: int = 0

    def __post_init__(self) -> None:
        self.line = Line(2, Buckets(), Schedule(lambda e: e, WITHIN), 0, 0, self.policy)
        self.emitted: list[tuple[int, int, str]] = []
        self.states: list[LineState] = []

    def state(self) -> LineState:
        """The state of the output."""
        return self.line.state

    def look(self) -> None:
        """Do all due work."""
        while self._stable() or self._live():
            pass
        if not self.states or self.states[-1] is not self.line.state:
            self.states.append(self.line.state)

    def _stable(self) -> bool:
        if not self.line.stable_ready(self.stable_to):
            return False
        self.line.try_join(self.now, self.stable_to, attached=self.stable_to >= min(self.live))
        self.emitted.append((self.now, self.line.stable_next, "stable"))
        self.line.stable_answered(self.line.stable_next + UNIT)
        return True

    def _live(self) -> bool:
        verdict = self.line.judge(
            self.now, self.live, tentative=lambda i: i in self.tentative, excused=self.excused
        )
        match verdict:
            case Wait():
                return False
            case ReadToEnd(inputs):
                for i in inputs:
                    self.line.note_read(i, self.now)
            case AnswerTentatively():
                self.emitted.append((self.now, self.line.live_next, "tentative"))
                self.line.live_answered()
        return True

    def run(self, to: int, *, healthy: Sequence[int] = (0, 1), stable_step: int = 0) -> None:
        """Let time pass; healthy inputs follow it, the stable line one step further."""
        while self.now < to:
            self.now += 10
            for i in healthy:
                self.live[i] = max(self.live[i], self.now - self.latency)
            complete = min(self.live)
            self.stable_to = (
                min(self.stable_to + stable_step, complete) if stable_step else complete
            )
            self.look()

    def waits(self, kind: str, since: int = 0) -> list[int]:
        """Return the delay of each unit's answers with this label after its normal time."""
        return [
            at - start - UNIT for at, start, what in self.emitted if what == kind and at > since
        ]


def failed_and_healed(policy: Policy, *, slowly: bool) -> Stage:
    """Input 1 is silent from 1,000 to 4,000; then the stable line catches up."""
    stage = Stage(policy)
    stage.run(1_000)
    stage.run(4_000, healthy=[0])
    stage.live[1] = stage.now
    stage.run(12_000, stable_step=20 if slowly else 0)
    return stage


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_the_first_detection_uses_the_whole_bound_under_every_policy(policy: Policy) -> None:
    stage = failed_and_healed(policy, slowly=True)
    first = next((at, start) for at, start, what in stage.emitted if what == "tentative")
    assert first == (2_100, 1_000)


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_failure_delay_waits_for_each_deadline_and_process_for_the_first_only(
    policy: Policy,
) -> None:
    stage = failed_and_healed(policy, slowly=True)
    waits = [at - start - UNIT for at, start, what in stage.emitted if what == "tentative"
             and 2_100 < at <= 4_000 and start >= 2_100]  # fmt: skip
    assert set(waits) == ({WITHIN} if policy.failure == "delay" else {0})


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_stabilization_process_answers_at_once_delay_at_the_deadline_suspend_never(
    policy: Policy,
) -> None:
    stage = failed_and_healed(policy, slowly=True)
    waits = [
        at - start - UNIT
        for at, start, what in stage.emitted
        if what == "tentative" and start >= 4_000
    ]
    allowed = {"process": {0}, "delay": {WITHIN}, "suspend": set()}[policy.stabilization]
    assert set(waits) == allowed
    assert stage.states == [
        LineState.STABLE,
        LineState.UP_FAILURE,
        LineState.STABILIZATION,
        LineState.STABLE,
    ]


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_an_input_whose_latency_is_longer_than_a_unit_is_failed_no_more_in_time(
    policy: Policy,
) -> None:
    """It never reaches the start of the due unit, but it meets its deadlines."""
    stage = Stage(policy, latency=5 * UNIT)
    stage.run(1_000)
    stage.run(4_000, healthy=[0])
    stage.run(6_000)
    assert stage.state() is LineState.STABLE
    stage.run(12_000)
    assert not [at for at, _, what in stage.emitted if what == "tentative" and at > 6_000]


def test_an_input_that_is_later_than_its_deadlines_stays_failed() -> None:
    stage = Stage(latency=WITHIN + 3 * UNIT)
    stage.run(6_000)
    assert stage.state() is LineState.UP_FAILURE
    assert set(stage.waits("tentative", since=1_500)) == {0}, "one futile wait suffices"


@pytest.mark.parametrize(
    ("now", "stable_to", "attached", "joins"),
    [
        (500 + UNIT + WITHIN - 1, 600, True, True),
        (500 + UNIT + WITHIN, 600, True, False),  # it is too late to be one
        (900, 599, True, False),
        (900, 600, False, False),
    ],
)
def test_rule_18_lines_join_where_they_meet_in_time_with_every_cursor_attached(
    now: int, stable_to: int, attached: bool, joins: bool
) -> None:
    line = Line(2, Buckets(), Schedule(lambda e: e, WITHIN), stable_next=400, live_next=500)
    assert line.forked
    assert not line.try_join(now, stable_to, attached=attached), "they have not met"
    line.stable_answered(500)
    assert line.try_join(now, stable_to, attached=attached) is joins
    assert line.forked is not joins


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_every_unit_becomes_stable_once_and_in_order(policy: Policy) -> None:
    stage = failed_and_healed(policy, slowly=True)
    assert [s for _, s, what in stage.emitted if what == "stable"] == list(range(0, 12_000, UNIT))
    reported = [s for _, s, what in stage.emitted if what == "tentative"]
    assert reported == sorted(set(reported))


def test_delaying_saves_tentative_units_and_suspending_most() -> None:
    """Figure 13: Process & Process has most, Delay & Delay fewer, Suspend none after healing."""
    count = {
        policy: len(failed_and_healed(policy, slowly=False).waits("tentative"))
        for policy in POLICIES
    }
    assert count[Policy("delay", "delay")] < count[Policy("process", "process")]
    assert count[Policy("process", "suspend")] <= count[Policy("process", "delay")]


def test_suspended_an_input_that_fails_again_is_noticed_at_its_deadline() -> None:
    stage = Stage(Policy("process", "suspend"))
    stage.run(1_000)
    stage.run(4_000, healthy=[0])
    stage.live[1] = stage.now
    stage.run(5_000, stable_step=1)
    before = len(stage.emitted)
    assert stage.state() is LineState.STABILIZATION

    stage.run(5_990, healthy=[0], stable_step=1)
    suspended = [what for _, _, what in stage.emitted[before:]]
    stage.run(7_000, healthy=[0], stable_step=1)

    assert "tentative" not in suspended
    assert stage.state() is LineState.UP_FAILURE
    assert next(at for at, _, what in stage.emitted[before:] if what == "tentative") == 6_100


def test_a_source_that_is_still_silent_is_no_reason_to_answer_what_is_whole() -> None:
    """Not read since the deadline: the cause may be the reader itself (trace-11)."""
    stage = Stage(Policy("process", "suspend"))
    stage.run(1_000)
    stage.run(4_000, healthy=[0])
    stage.live[1] = stage.now
    stage.run(4_100, stable_step=1)
    verdict = stage.line.judge(9_000, stage.live)
    assert verdict == ReadToEnd((0, 1))


def test_an_input_that_holds_back_is_not_missed() -> None:
    """For the root: a child in STABILIZATION under suspend emits nothing, and has not failed."""
    stage = Stage(Policy("process", "suspend"))
    stage.run(1_000)
    stage.run(4_000, healthy=[0])
    stage.excused = {1}
    stage.run(6_000, healthy=[0])
    assert stage.waits("tentative", since=4_000) == []
    assert stage.state() is LineState.STABILIZATION
    stage.excused = set()
    stage.run(6_010, healthy=[0])
    assert stage.waits("tentative", since=6_000), "it is no longer excused"
    assert stage.state() is LineState.UP_FAILURE


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_tentative_input_is_passed_on_at_once(policy: Policy) -> None:
    """trace-13: it was delayed where it became tentative."""
    stage = Stage(policy)
    stage.run(1_000)
    stage.tentative = {1}
    while stage.now < 3_000:
        stage.now += 10
        stage.live = [stage.now, stage.now]
        stage.look()
    assert set(stage.waits("tentative")) == {0}
    assert stage.state() is LineState.UP_FAILURE


@st.composite
def failures(draw: st.DrawFn) -> list[tuple[int, set[int]]]:
    """(duration, silent input), one after the other."""
    spans = st.tuples(st.integers(1, 300).map(lambda n: 10 * n), st.sets(st.integers(0, 1)))
    return draw(st.lists(spans, max_size=6))


@given(
    st.sampled_from(FAILURE),
    st.sampled_from(STABILIZATION),
    failures(),
    st.sampled_from([0, 12, 30]),
    st.sampled_from([0, 350]),
)
def test_whatever_fails_when(
    failure: FailurePolicy,
    stabilization: StabilizationPolicy,
    spans: Iterable[tuple[int, set[int]]],
    stable_step: int,
    latency: int,
) -> None:
    """Answers in order, never early; in time unless suspended; all are stable in the end."""
    stage = Stage(Policy(failure, stabilization), latency=latency)
    for length, silent in spans:
        healthy = [i for i in (0, 1) if i not in silent]
        stage.run(stage.now + length, healthy=healthy, stable_step=stable_step)
    stage.run((stage.now // UNIT + 20) * UNIT)

    tentative = [start for _, start, what in stage.emitted if what == "tentative"]
    stable = [start for _, start, what in stage.emitted if what == "stable"]
    first: dict[int, int] = {}
    for at, start, _what in stage.emitted:
        first.setdefault(start, at)
    assert tentative == sorted(set(tentative))
    assert stable == list(range(0, (stage.now - latency) // UNIT * UNIT, UNIT))
    assert all(wait >= 0 for wait in stage.waits("tentative")), "trace-36"
    if stabilization != "suspend":
        assert max(at - start - UNIT for start, at in first.items()) <= WITHIN
    assert stage.state() is LineState.STABLE
