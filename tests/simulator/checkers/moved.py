"""State movement: what a copy has installed is what it would have read (Flux, 3.3.1; trace-61).

The panes are folded again here, from the deltas in the logs, in the brackets of rule-21. Buckets
that lost readings may have several versions, of which each copy takes one: panes with such a bucket
are left out.
"""

from __future__ import annotations

from itertools import groupby

from tests.simulator.checkers.answers import Violation
from tests.simulator.checkers.facts import Facts
from tests.simulator.history import Deltas, Installed

from slackwater.model.records import DeltaRecord, Kind
from slackwater.primitives.deltas import Fold, Slice
from slackwater.primitives.key_table import KeyTable


def check(facts: Facts) -> None:
    """Check the panes of each copy that has started from a head."""
    for installed in facts.history.installed:
        for child, frontier in enumerate(installed.frontiers):
            _check_child(facts, installed, child, frontier)


def _check_child(facts: Facts, installed: Installed, child: int, frontier: int) -> None:
    grid = facts.config.grid
    since = max(installed.stable_from, grid.bucket_start(facts.config.start_time_us))
    found = {start: pane for (of, start), pane in installed.panes.items() if of == child}
    read = read_deltas(installed.deltas, child)
    wanted = {start: records for start, records in read.items() if since <= start < frontier}
    unclear = {grid.pane_start(start) for start, records in wanted.items() if records is None}
    buckets = sorted(start for start, records in wanted.items() if records)
    expected: dict[int, bytes] = {}
    for pane, starts in groupby(buckets, grid.pane_start):
        of_pane = [record for start in starts for record in wanted[start] or ()]
        if pane_bytes := folded(of_pane, facts.config.fields):
            expected[pane] = pane_bytes
    for start in sorted(({*found} | {*expected}) - unclear):
        if found.get(start) != expected.get(start):
            at = (start - facts.config.start_time_us) / 1e6
            what = "lacks the" if start not in found else "has another"
            text = f"part {installed.part} {what} pane of child {child} at {at:g} s"
            raise Violation("moved", installed.at, text)


def read_deltas(deltas: Deltas, child: int) -> dict[int, list[DeltaRecord] | None]:
    """Return the deltas of each bucket; None of one with several versions, or with a loss."""
    versions: dict[int, dict[int, dict[int, DeltaRecord]]] = {}
    for (of, _), log in deltas.items():
        for _, record in log if of == child else ():
            if isinstance(record, DeltaRecord) and record.kind is Kind.INSERTION:
                bucket = versions.setdefault(record.bucket_start, {})
                bucket.setdefault(record.pieces, {})[record.piece] = record
    return {start: _one_version(bucket) for start, bucket in versions.items()}


def _one_version(bucket: dict[int, dict[int, DeltaRecord]]) -> list[DeltaRecord] | None:
    complete = [of for pieces, of in bucket.items() if len(of) == pieces]
    if len(bucket) > 1 or len(complete) != 1:
        return None
    records = [complete[0][piece] for piece in sorted(complete[0])]
    return None if any(record.gap for record in records) else records


def folded(records: list[DeltaRecord], fields: tuple[str, ...]) -> bytes:
    """Return the fold of a pane as bytes; empty if it has no rows."""
    table = KeyTable()
    fold = Fold(table, len(fields))
    for record in records:
        fold.add(Slice.of(record, table, fields))
    return fold.result().to_bytes(table) if len(fold.result()) else b""
