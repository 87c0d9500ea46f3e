"""Rules that change, conditions with NULL, and streams that are missing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from slackwater.codec.results import format_time
from slackwater.delivery.batches import DeliveryBatch, PartPosition
from slackwater.delivery.evaluation import AlertEvaluator
from slackwater.delivery.records import AlertRecord, DeliveryRecord, decode_delivery
from slackwater.delivery.rules import AlertRules, alert_rules
from slackwater.deployment.parse import parse_deployment
from slackwater.model.alerts import AlertSpec
from slackwater.model.deployment import WindowSpec
from slackwater.model.errors import MalformedRecordError
from slackwater.primitives.windows import Grid

S = 1_000_000
GRID = Grid(S, WindowSpec(S, S))
FILE = """
apiVersion: slackwater/v1
streams:
  s1: {key: {column: k}, time: {column: at, unit: us}, fields: [t]}
queries:
  q: {from: [s1], window: {size: 1s}, aggregate: [count, avg], bound: 2s}
"""
HOT = AlertSpec("hot", when="t_avg > 26")


def rules(*specs: AlertSpec) -> AlertRules:
    deployment = parse_deployment(FILE, "q.yaml").deployment
    query = replace(deployment.queries["q"], alerts=specs)
    return alert_rules(deployment, query, "q")


def window(
    at: int, rows: dict[str, Any], label: str = "stable", missing: Iterable[str] = ()
) -> DeliveryBatch:
    times = {"window_start": format_time(at * S), "window_end": format_time((at + 1) * S)}
    common = {**times, "missing": [*missing]}
    records = [
        {"kind": label, "key": key, "fields": {"t": {"avg": value}}, **common}
        for key, value in rows.items()
    ]
    due = format_time((at + 1) * S)
    of = {"label": label, "windows": 1, "keys": len(rows), "due_at": due, "emitted_at": due}
    boundary = {"kind": "boundary", **of, **common}
    return DeliveryBatch(0, (*records, boundary), PartPosition(at + 1))


def stored(evaluator: AlertEvaluator, records: Iterable[AlertRecord]) -> list[DeliveryRecord]:
    """Return what the compacted topic has, as read again."""
    last = {record.log_key: record.encode() for record in records}
    position = evaluator.position(1).encode()
    return [decode_delivery(value) for value in (*last.values(), position)]


def test_a_null_and_an_absent_row_change_nothing() -> None:
    evaluator = AlertEvaluator(rules(replace(HOT, windows=2)), GRID.later)
    states: list[str] = []
    values: list[dict[str, Any]]
    values = [{"a": 30.0}, {"a": None}, {}, {"a": 27.0}, {"a": None}, {"a": 1.0}]
    for at, rows in enumerate(values):
        states += [record.state for record in evaluator.take(window(at, rows))]
    assert states == ["pending", "firing", "ended"]


def test_a_condition_that_does_not_hold_is_remembered_of_no_key() -> None:
    evaluator = AlertEvaluator(rules(HOT), GRID.later)
    assert not evaluator.take(window(0, {f"k{i}": 20.0 for i in range(1_000)}))
    assert evaluator.known == 0


@pytest.mark.parametrize(
    ("later", "reason"),
    [((replace(HOT, when="t_avg > 27"),), "rule changed"), ((), "rule removed")],
)
def test_alerts_of_a_rule_that_is_no_longer_end_once(
    later: tuple[AlertSpec, ...], reason: str
) -> None:
    evaluator = AlertEvaluator(rules(HOT), GRID.later)
    records = evaluator.take(window(0, {"a": 30.0}))
    changed = AlertEvaluator(rules(*later), GRID.later, stored(evaluator, records))
    (ended,) = changed.begin()
    assert (ended.state, ended.reason, ended.id) == ("ended", reason, records[0].id)
    again = AlertEvaluator(rules(*later), GRID.later, stored(changed, [*records, ended]))
    assert again.begin() == []


def test_a_rule_that_is_as_it_was_goes_on() -> None:
    evaluator = AlertEvaluator(rules(HOT), GRID.later)
    records = evaluator.take(window(0, {"a": 30.0}))
    again = AlertEvaluator(rules(HOT), GRID.later, stored(evaluator, records))
    assert again.begin() == []
    assert again.take(window(1, {"a": 30.0})) == []
    assert [record.state for record in again.take(window(2, {"a": 1.0}))] == ["ended"]


def test_a_stream_is_missing_for_as_long_as_windows_lack_it() -> None:
    silent = AlertSpec("silent", stream="s1", missing_us=3 * S)
    evaluator = AlertEvaluator(rules(silent), GRID.later)
    found = evaluator.take(window(0, {}))
    for at in range(1, 6):
        found += evaluator.take(window(at, {}, "tentative", ["s1"]))
    (fired,) = found
    assert (fired.began.window_start, fired.changed_to) == (S, 4 * S), "since 1 s, for 3 s"
    found = evaluator.take(window(1, {}))
    assert found == [], "a correction is no sign that it is back"
    assert [r.state for r in evaluator.take(window(6, {}))] == ["ended"]


@pytest.mark.parametrize("value", [b"", b"[]", b'{"kind": "alert"}', b'{"kind": "position"}'])
def test_bytes_that_are_no_record_are_an_error(value: bytes) -> None:
    with pytest.raises(MalformedRecordError):
        decode_delivery(value, "sw.alerts.q:0:7")
