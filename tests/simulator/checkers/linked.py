"""What uplinks write to the centre is what the sites have (rule-37, trace-70, trace-71, trace-80).

Each pane at the centre is one of the site's, bit for bit, with its keys: those of the record, or
those that an earlier record of the log has under the hash that it names. The first panes of the log
are in order, each whole before the next, and none is left out. This is read from both logs alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from tests.simulator.checkers.answers import Violation
from tests.simulator.checkers.facts import Facts
from tests.simulator.history import Linked

from slackwater.model.merged import MergedRecord

Content = tuple[Sequence[str], bytes]
Version = tuple[int, int, int, int, int, object]
NEVER: Final = -(2**62)


def check(facts: Facts) -> None:
    """Check the centre's log of each child that a site has."""
    for linked in facts.history.linked:
        _check_log(facts, linked)


def _check_log(facts: Facts, linked: Linked) -> None:
    at_site: dict[tuple[Version, int], set[Content]] = defaultdict(set)
    for record in linked.at_site:
        keys = tuple(record.pane.columns.keys)
        at_site[_version(record), record.pane.piece].add((keys, _bits(record)))
    lists: dict[int, tuple[str, ...]] = {}
    pieces: dict[Version, set[int]] = defaultdict(set)
    reached = NEVER
    for record in linked.at_centre:
        keys = tuple(record.pane.columns.keys)
        if record.keys_hash and keys:
            lists[record.keys_hash] = keys
        elif record.keys_hash:
            if record.keys_hash not in lists:
                raise _violation(facts, linked, record, "names keys that no record before it has")
            keys = lists[record.keys_hash]
        version = _version(record)
        if record.pane.ref.child != linked.child:
            raise _violation(facts, linked, record, "of another child")
        if any(position.offset for position in record.positions):
            raise _violation(facts, linked, record, "with positions in logs of the site")
        if (keys, _bits(record)) not in at_site[version, record.pane.piece]:
            raise _violation(facts, linked, record, "not what the site has")
        if reached not in (NEVER, record.start) and record.start > reached:
            raise _violation(facts, linked, record, "behind a pane that is not there")
        pieces[version].add(record.pane.piece)
        if len(pieces[version]) == max(record.pane.ref.pieces, 1):
            reached = max(reached, record.end)


def _version(record: MergedRecord) -> Version:
    ref = record.pane.ref
    return ref.start, record.end, ref.rows, ref.pieces, ref.digest, record.gap


def _bits(record: MergedRecord) -> bytes:
    return record.pane.columns.figures.tobytes()


def _violation(facts: Facts, linked: Linked, record: MergedRecord, why: str) -> Violation:
    at = (record.start - facts.config.start_time_us) / 1e6
    text = f"part {linked.part}, child {linked.child}, pane at {at:g} s at the centre: {why}"
    return Violation("linked", facts.history.ended_at, text)
