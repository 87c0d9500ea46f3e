"""What holds of the alerts of a run. The checkers know its history only: results and records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import orjson
from tests.simulator.alerting.oracle import Expected, expected_of, expected_of_stream, us_of
from tests.simulator.alerting.world import AlertHistory

from slackwater.codec.results import format_time
from slackwater.delivery.records import AlertRecord, DeliveryPosition

CHANGES = ("firing", "ended", "confirmed", "withdrawn")


def check(history: AlertHistory) -> None:
    """Raise ``AssertionError`` if the alerts of a run are not those of its results."""
    check_unique(history)
    check_ends(history)
    check_positions(history)
    check_changes(history)
    check_streams(history)


def changes(history: AlertHistory) -> Iterator[AlertRecord]:
    """Yield the records that begin or end an alert, as committed."""
    for record in history.records:
        if isinstance(record, AlertRecord) and record.state in CHANGES:
            yield record


def check_unique(history: AlertHistory) -> None:
    """No alert begins or ends twice, whatever was evaluated again (none doubled)."""
    seen: set[str] = set()
    for record in changes(history):
        assert record.event_id not in seen, f"{record.event_id} is there twice"
        seen.add(record.event_id)


def check_ends(history: AlertHistory) -> None:
    """Each tentative alert of a row ends confirmed or withdrawn, once all answers are exact."""
    states: defaultdict[str, list[str]] = defaultdict(list)
    for record in changes(history):
        if record.began.tentative:
            states[record.id].append(record.state)
    for of, found in states.items():
        assert found in (["firing", "confirmed"], ["firing", "withdrawn"]), f"{of}: {found}"


def check_positions(history: AlertHistory) -> None:
    """No position lies between an UNDO and the answers that replace what it revokes."""
    for part, results in history.results.items():
        deleted = history.deleted.get(part, frozenset())
        left = [r for r in map(orjson.loads, results) if r["seq"] not in deleted]
        forbidden = {*_within_undo(left, history.plan.window.slide_us)}
        for record in history.records:
            if isinstance(record, DeliveryPosition) and part in record.parts:
                at = record.parts[part].next_seq
                assert at not in forbidden, f"part {part}: a batch ends at {at}, inside an UNDO"


def _within_undo(results: list[dict[str, Any]], slide_us: int) -> Iterator[int]:
    undone_to: int | None = None
    next_seq = 0
    for result in results:
        if result["seq"] != next_seq:
            undone_to = None  # what replaces it may have been deleted, too
        next_seq = result["seq"] + 1
        if undone_to is not None:
            yield result["seq"]
        if result["kind"] == "undo":
            undone_to = us_of(result["undo_to"])
        if result["kind"] == "boundary" and undone_to is not None:
            last = us_of(result["window_start"]) + (result["windows"] - 1) * slide_us
            if result["label"] == "stable" and last >= undone_to:
                undone_to = None


def check_changes(history: AlertHistory) -> None:
    """The changes of each rule on rows are those of a plain evaluation of all results."""
    found: defaultdict[tuple[str, str], list[Expected]] = defaultdict(list)
    for record in changes(history):
        if record.rule != "silent":
            found[record.rule, record.key].append(_change(record))
    expected: dict[tuple[str, str], list[Expected]] = {}
    for rule in history.plan.rules:
        if rule.when is None:
            continue
        for part, results in history.results.items():
            deleted = history.deleted.get(part, frozenset())
            slide_us = history.plan.window.slide_us
            by_key = expected_of(rule, results, deleted, slide_us)
            expected |= {(rule.name, key): of for key, of in by_key.items() if of}
    assert dict(found) == expected


def _change(record: AlertRecord) -> Expected:
    began = record.began
    return Expected(
        record.state,
        format_time(began.window_start),
        began.tentative,
        began.values,
        record.exact,
        began.missing,
    )


def check_streams(history: AlertHistory) -> None:
    """The changes of rules on streams are those of part 0's windows."""
    found = [
        (record.state, format_time(record.began.window_start))
        for record in changes(history)
        if record.rule == "silent"
    ]
    (rule,) = (rule for rule in history.plan.rules if rule.stream is not None)
    deleted = history.deleted.get(0, frozenset())
    assert found == expected_of_stream(rule, history.results[0], deleted)
