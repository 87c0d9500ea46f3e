"""Registration: creates the topics, the event clock and the queries of a deployment in Kafka.

A node registers the queries whose registration is placed on it; `slackwater up` checks its file
against what is registered. Registration is idempotent: existing topics and entries are kept, so a
second start uses the E0 and the w that the first one fixed (trace-24, trace-27).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import replace
from pathlib import Path

from slackwater.control.applied import Start
from slackwater.deployment.children import divided
from slackwater.deployment.deadlines import brought_forward, first_deadlines
from slackwater.deployment.parse import found_later
from slackwater.deployment.sharing import is_same, share, without_sharing
from slackwater.model.child_logs import ChildLogs, ChildrenError
from slackwater.model.deployment import Deployment, QuerySpec
from slackwater.model.errors import DeploymentError, EnvironmentProblem, UsageError
from slackwater.model.names import (
    base_of,
    generation_of,
    latest_generation,
)
from slackwater.primitives.eventclock import DataClock, EventClock, WallClock
from slackwater.primitives.windows import Grid
from slackwater.registration.key_hashes import key_hash_of
from slackwater.registration.site_starts import StartTimes, why_lost
from slackwater.registration.starts import Starts
from slackwater.registration.topics import topic_specs
from slackwater.runtime.logs.described import TopicObserver
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.topics import ensure_inputs, partition_counts
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.owntopics import make_own_topics, why_registry_is_lost
from slackwater.runtime.service.registry import QueryDefinition, Registry, streams_of
from slackwater.runtime.service.zone_rules import zones_of

_log = logging.getLogger(__name__)

APPEARS_S_MAX = 2.0
"""Longest wait for a new topic to appear in the metadata of all brokers."""


def as_changed(
    deployment: Deployment, registered: Mapping[str, QueryDefinition], path: Path
) -> Deployment:
    """Return the deployment of a file with the changes that were made at run time.

    Raises:
        DeploymentError: the file lacks what a query reads that was applied at run time.
    """
    queries = dict(deployment.queries)
    live = [name for name, found in registered.items() if found.state != "deleted"]
    for name, found in registered.items():
        if name in queries and latest_generation(name, live) not in {name, None}:
            # The query is being changed, and the file may have its new definition.
            queries[name] = found.spec
        if found.state == "deleted" and queries.pop(name, None) is not None:
            _log.warning("%s: %s", path, _why_not_started(name, live))
        elif found.state != "deleted" and found.deployment is not None:
            queries.setdefault(name, found.spec)
    added = streams_of(registered[name] for name in queries if name in registered)
    streams = {**added, **deployment.streams}
    for name, query in queries.items():
        known = {*streams, *map(base_of, queries)}
        if lacking := {*query.sources} - known:
            raise DeploymentError(
                f"{path}: query {name} {_of(name, deployment)} and reads"
                f" {', '.join(sorted(lacking))}, which the file does not have: add it to the file,"
                f" or run `slackwater query delete {name}` with the earlier file"
            )
        for source in sorted({*query.sources} - streams.keys()):
            if generation_of(latest_generation(source, live) or source):
                _check_reads_changed(query, registered, source, deployment, path)
    return replace(deployment, streams=streams, queries=queries)


def _check_reads_changed(
    reader: QuerySpec,
    registered: Mapping[str, QueryDefinition],
    source: str,
    deployment: Deployment,
    path: Path,
) -> None:
    """Raise ``DeploymentError`` if a query cannot read one that has been changed, with this file.

    The processes of a query of the file have its columns and its lateness from the file. All
    definitions of the source that have been registered lead to the same ones (trace-43), others
    need not. If the reader was registered from the file, its columns of the source are those of the
    first definition.
    """
    name, declared = reader.name, deployment.queries
    if name not in registered:
        raise DeploymentError(
            f"{path}: query {name} is new and reads query {source}, which was changed at run time:"
            f" leave {name} out at the start, and add it with `slackwater query apply {path}`"
        )
    generations = [q.spec for other, q in registered.items() if base_of(other) == source]
    if name not in declared or source not in declared:
        return
    if not any(is_same(declared[source], each) for each in generations):
        raise DeploymentError(
            f"{path}: query {name} reads query {source}, which was changed at run time, and has"
            f" never run as it is in the file: start with its present definition (`slackwater query"
            f" show {source}`), and change it with `slackwater query apply {path}`"
        )
    first = registered[source].spec
    lacking = {*first.sources} - deployment.streams.keys() - {*map(base_of, declared)}
    if registered[name].deployment is None and lacking:
        raise DeploymentError(
            f"{path}: query {name} reads query {source} as it was before it was changed at run"
            f" time, from {', '.join(first.sources)}: keep {', '.join(sorted(lacking))} in the file"
        )


def _is_divided(query: QuerySpec) -> bool:
    """Whether its definition has the child of each log."""
    return query.children > 1 or bool(query.child_groups)


def _of(name: str, deployment: Deployment) -> str:
    return "is being changed" if name in deployment.queries else "was applied at run time"


def _why_not_started(name: str, live: Iterable[str]) -> str:
    latest = latest_generation(name, live)
    if latest is None:
        return f"query {name} has been deleted and is not started"
    return f"query {name} was changed at run time: generation {generation_of(latest)} is started"


def _computed(query: QuerySpec) -> QuerySpec:
    """Return what a query computes: alerts, and how the centre is reached, may change."""
    link = query.uplink and replace(query.uplink, centre="", kafka_config=None)
    return replace(without_sharing(query), alerts=(), uplink=link)


def _why_one_copy(query: str, path: Path) -> str:
    return (
        f"query {query} is registered with one copy of each part, and keeps it:"
        f" `slackwater query apply {path}` gives it two"
    )


class Registration:
    """The registration of one deployment in one Kafka cluster."""

    def __init__(
        self,
        transport: KafkaTransport,
        deployment: Deployment,
        deployment_path: Path,
        *,
        data_dir: Path | None = None,
        clock: SystemClock | None = None,
        waits_since: dict[str, int] | None = None,
    ) -> None:
        """Prepare a registration.

        Args:
            transport: to the Kafka cluster.
            deployment: what is registered.
            deployment_path: the name of its file in error messages.
            data_dir: that of the embedded broker, if it is used.
            clock: the present time.
            waits_since: since when some files of a query have begun (us), by the query of its
                children; kept from one registration to the next.
        """
        self._data_dir = data_dir
        self._transport = transport
        self._deployment = deployment
        self._path = deployment_path
        self._clock = clock or SystemClock()
        self._partitions_of: dict[str, int] | None = None
        self._waits_since = {} if waits_since is None else waits_since

    @property
    def _starts(self) -> Starts:
        def partitions_of() -> Mapping[str, int]:
            return self.partitions_of

        at = self._transport, self._deployment, partitions_of
        return Starts(*at, self._clock, self._waits_since)

    @property
    def partitions_of(self) -> dict[str, int]:
        """Number of partitions of the input topics, by stream; fetched once."""
        if self._partitions_of is None:
            topics = self._input_topics
            found = self._found(set(topics.values()))
            self._partitions_of = {name: found[topic] for name, topic in topics.items()}
        return self._partitions_of

    def _found(self, topics: Set[str]) -> dict[str, int]:
        """Return the topics' partition counts; waits for new topics to appear."""
        give_up = time.monotonic() + APPEARS_S_MAX
        while True:
            found = partition_counts(self._transport.cluster, topics)
            missing = sorted(topics - found.keys())
            if not missing:
                return found
            if time.monotonic() > give_up:
                raise EnvironmentProblem(self._missing_inputs(missing))
            time.sleep(0.1)

    @property
    def _input_topics(self) -> dict[str, str]:
        streams = self._deployment.streams.items()
        return {name: stream.topic.name for name, stream in streams if stream.topic is not None}

    def _missing_inputs(self, missing: list[str]) -> str:
        bootstrap = self._transport.bootstrap
        some, do = ("topic", "does") if len(missing) == 1 else ("topics", "do")
        return (
            f"{some} {', '.join(missing)} of {self._path} {do} not exist on {bootstrap}: create"
            f" what is missing with `slackwater topics --deployment {self._path} --bootstrap"
            f" {bootstrap} --inputs PARTITIONS`, or with other tools"
        )

    def make_topics(self, *, input_partitions: int | None = None, within_s: float = 30.0) -> None:
        """Create missing topics; with ``input_partitions`` also the input topics.

        A topic that several proxies share has at least one partition for each of them.
        """
        cluster = self._transport.cluster
        if input_partitions is not None:
            read = [each.topic for each in self._deployment.streams.values() if each.topic]
            wanted = {
                name: max(
                    input_partitions, *(topic.proxies for topic in read if topic.name == name)
                )
                for name in {topic.name for topic in read}
            }
            ensure_inputs(cluster, wanted, within_s)
        self.check_children()
        layouts = topic_specs(self._deployment, self.partitions_of)
        make_own_topics(self._transport, layouts, within_s)

    def check_children(self) -> None:
        """Check that the logs that are there can be divided among the children of new queries.

        Topics of other numbers of children would prevent the start with a corrected file.

        Raises:
            DeploymentError: they cannot.
        """
        divided_by = [q for q in self._deployment.queries.values() if _is_divided(q)]
        if not divided_by:
            return
        is_new = not partition_counts(self._transport.cluster, {self._transport.names.registry})
        known = {} if is_new else Registry(self._transport).all_queries()
        for query in divided_by:
            if query.name not in known and query.has_children:
                self._child_logs(query, {}, is_new=is_new)

    @property
    def _new_start(self) -> str:
        """Advice for a start without the present registration, which is stored in the topics."""
        if self._data_dir is not None:
            return f"start anew with another --data-dir (it is registered in {self._data_dir})"
        return (
            "start anew with another prefix in the file (it is registered in topics of"
            f" {self._transport.bootstrap}, so another --data-dir does not help)"
        )

    def publish_clock(self) -> EventClock:
        """Return the published clock; publish that of the deployment file if there is none."""
        wanted = WallClock() if self._deployment.clock == "wall" else DataClock()
        registry = Registry(self._transport)
        if hidden := registry.restore():
            _log.warning("restored registry entries hidden by foreign records: %s", hidden)
        published = registry.clock()
        if published is None:
            observer = TopicObserver(self._transport.cluster)
            if why := why_registry_is_lost(self._transport, observer, self._deployment.queries):
                raise EnvironmentProblem(why)
            registry.publish_clock(wanted)
            return wanted
        if published.to_json() != wanted.to_json():
            raise UsageError(
                f"{self._path} has clock: {self._deployment.clock}, but the registered deployment"
                f" has another event clock ({published.to_json()['kind']}): {self._new_start}"
            )
        return published

    def share(self) -> Deployment:
        """Return the deployment as it is to run.

        Queries that were applied at run time are added, deleted ones are left out, and registered
        queries keep the children that they read.
        """
        topic = self._transport.names.registry
        is_new = not partition_counts(self._transport.cluster, {topic})
        found = {} if is_new else Registry(self._transport).all_queries()
        changed = as_changed(self._deployment, found, self._path)
        self._deployment = share(
            changed, {n: q.spec for n, q in found.items() if n in changed.queries}
        )
        for name, query in self._deployment.queries.items():
            if query.copies < changed.queries[name].copies:
                _log.warning("%s: %s", self._path, _why_one_copy(name, self._path))
        return self._deployment

    def define(
        self,
        starts: Mapping[str, Start],
        event_clock: EventClock | None,
        *,
        declared: Collection[str] = (),
        speed: float | None = None,
    ) -> list[QueryDefinition]:
        """Return the definitions of new queries, without those whose start is not known yet.

        Args:
            starts: the start E0 of queries of the deployment (us, event time); ``beginning``: the
                first reading in the source logs; ``now``: the next window (with ``clock: data`` as
                ``beginning``).
            event_clock: the deployment's event clock; None if all starts are given.
            declared: queries whose definitions stand without their streams, since a deployment file
                has them.
            speed: of a rehearsal, in which no answer waits for a begin; None for live data.

        A query that reads other queries starts with their streams. Queries that share children have
        the start of these, also if readings arrive meanwhile, or a later time of their own
        (trace-50). A new generation of a query starts at the first window for which the earlier one
        has given no stable answer, and its start in ``starts`` is not used (rule-29).
        """
        registered = self._all_registered()
        known = {
            n: StartTimes(q.e0_us, q.w_us) for n, q in registered.items() if q.spec.has_children
        }
        found: list[QueryDefinition] = []
        unknown: set[str] = set()
        for query in self._deployment.in_order():
            if query.name not in starts:
                continue
            if unknown & {query.child_query, *self._deployment.queries_of(query)}:
                unknown.add(query.name)
                continue
            begin = known.get(query.child_query)
            if begin is None and query.child_query not in starts and not query.has_children:
                unknown.add(query.name)  # the query that has the children is registered first
                continue
            if begin is None and (begin := self._begin(query, starts, event_clock, speed)) is None:
                unknown |= {query.name, query.child_query}
                continue
            known[query.child_query] = begin
            children_us, w_us, lost_us = begin
            start_us = self._starts.joined(query, starts[query.name], children_us, w_us, registered)
            defined = replace(self._definition(query, start_us, w_us), lost_until_us=lost_us)
            if query.name not in declared:
                defined = replace(defined, deployment=self._deployment.connected(query))
            awaits = speed is None and not generation_of(query.name)
            divided_by = key_hash_of(query, registered)
            logs_of = {d.name: d.child_logs for d in (*registered.values(), *found)}
            found.append(
                replace(
                    defined,
                    awaits_begin=awaits,
                    key_hash=divided_by,
                    child_logs=self._child_logs(query, logs_of, is_new=False),
                )
            )
        return found

    def _child_logs(
        self,
        query: QuerySpec,
        registered: Mapping[str, ChildLogs | None],
        *,
        is_new: bool,
    ) -> ChildLogs | None:
        """Return the child of each log; None if it is one child with whole streams.

        A topic that was made again with fewer partitions has left logs, which count too.
        """
        if not _is_divided(query):
            return None
        if not query.has_children and query.child_query in registered:
            return registered[query.child_query]
        counts = {
            stream: self.partitions_of[stream]
            for stream in query.sources
            if stream in self._input_topics
        }
        if counts and not is_new:
            recorded = Registry(self._transport)
            counts = {s: max(count, recorded.partitions(s) or 0) for s, count in counts.items()}
        try:
            return divided(self._deployment, query, counts)
        except ChildrenError as error:
            place = ("queries", base_of(query.name), "children", *error.place)
            raise found_later(self._path, place, str(error)) from error

    def _begin(
        self,
        query: QuerySpec,
        starts: Mapping[str, Start],
        event_clock: EventClock | None,
        speed: float | None,
    ) -> StartTimes | None:
        """Return E0 and the width of the buckets; None while they are not known."""
        if query.uplink is not None:
            found = self._starts.at_site(query)
            if found.lost_until_us is not None:
                _log.warning("%s", why_lost(query, found))
            return found
        start_us = self._starts.of(query, event_clock, starts[query.name])
        if start_us is None:
            return None
        factor = self._starts.speed(query, event_clock) if speed is None else speed
        w_us = query.bucket_us(factor)
        if query.has_remote:  # only whole panes come from a site
            grid = Grid(w_us, query.units(w_us), query.cut_windows)
            is_edge = grid.pane_start(start_us) == start_us
            start_us = start_us if is_edge else grid.pane_end(start_us)
        return StartTimes(start_us, w_us)

    def _all_registered(self) -> Mapping[str, QueryDefinition]:
        return Registry(self._transport).all_queries()

    def _definition(self, query: QuerySpec, start_us: int, w_us: int) -> QueryDefinition:
        return QueryDefinition(
            *(query.name, generation_of(query.name), start_us, w_us, query),
            deadline_us=self._deadline_us(query),
            zones=zones_of(query),
            partitions=self._taken_in(query),
        )

    def _taken_in(self, query: QuerySpec) -> dict[str, int]:
        """Return the numbers of source logs of a query's streams that do not follow their topics.

        A topic that was made again with fewer partitions has left logs, which are taken in too.
        """
        deployment, registry = self._deployment, Registry(self._transport)
        topics = {s: spec.topic for s, spec in deployment.streams.items() if s in query.sources}
        return {
            stream: max(self.partitions_of[stream], registry.partitions(stream) or 0)
            for stream, topic in topics.items()
            if topic is not None and topic.partitions == "fixed"
        }

    def missing(self) -> list[str]:
        """Return the unregistered queries.

        ``DeploymentError`` if a registered query has changed, or its first deadline would become
        earlier.
        """
        found = Registry(self._transport).queries()
        for name, query in self._deployment.queries.items():
            if name in found and _computed(found[name].spec) != _computed(query):
                raise DeploymentError(
                    f"{self._path}: query {name} is registered with another"
                    f" definition: start with the earlier file and change the query with"
                    f" `slackwater query apply {self._path}`, use another name for the new query,"
                    f" or {self._new_start}"
                )
        self._check_deadlines(found)
        return [name for name in self._deployment.queries if name not in found]

    def _check_deadlines(self, found: Mapping[str, QueryDefinition]) -> None:
        queries = self._deployment.queries
        known = {name: query for name, query in queries.items() if name in found}
        # Earlier versions did not store the deadline; it follows from the registered queries.
        fixed = first_deadlines(replace(self._deployment, queries=known), known)
        fixed = {name: min(us, found[name].first_deadline_us) for name, us in fixed.items()}
        for reason in brought_forward(self._deployment, fixed):
            raise DeploymentError(f"{self._path}: {reason}, or {self._new_start}")

    def _deadline_us(self, query: QuerySpec) -> int | None:
        """Return the first deadline of a query, us; None if it is that of the query's own bound."""
        deadline_us = self._deployment.deadline_us(query)
        return None if self._deployment.bound_at(query) == query else deadline_us
