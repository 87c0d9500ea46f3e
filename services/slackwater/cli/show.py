"""Read-only commands: results, status, queries."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

import orjson
from confluent_kafka import KafkaException
from rich.console import Console
from rich.live import Live

from slackwater.cli import tables
from slackwater.cli.common import emit, warn
from slackwater.cli.control_status import NO_CONTROLS, Controls
from slackwater.cli.quarantine import refused_note
from slackwater.cli.shown import ShownAnswers
from slackwater.cli.summary import PageLine, page, page_json, plain, rich_page, shortened
from slackwater.cli.tables import PrintedQuery, visible
from slackwater.cli.terminals import repaints
from slackwater.cli.window_tables import WindowTables
from slackwater.client.follow import KINDS, Client, From
from slackwater.codec.results import format_time
from slackwater.deployment.fragments import seen_of
from slackwater.deployment.windows import describe_window
from slackwater.model.deployment import QuerySpec
from slackwater.model.durations import format_duration_us
from slackwater.model.errors import CheckFailed, EnvironmentProblem, UsageError
from slackwater.model.names import Names, base_of, latest_generation
from slackwater.model.row_fields import described
from slackwater.primitives.eventclock import EventClock
from slackwater.runtime.logs.admin import Admin
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.topics import partition_counts, retention_ms
from slackwater.runtime.logs.transport import LogError
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.datadir import RunFile, is_running, read_run
from slackwater.runtime.service.heartbeats import HeartbeatListener
from slackwater.runtime.service.registry import QueryDefinition, Registry
from slackwater.status.copies import on_one_node
from slackwater.status.last_readings import is_source_log, of_cluster
from slackwater.status.overview import Overview
from slackwater.status.processes import ObservedHeartbeat, Picture, look_at
from slackwater.status.queries import streams_of

Q = TypeVar("Q")
ASK_S_MAX: Final = 5.0
LISTEN_S: Final = 0.8
"""Heartbeats come every 100 ms; a process without one within this time is absent."""
LISTEN_S_MAX: Final = 3.0
"""Maximum wait for expected processes, whose heartbeats are late if CPU is scarce."""
WATCH_S: Final = 2.0


def print_results(
    cluster: Cluster,
    names: Names,
    query: str,
    follow: bool,
    kinds: set[str],
    format_: str,
    from_: str,
    *,
    by_window: bool = False,
) -> None:
    """Run the command ``results``; ``by_window``: one order over all parts."""
    if format_ not in {"table", "jsonl"}:
        raise UsageError(f"--format {format_}: choose table or jsonl")
    if from_ not in {"beginning", "end"}:
        raise UsageError(f"--from {from_}: choose beginning or end")
    if unknown := kinds - KINDS:
        raise UsageError(
            f"--kind {', '.join(sorted(unknown))}: choose among {', '.join(sorted(KINDS))}"
        )
    query, queries = base_of(query), registered(cluster, names)
    topic = names.results(query, "stable")
    if latest_generation(query, queries) is None and not partition_counts(cluster, [topic]):
        raise unknown_query(query, queries)
    found = latest_of(query, queries)
    of = (
        PrintedQuery()
        if found is None
        else PrintedQuery(frozenset(streams_of(found, queries)), found.spec.parts)
    )
    console = Console()
    # Tables of windows need their boundaries.
    in_tables = console.is_terminal and not kinds and format_ == "table"
    in_tables &= found is not None and found.spec.window is not None
    wanted = kinds or (KINDS if format_ == "jsonl" or in_tables else KINDS - {"boundary"})
    tables_of_windows = WindowTables(console, of)
    start: From = "end" if from_ == "end" else "beginning"
    stream = Client(cluster, prefix=names.prefix).follow(
        query, kinds=wanted, from_=start, until_end=not follow, by_window=by_window
    )
    with stream:
        if not stream.has_begun:
            warn(f"slackwater: {nothing_yet(query, found, SystemClock().now_us())}")
        printed, shown = 0, ShownAnswers()
        is_view = not kinds and format_ == "table"
        try:
            for record in stream:
                if is_view and not shown.concerns(record):
                    continue
                printed += not in_tables or record["kind"] != "boundary"
                if in_tables:
                    tables_of_windows.show(record)
                elif format_ == "table":
                    emit(tables.line(record, of))
                else:
                    emit(orjson.dumps(record).decode(), is_json=True)
        except KeyboardInterrupt:
            pass  # the normal end of following
    if stream.has_begun and not printed:
        warn(f"slackwater: {no_row(query, kinds, is_part=start == 'end')}")
    if not printed and not follow and found is not None:
        note = refused_note(cluster, names, streams_of(found, queries))
        if note:
            warn(f"slackwater: {note}")
    if stream.repeats:
        warn(f"slackwater: {stream.repeats} results occurred twice; please report this")


def print_status(
    cluster: Cluster,
    names: Names,
    directory: Path,
    format_: str,
    *,
    watch: bool,
    verbose: bool = False,
    everything: bool = False,
    controls: Controls = NO_CONTROLS,
) -> None:
    """Run the command ``status``; ``everything``: the object of ``--json``.

    Raises:
        CheckFailed: a process is missing, late or overloaded, no copy of a stage is ready, or the
            controllers report a fragment that does not run or a node with a problem.
    """
    if format_ not in {"table", "json"}:
        raise UsageError(f"--format {format_}: choose table or json")
    picture, overview = None, None
    with (
        _Looking(cluster, names, directory) as looking,
        controls,
        _Screen(watch=watch) as screen,
    ):
        try:
            for seen in looking.pictures():
                overview = controls.look()
                picture = replace(seen, queries=on_one_node(seen.queries, overview))
                now_us = SystemClock().now_us()
                if everything:
                    emit(json.dumps(page_json(picture, overview, now_us), indent=2), is_json=True)
                elif format_ == "json":
                    emit(_as_json(picture, overview), is_json=True)
                else:
                    shown = page(picture, overview, now_us, cluster.bootstrap, verbose=verbose)
                    screen.show(shown)
                if not watch:
                    break
        except KeyboardInterrupt:
            pass  # the normal end of watching
    wrong = [*(picture.wrong if picture else ()), *(overview.wrong if overview else ())]
    if wrong:
        raise CheckFailed("; ".join(shortened(wrong)))


def _as_json(picture: Picture, overview: Overview | None = None) -> str:
    """Return the list of processes; of nodes an object, in which that list is ``processes``."""
    rows = [row.to_json() for row in picture.rows]
    if overview is None or not overview.has_nodes:
        return json.dumps(rows, indent=2)
    return json.dumps({"processes": rows} | overview.to_json(), indent=2)


class _Looking:
    """Receives heartbeats while entered; each picture is the state received by then."""

    def __init__(self, cluster: Cluster, names: Names, directory: Path) -> None:
        self._where, self._directory = (cluster.bootstrap, names), directory
        self._cluster = cluster
        self._transport = KafkaTransport(cluster, names)
        self._listener = HeartbeatListener(self._transport)
        self._last_readings = of_cluster(cluster, self._transport)
        self._queries: dict[str, QueryDefinition] = {}
        self._clock: EventClock | None = None

    def __enter__(self) -> _Looking:
        self._listener.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.stop()

    def pictures(self) -> Iterator[Picture]:
        """Yield a picture once all expected processes were received, then every ``WATCH_S``."""
        # A process that no query requires has no known name, so listen for the whole time.
        self._listener.wait_for(lambda view: False, LISTEN_S)
        self._queries = self._registered()
        specs = {name: query.spec for name, query in self._queries.items()}
        self._listener.wait_for(
            lambda view: {*seen_of(specs, view.all()).values()} <= view.all().keys(),
            LISTEN_S_MAX - LISTEN_S,
        )
        while True:
            beats = self._listener.all()
            latest = {
                n: ObservedHeartbeat(beat, self._listener.age_ms(n) or 0.0)
                for n, beat in beats.items()
            }
            now_us = SystemClock().now_us()
            event_us = None if self._clock is None else self._clock.event(now_us)
            run = self._run()
            lives, pids = (None, None) if run is None else (run.lives, run.processes)
            seen = look_at(latest, self._queries, lives, now_us, event_us, pids)
            yield self._last_readings.complete(seen)
            self._listener.wait_for(lambda view: False, WATCH_S)
            self._queries = self._registered()

    def _registered(self) -> dict[str, QueryDefinition]:
        """Return the queries; while the broker does not answer, the previous ones."""
        try:
            found = registered(self._cluster, self._transport.names)
            if found and self._clock is None:
                self._clock = Registry(self._transport).clock()
            return {name: query for name, query in found.items() if query.state == "running"}
        except (LogError, EnvironmentProblem):
            return self._queries

    def _run(self) -> RunFile | None:
        """Return the supervisor's record if this data directory is of the deployment shown."""
        try:
            run = read_run(self._directory)
        except EnvironmentProblem as error:
            warn(f"slackwater: {error.message}")
            return None
        if run is None or (run.bootstrap, run.names) != self._where:
            return None
        return run if is_running(self._directory) else None


class _Screen:
    """Shows pages one after another: in a terminal with ``watch`` each replaces the last."""

    def __init__(self, *, watch: bool) -> None:
        self._console = Console()
        self._live = Live(console=self._console, auto_refresh=False, screen=watch)
        self._in_place = watch and repaints(self._console)
        self._last: Sequence[PageLine] = ()

    def __enter__(self) -> _Screen:
        if self._in_place:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._in_place:
            self._live.stop()
            self._console.print(rich_page(self._last))  # the last page stays

    def show(self, lines: Sequence[PageLine]) -> None:
        """Show this page."""
        self._last = lines = [PageLine(visible(x.name), visible(x.text), x.style) for x in lines]
        if self._in_place:
            self._live.update(rich_page(lines), refresh=True)
        elif self._console.is_terminal:
            self._console.print(rich_page(lines))
        else:
            emit(plain(lines))


def print_queries(cluster: Cluster, names: Names) -> None:
    """Run the command ``query list``."""
    queries = registered(cluster, names)
    if not queries:
        emit("no query is registered")
    for query in queries.values():
        is_paused = query.state == "paused"
        emit(describe(query.name, query.spec, query.generation, is_paused=is_paused))


def describe(name: str, spec: QuerySpec, generation: int, *, is_paused: bool) -> str:
    """Describe a query in one line."""
    window = "every reading"
    if spec.window is not None:
        window = f"window {describe_window(spec.window)}"
    answer = "  ".join(filter(None, (window, ", ".join(described(spec.aggregate, spec.of_fields)))))
    return (
        f"{name:<20} from {', '.join(spec.sources)}  {answer}"
        f"  bound {format_duration_us(spec.bound_us)}"
        f"  generation {generation}{'  paused' if is_paused else ''}"
    )


def print_query(cluster: Cluster, names: Names, name: str) -> None:
    """Run the command ``query show``."""
    emit(json.dumps(registered_query(cluster, names, name).to_json(), indent=2))


def registered(cluster: Cluster, names: Names) -> dict[str, QueryDefinition]:
    """Return all registered queries; none if no deployment was ever started."""
    if not partition_counts(cluster, [names.registry]):
        return {}  # reading a missing topic would wait for it
    return Registry(KafkaTransport(cluster, names)).queries()


def registered_query(cluster: Cluster, names: Names, name: str) -> QueryDefinition:
    """Return a registered query; of a changed query, the latest generation.

    ``UsageError`` lists the registered ones.
    """
    queries = registered(cluster, names)
    found = latest_of(name, queries)
    if found is None:
        raise unknown_query(name, queries)
    return found


def latest_of(name: str, queries: Mapping[str, Q]) -> Q | None:
    """Return the query of this name; of a changed query, the latest generation."""
    return queries.get(name) or queries.get(latest_generation(name, queries) or name)


def kept_for(cluster: Cluster, names: Names, query: str) -> str:
    """Return a line on how long the inputs of a paused query are kept.

    Proxies continue to write the source logs of a paused query, so only the logs' retention counts.

    Raises:
        EnvironmentProblem: Kafka does not answer, or the query is not registered yet.
    """
    found = latest_of(query, registered(cluster, names))
    if found is None:
        raise EnvironmentProblem(f"query {query} is not registered yet")
    try:
        topics = Admin(cluster).list_topics(ASK_S_MAX)
    except KafkaException as error:
        raise EnvironmentProblem(f"no broker answers: {error}") from None
    inputs = [t for t in topics if any(_is_input(t, s, names) for s in found.spec.sources)]
    kept = [ms for ms in retention_ms(cluster, inputs, ASK_S_MAX).values() if ms >= 0]
    if not kept:
        return "its inputs are kept forever"
    return (
        f"its inputs are kept for {format_duration_us(1_000 * min(kept))}: readings that are"
        " deleted before it is resumed are reported as gaps"
    )


def _is_input(topic: str, source: str, names: Names) -> bool:
    """Whether a topic is a source log of a stream, or the exact results of a query."""
    return topic == names.results(source, "stable") or is_source_log(topic, source, names)


def unknown_query(name: str, queries: Iterable[str]) -> UsageError:
    """Return the error for a name that is not among these queries; it lists them."""
    known = ", ".join(dict.fromkeys(map(base_of, queries))) or "none yet"
    return UsageError(f"there is no query {name}; registered: {known}")


def no_row(name: str, kinds: Collection[str], *, is_part: bool = False) -> str:
    """Return the message for a query that has answers, of which none was printed.

    ``is_part``: only answers after the start of the command were read.
    """
    if is_part:
        return (
            f"no answer of {name} came since the start of this command: earlier ones are shown"
            " without `--from end`"
        )
    what = f"is of kind {', '.join(sorted(kinds))}" if kinds else "has a row"
    return (
        f"{name} has answers, and none of them {what}: its windows are empty if no reading reaches"
        f" them. `slackwater results {name} --kind boundary` lists them, and `slackwater quarantine"
        " STREAM` shows readings that were refused"
    )


def nothing_yet(name: str, query: QueryDefinition | None, now_us: int) -> str:
    """Return the message for a query without results, with the time of the first one.

    A query whose start time depends on its readings is registered only after the first reading.
    """
    if query is None or query.spec.window is None:
        return f"{name} has no results yet: the first ones follow the first readings"
    grid = query.grid
    end = grid.window_end(grid.first_window_holding(query.e0_us))
    tense = "ends" if end > now_us else "ended"
    return (
        f"{name} has no results yet: its first window {tense} at {format_time(end)}; its"
        f" answer comes at most {format_duration_us(query.spec.bound_us)} (the bound) after its"
        " normal time. `slackwater status` shows whether all processes are ready"
    )
