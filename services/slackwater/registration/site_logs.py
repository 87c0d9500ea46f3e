"""What a site's uplink and mergers still need of its logs, for truncation (rule-37).

At a site merged panes are kept until the centre has them, as an uplink reports in its heartbeat,
and deltas until they are merged: what the roots there have answered is no measure of either. Where
an uplink reports nothing, since it has not reached the centre, nothing of the log is deleted. The
last records always stay: mergers find in them where they continue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Protocol

from slackwater.codec.pane_records import decode_merged
from slackwater.model.deployment import QuerySpec
from slackwater.model.errors import MalformedRecordError
from slackwater.model.kinds import UPLINKS
from slackwater.model.merged import MergedRecord
from slackwater.model.names import Names, UplinkName
from slackwater.model.records import Heartbeat
from slackwater.runtime.logs.topics import deltas_partition
from slackwater.runtime.logs.transport import Log, Transport, read_range
from slackwater.sessions.merger import LAST_RECORDS_MAX
from slackwater.sessions.uplink import SENT, place_of

READ_RECORDS_MAX = 8
"""Records in which the last merged pane is looked for; an older one keeps more."""
READ_S_MAX = 10.0


class LatestBeats(Protocol):
    """The latest heartbeats of all processes."""

    def all(self) -> Mapping[str, Heartbeat]:
        """The latest heartbeats, by process."""
        ...


def kept_at_site(
    query: QuerySpec,
    found: Mapping[Log, int],
    beats: Mapping[str, Heartbeat],
    transport: Transport,
) -> dict[Log, int]:
    """Return ``found`` with what the uplinks and the mergers of a query at a site need, too.

    Args:
        query: a query at a site.
        found: per log the offset below which nothing else needs a record.
        beats: the latest heartbeats.
        transport: of the site's logs.
    """
    kept, names = dict(found), transport.names
    merged = {
        (part, child): (names.merged(query.name, part), child)
        for part, child in product(range(query.parts), range(query.children))
    }
    ends = transport.end_offsets(merged.values())
    for (part, child), log in merged.items():
        sent = _sent(query.name, place_of(part, child), beats)
        limits = {log: None if sent is None else max(min(sent, ends[log] - LAST_RECORDS_MAX), 0)}
        last = last_pane(transport, log, ends[log])
        limits |= _next_positions(query, part, child, last, names)
        for limited, limit in limits.items():
            if limited not in kept:
                continue
            if limit is None:
                del kept[limited]
            else:
                kept[limited] = min(kept[limited], limit)
    return kept


def _sent(query: str, place: str, beats: Mapping[str, Heartbeat]) -> int | None:
    """Return the offset below which the centre has everything; None if no uplink knows."""
    names = (UplinkName(query, 0, copy).process for copy in range(UPLINKS))
    reported = (beats[name].detail.get(f"{SENT}{place}") for name in names if name in beats)
    return max((offset for offset in reported if offset is not None), default=None)


def _next_positions(
    query: QuerySpec, part: int, child: int, last: MergedRecord | None, names: Names
) -> dict[Log, int | None]:
    """Return, of the stable deltas of each replica, what lies behind the last merged pane."""
    found: dict[Log, int | None] = {}
    for replica in range(query.replicas):
        partition = deltas_partition(child, replica, query.replicas, live=False)
        log = names.deltas(query.child_query, part), partition
        has_position = last is not None and replica < len(last.positions)
        found[log] = last.positions[replica].offset if last and has_position else None
    return found


def last_pane(transport: Transport, log: Log, end: int) -> MergedRecord | None:
    """Return the last piece of a pane among the last records; None if there is none."""
    begin = transport.beginning_offsets([log])[log]
    start = max(begin, end - READ_RECORDS_MAX)
    records = _decoded(transport, log, start, end)
    complete = [each for each in records if each.pane.piece + 1 >= each.pane.ref.pieces]
    return max(complete, key=lambda each: each.end, default=None)


def _decoded(transport: Transport, log: Log, start: int, end: int) -> Iterable[MergedRecord]:
    for raw in read_range(transport, log, start, end, idle_s_max=READ_S_MAX):
        try:
            yield decode_merged(raw.value)
        except MalformedRecordError:
            continue  # those that read the log for its content report it
