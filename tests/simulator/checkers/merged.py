"""Merged panes are what a root would have folded itself, bit for bit (rule-36, trace-28).

The panes are folded again here, from the deltas in the logs, in the brackets of rule-21. All copies
of a merger write the same. Nothing tentative and no loss is in a merged pane, and a run of empty
ones has no rows in its deltas.
"""

from __future__ import annotations

from collections import defaultdict

from tests.simulator.checkers.answers import Violation
from tests.simulator.checkers.facts import Facts
from tests.simulator.checkers.moved import folded, read_deltas
from tests.simulator.history import Merged

from slackwater.model.heads import PaneColumns
from slackwater.model.merged import MergedRecord
from slackwater.primitives.deltas import Aggregates
from slackwater.primitives.key_table import KeyTable


def check(facts: Facts) -> None:
    """Check all that mergers have written."""
    for merged in facts.history.merged:
        _check_log(facts, merged)


def _check_log(facts: Facts, merged: Merged) -> None:
    config, grid = facts.config, facts.config.grid
    read = read_deltas(merged.deltas, merged.child)
    panes: dict[int, set[tuple[int, int]]] = defaultdict(set)
    pieces: dict[int, dict[int, PaneColumns]] = defaultdict(dict)
    for record in merged.records:
        start, end = record.start, record.end
        if grid.pane_start(start) != start or grid.pane_start(end) != end or end <= start:
            raise _violation(facts, merged, record, "not panes of the query")
        ref = record.pane.ref
        panes[start].add((ref.rows, ref.digest))
        pieces[start][record.pane.piece] = record.pane.columns
        follows = end if not ref.rows else grid.pane_end(start)
        empty = range(start if not ref.rows else follows, end)
        if any(at in empty and _has_rows(of) for at, of in read.items()):
            raise _violation(facts, merged, record, "rows in a run of empty panes")
    for start, contents in panes.items():
        record = next(of for of in merged.records if of.start == start)
        if len(contents) != 1:
            raise _violation(facts, merged, record, "two contents of one pane")
        if len(pieces[start]) < max(record.pane.ref.pieces, 1):
            continue  # its writers have died meanwhile
        end = grid.pane_end(start)
        buckets = {at: of for at, of in read.items() if start <= at < end}
        if any(of is None for of in buckets.values()):
            continue  # versions that are not told apart here
        deltas = [of for at in sorted(buckets) for of in buckets[at] or ()]
        found = Aggregates(table := KeyTable(), config.fields)
        value = found.empty
        if record.pane.ref.rows:
            value = found.install([pieces[start][piece] for piece in sorted(pieces[start])])
        if (value.to_bytes(table) if len(value) else b"") != folded(deltas, config.fields):
            raise _violation(facts, merged, record, "another pane than that of the deltas")


def _has_rows(records: object) -> bool:
    return isinstance(records, list) and any(len(record.keys) for record in records)


def _violation(facts: Facts, merged: Merged, record: MergedRecord, why: str) -> Violation:
    at = (record.start - facts.config.start_time_us) / 1e6
    text = f"part {merged.part}, child {merged.child}, pane at {at:g} s: {why}"
    return Violation("merged", facts.history.ended_at, text)
