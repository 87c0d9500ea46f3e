"""Mutants of alerts, their delivery, and what the gateway sends its readers.

Each is detected by a plan of ``alerting``, or by a unit test.
"""

from __future__ import annotations

from typing import Final

from tests.simulator.mutation import Edit, Mutant

_cutter = "slackwater.delivery.batches:BatchCutter"
_evaluator = "slackwater.delivery.evaluation:AlertEvaluator"
_feed = "tests.unit.gateway.test_feed"
_gateway = "slackwater.gateway"
_progress = "slackwater.delivery.progress:KeyProgress"
_ends = "slackwater.registration.alert_ends:AlertEnds"
_session = "slackwater.sessions.delivery:DeliverySession"
_reads = "stored = [*self._decoded((yield ReadLatest(self._log)))]"
_seeds = "tests.simulator.alerting.test_alerting:check_seeds"

ALERT_MUTANTS: Final = (
    Mutant(
        "a batch ends inside an UNDO",
        "decision-219",
        (Edit(f"{_cutter}.offer", "self._rows or self._undone_to is not None", "self._rows"),),
        _seeds,
        (0, 10),
    ),
    Mutant(
        "a position is that before its batch",
        "decision-219",
        (
            Edit(
                f"{_cutter}._cut",
                "PartPosition(self._next_seq, dict(self._offsets))",
                'PartPosition(self._records[0]["seq"])',
            ),
        ),
        _seeds,
        (0, 20),
    ),
    Mutant(
        "alerts are committed without their position",
        "decision-219",
        (
            Edit(
                f"{_session}._committed",
                "(*records, (POSITION_KEY, position.encode()))",
                "(*records,) or ((POSITION_KEY, position.encode()),)",
            ),
        ),
        _seeds,
        (0, 20),
    ),
    Mutant(
        "an alert fires again when it is evaluated again",
        "decision-219",
        (
            Edit(
                f"{_session}.start",
                "config.later, stored)",
                "config.later, [r for r in stored if isinstance(r, DeliveryPosition)])",
            ),
        ),
        _seeds,
        (0, 20),
    ),
    Mutant(
        "the end of a log is read before the fence",
        "decision-219",
        (
            Edit(
                f"{_session}.start",
                f"yield OpenTransactions()\n    {_reads}",
                f"{_reads}\n    yield OpenTransactions()",
            ),
        ),
        "tests.unit.sessions.test_delivery:test_it_fences_before_it_reads_where_to_go_on",
    ),
    Mutant(
        "a tentative alert is not withdrawn",
        "decision-219",
        (
            Edit(
                f"{_progress}.judged",
                "tentative is None or",
                "tentative is None or self.firing is None or",
            ),
        ),
        _seeds,
        (0, 10),
    ),
    Mutant(
        "a tentative row ends an alert",
        "decision-219",
        (
            Edit(
                f"{_progress}.tentative_row",
                "replace(self, live_run=run)",
                "replace(self, live_run=run, tentative=self.tentative if is_true else None)",
            ),
        ),
        _seeds,
        (0, 20),
    ),
    Mutant(
        "a live count outlives its failure",
        "decision-219",
        (
            Edit(
                "slackwater.delivery.evaluation:_restored",
                "if fork != position.forks.get(part, (None,))[0]:",
                "if False:",
            ),
        ),
        _seeds,
        (64, 65),
    ),
    Mutant(
        "a NULL ends an alert",
        "decision-219",
        (
            Edit(
                f"{_evaluator}._rows",
                "(true | false).nonzero()[0].tolist()",
                "range(len(window.rows))",
            ),
        ),
        _seeds,
        (0, 10),
    ),
    Mutant(
        "the alerts of a deleted query are read before the fence",
        "decision-241",
        (
            Edit(
                f"{_ends}._end",
                "fence = self._take(names.delivery_id(query))\n    stored = self._stored(log)",
                "stored = self._stored(log)\n    fence = self._take(names.delivery_id(query))",
            ),
        ),
        "tests.unit.registration.test_alert_ends:"
        "test_what_the_delivery_has_committed_before_the_fence_ends_too",
    ),
    Mutant(
        "what has been ended is not known after a restart",
        "decision-241",
        (Edit(f"{_ends}._end", "if _has_no_rules(self._stored(log)):", "if False:"),),
        "tests.unit.registration.test_alert_ends:test_what_stands_ends_once",
    ),
    Mutant(
        "a query without rules forgets that it had some",
        "decision-241",
        (
            Edit(
                "slackwater.control.generations:as_generation",
                "not declared.alerts and _has_alerts(query, recorded)",
                "False",
            ),
        ),
        "tests.unit.control.test_generations:"
        "test_a_generation_without_rules_ends_the_alerts_of_the_earlier_one",
    ),
    Mutant(
        "an outbox has no bound",
        "decision-207",
        (Edit(f"{_gateway}.outbox:Outbox.offer", "self._frames_max or (", "1e9 and ("),),
        f"{_feed}:test_a_reader_that_is_too_slow_is_lagged_and_costs_nobody_anything",
    ),
    Mutant(
        "a snapshot is older than its id",
        "decision-207",
        (
            Edit(
                f"{_gateway}.ring:Ring.snapshot",
                "return list(islice(self._events, len(self._events) - count, None))",
                "last = list(self._events)\n"
                "    return [a.at(b.id) for a, b in zip(last, last[1:])]",
            ),
        ),
        f"{_feed}:test_each_reader_gets_every_change_in_order_and_once_or_a_snapshot",
    ),
    Mutant(
        "a reader goes on behind changes that are gone",
        "decision-207",
        (
            Edit(
                f"{_gateway}.ring:Ring.after",
                "if any(positions.get(part, -1) < gone for part, gone in self._gone.items()):",
                "if False:",
            ),
        ),
        f"{_feed}:test_each_reader_gets_every_change_in_order_and_once_or_a_snapshot",
    ),
)
