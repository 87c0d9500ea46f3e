"""What a site and the centre delete of their logs: the product's own rules, on the model's logs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any, cast

from tests.simulator.uplinks import CENTRE

from slackwater.codec.pane_records import encode_merged
from slackwater.model.merged import MergedRecord
from slackwater.model.names import UNPREFIXED, Names
from slackwater.registration.site_logs import kept_at_site
from slackwater.registration.truncation import not_needed
from slackwater.runtime.logs.topics import deltas_partition
from slackwater.runtime.logs.transport import Log, RawRecord, Transport

_MERGED = f"{CENTRE.prefix}sw.merged."

if TYPE_CHECKING:
    from tests.simulator.queries import SimQuery
    from tests.simulator.world import World


def not_needed_with_sites(query: SimQuery, at_site: Mapping[Log, int]) -> dict[Log, int]:
    """Return, per log, the offset below which neither the centre nor a site needs a record.

    ``at_site``: what the roots of the site do not need. They need no merged panes.
    """
    at_centre = not_needed([query.config.query], query.states(), CENTRE)
    found = {log: offset for log, offset in at_centre.items() if log[0].startswith(_MERGED)}
    found |= at_site
    for site in range(len(query.config.site_children)):
        found |= _kept_at_site(query, site, at_site)
    return found


def _kept_at_site(query: SimQuery, site: int, at_site: Mapping[Log, int]) -> dict[Log, int]:
    config, names = query.config, UNPREFIXED
    places: dict[Log, Log] = {}
    """By the log's name at the site, where children have other numbers, that in the model."""
    merged: set[Log] = set()
    children = config.site_children[site]
    for part, (own_child, child) in product(range(config.parts), enumerate(children)):
        topic = names.deltas(config.child_query, part)
        for replica in range(config.replicas):
            own, here = (
                deltas_partition(of, replica, config.replicas, live=False)
                for of in (own_child, child)
            )
            places[topic, own] = topic, here
        merged.add((names.merged(config.name, part), own_child))
        places[names.merged(config.name, part), own_child] = names.merged(config.name, part), child
    logs = _Logs(query.world, places)
    given = {log: at_site[place] for log, place in places.items() if place in at_site}
    reported = [
        uplink.heartbeat()
        for (of, _), uplink in query.uplinks.items()
        if of == site and uplink.speaks and uplink.has_begun
    ]
    beats = {beat.process: beat for beat in reported}
    kept = kept_at_site(
        replace(config.query, children=len(children)),
        given | logs.end_offsets(merged),
        beats,
        cast(Transport, logs),
    )
    # What is not in ``kept`` is needed completely.
    return {place: kept.get(log, 0) for log, place in places.items()}


class _Logs:
    """As much of a transport as ``kept_at_site`` uses."""

    def __init__(self, world: World, places: Mapping[Log, Log]) -> None:
        self.names: Names = UNPREFIXED
        self._world, self._places = world, places

    def end_offsets(self, logs: Iterable[Log]) -> dict[Log, int]:
        """The ends of logs of the site."""
        return {log: self._world.log_at(self._places[log]).end for log in logs}

    def beginning_offsets(self, logs: Iterable[Log]) -> dict[Log, int]:
        """Their beginnings."""
        return {log: self._world.log_at(self._places[log]).beginning for log in logs}

    def reader(self, **_: Any) -> _Reader:
        """Read merged panes."""
        return _Reader(self._world, self._places)


class _Reader:
    def __init__(self, world: World, places: Mapping[Log, Log]) -> None:
        self._world, self._places = world, places
        self._at: dict[Log, int] = {}

    def assign(self, at: Mapping[Log, int]) -> None:
        """Begin there."""
        self._at = dict(at)

    def position(self, log: Log) -> int:
        """The next offset."""
        return self._at[log]

    def poll(self, timeout_s: float) -> Iterator[RawRecord]:
        """Return all records."""
        for log, offset in self._at.items():
            source = self._world.log_at(self._places[log])
            for at, value in source.read(offset, source.end):
                self._at[log] = at + 1
                data = encode_merged(value) if isinstance(value, MergedRecord) else b""
                yield RawRecord(log[0], log[1], at, 0, None, data)

    def close(self) -> None:
        """Nothing is open."""
