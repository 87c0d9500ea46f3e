"""A delivery's session on models of Kafka and of its host, in steps that a seed chooses.

The consumers read the three topics of each part at different speeds. Now and then the evaluator is
killed: before its transaction, after it, or while it is in flight; or it goes on beside its
successor, as a paused process does. Retention may delete results while it is dead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from random import Random
from typing import Any

import orjson
from tests.simulator.alerting.plans import AlertPlan
from tests.simulator.alerting.results import QUERY, ResultTopics, transactions

from slackwater.delivery.records import AlertRecord, DeliveryPosition, decode_delivery
from slackwater.delivery.rules import AlertRules, alert_rules
from slackwater.deployment.parse import parse_deployment
from slackwater.model.deployment import Deployment
from slackwater.model.names import RESULT_KINDS, UNPREFIXED, ResultKind
from slackwater.primitives.windows import Grid
from slackwater.sessions.delivery import DeliveryConfig, DeliverySession
from slackwater.sessions.effects import CommitRecords, Effect, Fail, FetchEnds, FetchPositions
from slackwater.sessions.events import (
    CommitFailed,
    CommitSucceeded,
    EndsFetched,
    LiveAt,
    PassedBy,
    PositionsFetched,
    Received,
    Replayed,
    ReplayedTo,
)
from slackwater.sessions.requests import Beginnings, Log, OpenTransactions, ReadLatest

STEP_US = 5_000
STEPS_MAX = 5_000
STEPS_AFTER = 30
"""Steps after the last result in which the evaluator may die; then time passes faster."""
_FILE = """
apiVersion: slackwater/v1
streams:
  s1: {key: {column: k}, time: {column: t0, unit: us}, fields: [t, h]}
  s2: {key: {column: k}, time: {column: t0, unit: us}, fields: [t, h]}
queries:
  q: {from: [s1, s2], window: {size: 1s}, aggregate: {t: [count, avg], h: [max]}, bound: 2s}
  rows: {from: [s1, s2], select: {t_avg: t, h_max: h}, bound: 2s}
"""


@dataclass(frozen=True, slots=True)
class AlertHistory:
    """What a run has left: results by part in the order of ``seq``, and the committed records.

    ``deleted``: by part, the seqs that retention had deleted before they were evaluated.
    """

    plan: AlertPlan
    results: Mapping[int, list[bytes]]
    records: tuple[AlertRecord | DeliveryPosition, ...]
    values: tuple[bytes, ...]
    deleted: Mapping[int, frozenset[int]]
    deaths: int


@dataclass(slots=True)
class _Life:
    """A session, its fence, and the positions of its consumers."""

    session: DeliverySession
    epoch: int
    live: dict[Log, int] = field(default_factory=dict)
    commit: CommitRecords | None = None
    is_over: bool = False


@cache
def _deployment() -> Deployment:
    return parse_deployment(_FILE, "q.yaml").deployment


def rules_of(plan: AlertPlan) -> AlertRules:
    """Compile the rules of a plan."""
    deployment = _deployment()
    query = deployment.queries["q" if plan.has_window else "rows"]
    return alert_rules(deployment, replace(query, alerts=plan.rules), QUERY)


class AlertWorld:
    """One run of a plan."""

    def __init__(self, plan: AlertPlan) -> None:
        self.plan = plan
        self._of = Random(f"{plan.seed}/world")
        self._rules = rules_of(plan)
        self._topics = ResultTopics(
            {(kind, part): [] for kind in RESULT_KINDS for part in range(plan.parts)},
            {(kind, part): 0 for kind in RESULT_KINDS for part in range(plan.parts)},
        )
        self._pending = {part: [*transactions(plan, part)] for part in range(plan.parts)}
        self._results: dict[int, list[bytes]] = {part: [] for part in range(plan.parts)}
        self._alerts: list[tuple[bytes, bytes]] = []
        self._epoch = 0
        self._now = STEP_US
        self._life: _Life | None = None
        self._zombie: _Life | None = None
        self._is_cut = False
        self._deleted: dict[int, frozenset[int]] = {}
        self.deaths = 0

    def run(self) -> AlertHistory:
        """Run until all results are evaluated and committed."""
        steps_after = 0
        for step in range(STEPS_MAX):
            self._now += STEP_US
            self._root_writes(step)
            if self.plan.cut_at is not None and step >= self.plan.cut_at and not self._is_cut:
                self._end_life()
                self._cut()
            if self._life is None:
                self._begin()
            assert self._life is not None
            self._step(self._life)
            if self._zombie is not None and self._of.random() < 0.2:
                self._step(self._zombie)
            if any(self._pending.values()):
                steps_after = 0
            elif (steps_after := steps_after + 1) > STEPS_AFTER:
                self._now += 1_000_000
            if self._of.random() < self.plan.deaths and steps_after < STEPS_AFTER:
                self._end_life()
            if self._is_done:
                break
        else:
            raise AssertionError("the evaluator does not come to an end")
        values = tuple(value for _, value in self._alerts)
        records = tuple(decode_delivery(value) for value in values)
        return AlertHistory(self.plan, self._results, records, values, self._deleted, self.deaths)

    @property
    def _is_done(self) -> bool:
        life = self._life
        if any(self._pending.values()) or life is None or life.commit is not None:
            return False
        position = self._position()
        return position is not None and all(
            self._end(part) <= position.part(part).next_seq for part in range(self.plan.parts)
        )

    def _end(self, part: int) -> int:
        """Return the seq after the last result that can be read."""
        deleted, results = self._deleted.get(part, frozenset()), self._results[part]
        return max((seq + 1 for seq in range(len(results)) if seq not in deleted), default=0)

    def _position(self) -> DeliveryPosition | None:
        found = (
            decode_delivery(value) for key, value in reversed(self._alerts) if key == b"position"
        )
        position = next(found, None)
        assert position is None or isinstance(position, DeliveryPosition)
        return position

    # The query.

    def _root_writes(self, step: int) -> None:
        for part, pending in self._pending.items():
            while pending and pending[0][0] <= step // 3:
                _, lines = pending.pop(0)
                kinds: dict[ResultKind, None] = {}
                for kind, value in lines:
                    if self._of.random() < 0.05:
                        self._topics.logs[kind, part].append(None)  # of an aborted transaction
                    self._topics.logs[kind, part].append(value)
                    self._results[part].append(value)
                    kinds[kind] = None
                for kind in kinds:
                    self._topics.logs[kind, part].append(None)  # the marker

    def _cut(self) -> None:
        """Delete some of what is there: in each topic up to a place of its own."""
        self._is_cut = True
        position = self._position()
        for (kind, part), log in self._topics.logs.items():
            before = self._of.randint(0, len(log))
            self._topics.begins[kind, part] = before
            at = 0 if position is None else position.part(part).next_seq
            seqs = {_seq(value) for value in log[:before] if value is not None}
            unread = {seq for seq in seqs if seq >= at}
            self._deleted[part] = self._deleted.get(part, frozenset()) | unread

    # Lives of the evaluator.

    def _end_life(self) -> None:
        life, self._life = self._life, None
        if life is None:
            return
        self.deaths += 1
        if life.commit is not None and self._of.random() < 0.5:
            self._apply(life)  # the transaction was committed, and nobody has seen it
        if self._zombie is None and self._of.random() < self.plan.zombies:
            self._zombie = life
            return
        life.is_over = True

    def _begin(self) -> None:
        config = DeliveryConfig(
            "delivery/q", QUERY, self.plan.parts, self._rules,
            Grid(self.plan.window.slide_us, self.plan.window).later, UNPREFIXED, self._epoch,
        )  # fmt: skip
        session = DeliverySession(config)
        life = self._life = _Life(session, -1)
        self._carry_out(life, self._started(life))
        offsets = session.live_offsets
        for log, offset in offsets.items():
            life.live[log] = offset
            later = len(self._log(log))
            if self._of.random() < self.plan.joins_later and later > offset:
                life.live[log] = self._of.randint(offset, later)
                session.take(LiveAt(log, life.live[log]))

    def _started(self, life: _Life) -> list[Effect]:
        procedure = life.session.start()
        answer: Any = None
        while True:
            try:
                request = procedure.send(answer)
            except StopIteration as ended:
                return [*ended.value]
            match request:
                case OpenTransactions():
                    self._epoch += 1
                    life.epoch, answer = self._epoch, None
                case ReadLatest():
                    answer = dict(self._alerts)
                case Beginnings(logs):
                    answer = {log: self._topics.begins[self._place(log)] for log in logs}
                case _:
                    raise AssertionError(f"unexpected request {request}")

    def _place(self, log: Log) -> tuple[ResultKind, int]:
        topic, part = log
        kind = next(k for k in RESULT_KINDS if UNPREFIXED.results(QUERY, k) == topic)
        return kind, part

    def _log(self, log: Log) -> list[bytes | None]:
        return self._topics.logs[self._place(log)]

    # Steps.

    def _step(self, life: _Life) -> None:
        session = life.session
        for log in session.inputs:
            if self._of.random() < 0.5:
                self._read_live(life, log, self._of.randint(0, 6))
        for (line, log), offset in session.wanted().items():
            to = min(offset + self._of.randint(1, 6), len(self._log(log)))
            for at in range(offset, to):
                value = self._log(log)[at]
                if value is not None:
                    session.take(Replayed(line, log, at, value))
            session.take(ReplayedTo(line, log, to))
        if life.commit is not None and self._of.random() < 0.6:
            self._finish(life)
        self._carry_out(life, session.step(self._now))

    def _read_live(self, life: _Life, log: Log, records: int) -> None:
        values = self._log(log)
        for at in range(life.live[log], min(life.live[log] + records, len(values))):
            value = values[at]
            life.live[log] = at + 1
            if value is None:
                continue
            if life.session.needs(log, at):
                life.session.take(Received(log, at, value))
            else:
                life.session.take(PassedBy(log, at))

    def _carry_out(self, life: _Life, effects: list[Effect] | Any) -> None:
        for effect in effects:
            match effect:
                case CommitRecords():
                    assert life.commit is None, "one transaction at a time"
                    life.commit = effect
                case FetchEnds(logs):
                    ends = {log: len(self._log(log)) for log in logs}
                    life.session.take(EndsFetched(ends, self._now))
                case FetchPositions(logs):
                    at = {log: life.live[log] for log in logs}
                    life.session.take(PositionsFetched(at))
                case Fail():
                    life.is_over = True
                    if life is self._zombie:
                        self._zombie = None
                    elif life is self._life:
                        self._life = None

    def _finish(self, life: _Life) -> None:
        """Answer the commit in flight: it is refused if a later copy has fenced this one."""
        if life.epoch != self._epoch or self._of.random() < 0.02:
            life.commit = None
            life.session.take(CommitFailed("fenced"))
            return
        self._apply(life)
        life.session.take(CommitSucceeded(self._now))

    def _apply(self, life: _Life) -> None:
        assert life.commit is not None
        if life.epoch == self._epoch:
            self._alerts += life.commit.records
        life.commit = None


def _seq(value: bytes) -> int:
    return int(orjson.loads(value)["seq"])
