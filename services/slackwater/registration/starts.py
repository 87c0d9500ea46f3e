"""When a query starts: its E0 in event time, and the width of its buckets (trace-24, rule-29)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from slackwater.codec.results import format_time
from slackwater.control.applied import Start
from slackwater.deployment.fragments import sources_of
from slackwater.model.deployment import Deployment, QuerySpec
from slackwater.model.errors import EnvironmentProblem
from slackwater.model.names import RootName, base_of, earlier_generations, generation_of
from slackwater.model.records import RootState
from slackwater.primitives.eventclock import DataClock, EventClock, WallClock
from slackwater.primitives.windows import Grid
from slackwater.protocols.dpc.soutput.config import answered_by_all, start_of_generation
from slackwater.registration.beginning import (
    FIRST_READINGS_S_MAX,
    await_first_readings,
    beginning,
    first_event_time,
    history_speed,
)
from slackwater.registration.site_starts import StartTimes, start_at_site
from slackwater.runtime.logs.transport import Transport
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.registry import QueryDefinition, Registry
from slackwater.runtime.service.state import read_root_states


class Starts:
    """The starts of a deployment's queries.

    Args:
        transport: of their logs.
        deployment: the queries and their streams.
        partitions_of: returns the numbers of partitions of the input topics, by stream.
        clock: the present time.
        waits_since: by the query of the children, since when some of its files have begun (us).
    """

    def __init__(
        self,
        transport: Transport,
        deployment: Deployment,
        partitions_of: Callable[[], Mapping[str, int]],
        clock: SystemClock,
        waits_since: dict[str, int],
    ) -> None:
        self._transport, self._deployment = transport, deployment
        self._partitions_of, self._clock = partitions_of, clock
        self._waits_since = waits_since

    def of(self, query: QuerySpec, event_clock: EventClock | None, start: Start) -> int | None:
        """Return E0 (us) of a query; None while it depends on a first reading.

        ``event_clock`` is None if the start is a time.

        A new generation of a query starts at the first window for which the earlier one has given
        no stable answer, and ``start`` is not used (rule-29).
        """
        if generation_of(query.name):
            return self._unanswered(query)
        if isinstance(start, int):
            return start
        assert event_clock is not None, "this start follows the clock"
        grid = Grid(query.bucket_us(), query.units(query.bucket_us()))
        now_us = event_clock.event(self._clock.now_us())
        if start == "now" and isinstance(event_clock, WallClock) and now_us is not None:
            return grid.window_end(grid.last_window_holding(now_us))
        return self._beginning(query, event_clock)

    def at_site(self, query: QuerySpec) -> StartTimes:
        """Return where a query at a site starts, of which the centre may have panes (rule-37)."""
        streams = map(self._deployment.streams.__getitem__, self._deployment.source_streams(query))
        loss_us = self._clock.now_us() + max(stream.ahead_us for stream in streams)
        return start_at_site(query, self._transport.names, loss_us)

    def joined(
        self,
        query: QuerySpec,
        start: Start,
        children_us: int,
        w_us: int,
        registered: Mapping[str, QueryDefinition],
    ) -> int:
        """Return E0 (us) of a query whose children begin at ``children_us`` (trace-50).

        A start that is no time is that of the children. Another one is the next window, or, if the
        deltas from there on are not there any more, the first window of which they are. ``w_us`` is
        the width of the buckets.

        Raises:
            EnvironmentProblem: no query reads the children, or they have no deltas from their start
                on, at which the query was to begin.
        """
        of = query.child_query
        start_us = start if isinstance(start, int) and not query.has_children else children_us
        if of == query.name or (of not in registered and start_us == children_us):
            return start_us
        since_us = children_us
        if of in registered:
            kept_us = self._kept_since(registered[of], registered)
            if kept_us is None:
                raise EnvironmentProblem(_not_joined(query, "are not there any more"))
            since_us = kept_us
        if start_us == children_us and start_us >= since_us:
            return start_us
        grid = Grid(w_us, query.units(w_us), query.cut_windows)
        if start_us == children_us or not grid.is_cut(start_us):
            times = f"from {format_time(since_us)} on, and it starts at {format_time(start_us)}"
            raise EnvironmentProblem(_not_joined(query, f"are kept {times}"))
        # It was to begin at the next window. Registration may take longer than that.
        return max(start_us, grid.first_window_from(since_us))

    def _kept_since(
        self, of: QueryDefinition, registered: Mapping[str, QueryDefinition]
    ) -> int | None:
        """From which event time on children have all deltas, us; None if no query reads them.

        Truncation has kept what one of the present readers needs.
        """
        live = [q for q in registered.values() if q.state != "deleted"]
        readers = [q for q in live if q.spec.child_query == of.name]
        if not readers:
            return None
        names, spec = self._transport.names, of.spec
        logs = [
            (names.deltas(of.name, part), partition)
            for part in range(spec.parts)
            for partition in range(2 * spec.children * spec.replicas)
        ]
        if not any(self._transport.beginning_offsets(logs).values()):
            return of.e0_us
        found = []
        for each in readers:
            states = self._states(each)
            answered = answered_by_all(states)
            # Where there are heads, deltas are kept from the older one on.
            moved = [to for state in states if state is not None for to in state.moved_to]
            found.append(each.e0_us if answered is None else max([answered, *moved]))
        return min(found)

    def _answered(self, query: QueryDefinition) -> int | None:
        """Up to which event time all parts have stable answers, us; None without state records."""
        return answered_by_all(self._states(query))

    def _states(self, query: QueryDefinition) -> list[RootState | None]:
        """Return the state records of all parts."""
        parts = query.spec.parts
        states = read_root_states(self._transport, query.name, parts)
        return [states.get(RootName(query.name, part).process) for part in range(parts)]

    def _unanswered(self, later: QuerySpec) -> int | None:
        """Return E0 (us) of a new generation; None while no earlier generation is registered."""
        registered = Registry(self._transport).all_queries()
        for earlier in earlier_generations(later.name, registered):
            query = registered[earlier]
            if (query.spec.window, query.spec.parts) != (later.window, later.parts):
                raise EnvironmentProblem(
                    f"query {base_of(later.name)} had another window or another number of parts,"
                    " and its results continue: delete it, and apply it with these, or give the new"
                    " query another name"
                )
            answered = self._answered(query)
            if answered is not None:
                looks_back_us = 0 if later.join is None else later.join.within_us
                start_us = start_of_generation(answered, query.e0_us, looks_back_us)
                self._check_kept(later, start_us, is_ended=query.state == "deleted")
                return start_us
            if not generation_of(earlier):
                return query.e0_us
        return None

    def _check_kept(self, later: QuerySpec, start_us: int, *, is_ended: bool) -> None:
        """Raise ``EnvironmentProblem`` if retention has deleted readings of a new generation.

        Its windows would be answered without these readings, and no record would have the gap.
        """
        deployment = self._deployment
        sources = sources_of(deployment, self._partitions_of())
        logs = [log for stream in deployment.source_streams(later) for log in sources[stream]]
        places = {log: (self._transport.names.source(log), 0) for log in logs}
        begins = self._transport.beginning_offsets(places.values())
        what_follows = (
            "it cannot be continued: delete it, and give the new query another name"
            if is_ended
            else "the running generation goes on"
        )
        for log in logs:
            first_us = first_event_time(self._transport, log) if begins[places[log]] else None
            if first_us is not None and first_us > start_us:
                raise EnvironmentProblem(
                    f"query {base_of(later.name)} has no stable answer from"
                    f" {format_time(start_us)} on, and retention has deleted readings of {log}"
                    f" before {format_time(first_us)}: {what_follows}"
                )

    def _beginning(self, query: QuerySpec, event_clock: EventClock) -> int | None:
        deployment = self._deployment
        sources = sources_of(deployment, self._partitions_of())
        streams = deployment.source_streams(query)
        await_first_readings(
            self._transport,
            {
                log: (topic.name, partition)
                for stream in streams
                if (topic := deployment.streams[stream].topic) is not None and topic.from_ != "end"
                for partition, log in enumerate(sources[stream])
            },
        )
        now_us = self._clock.now_us()
        event_us, lateness_us = event_clock.event(now_us), deployment.lateness_us(query)
        logs = [log for stream in streams for log in sources[stream]]
        if isinstance(event_clock, DataClock):
            found = beginning(self._transport, logs, event_us, lateness_us, True)
            if found is not None or not self._has_waited(query, logs, now_us):
                return found
        return beginning(self._transport, logs, event_us, lateness_us)

    def _has_waited(self, query: QuerySpec, logs: Iterable[str], now_us: int) -> bool:
        """Whether some of these logs have had times, and others none, for long enough."""
        if beginning(self._transport, logs, None, 0) is None:
            return False
        since_us = self._waits_since.setdefault(query.child_query, now_us)
        return now_us - since_us > FIRST_READINGS_S_MAX * 1e6

    def speed(self, query: QuerySpec, event_clock: EventClock | None) -> int:
        """Return how many times as wide as live ones the query's buckets are."""
        if not isinstance(event_clock, DataClock):
            return 1
        sources = sources_of(self._deployment, self._partitions_of())
        return history_speed(
            self._transport,
            (log for of in self._deployment.source_streams(query) for log in sources[of]),
            0 if query.join is None else query.join.within_us,
        )


def why_other_children(
    query: QuerySpec,
    recorded: Collection[str],
    registered: Mapping[str, QueryDefinition],
) -> str:
    """Return why a recorded query cannot have the children in its definition; empty if it can.

    The query that has them may have been deleted before it was registered. Halves of a split
    network may have accepted the query with different children, of which one is registered.

    Args:
        query: as it is recorded.
        recorded: the names of all recorded queries.
        registered: all registered queries, deleted ones too.
    """
    known, of = registered.get(query.name), query.child_query
    if known is not None and known.spec.child_query != of:
        return (
            f"query {query.name} is registered with the children of query"
            f" {known.spec.child_query}, and recorded with those of query {of}: delete it, and"
            " apply it again under another name"
        )
    if known is None and of not in {*recorded, *registered}:
        return _not_joined(query, "are not there any more")
    return ""


def _not_joined(query: QuerySpec, why: str) -> str:
    return (
        f"query {query.name} was to read the children of query {query.child_query}, which {why}:"
        " delete it, and apply it again under another name"
    )
