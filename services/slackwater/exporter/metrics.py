"""Prometheus metrics, derived from the public results and heartbeats.

The pipeline's processes serve no metrics: so metrics cannot contradict the logs, no fragment opens
a port, and a process that hangs cannot report itself as healthy. Window counters start from zero
with the exporter; states are the heartbeats received by the time of the scrape.
"""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Summary
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from slackwater.codec.results import parse_time
from slackwater.deployment.fragments import seen_in
from slackwater.exporter.early_errors import EarlyErrors, Verdict
from slackwater.model.deployment import Deployment, QuerySpec, WindowSpec
from slackwater.model.kinds import KINDS, NOTIFIER
from slackwater.model.names import kind_of, stream_of
from slackwater.model.records import Heartbeat
from slackwater.primitives.windows import Grid
from slackwater.proxy.quarantine import NOT_FINITE, REASONS
from slackwater.runtime.service.beat import CPU_MS, CPU_WAIT_MS
from slackwater.runtime.service.heartbeat_view import STALE_S
from slackwater.runtime.service.heartbeats import (
    HeartbeatListener,
)
from slackwater.runtime.service.parts import (
    AWAY_SINCE,
    HAS,
    MADE_AGAIN,
    OFFERED,
    OFFSET_MS,
    RECEIVER,
    SKIPPED,
    SKIPPED_BY,
    TRUNCATED,
)

LATENCY_S: Final = (0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 4, 6, 10, 30, 60)
VERDICTS: Final = get_args(Verdict)
STATES: Final = ("STABLE", "UP_FAILURE", "STABILIZATION", "FOLLOWING")
FRONTIERS: Final = {"stable_to": "stable", "stable_from": "stable", "live_to": "live"}
"""A fragment's counters that are event times, and the line whose progress they give."""
GAUGES: Final = {
    "overdue_ms": (
        "slackwater_overdue_seconds",
        "Time by which the next window exceeds its bound.",
    ),
    "commit_ms": ("slackwater_commit_seconds", "The longest transaction of the last second."),
    CPU_MS: (
        "slackwater_process_cpu_cores",
        "Cores used by the process; repeated for each of its streams.",
    ),
    CPU_WAIT_MS: (
        "slackwater_process_cpu_wait_seconds",
        "Seconds per second that its threads waited for a core.",
    ),
}
"""Heartbeat counters in ms that become gauges in seconds."""
RECEIVER_GAUGES: Final = {
    "sent": ("slackwater_notifier_sent", "Alerts acknowledged since the start of the notifier."),
    "waiting": ("slackwater_notifier_waiting", "Alerts that wait for the receiver."),
    "failures": ("slackwater_notifier_failures", "Failed attempts of the first that waits."),
    "behind_ms": ("slackwater_notifier_behind_seconds", "How long the first has waited."),
}
"""Figures of a receiver of alerts, in the heartbeat of the notifier."""
TOPIC_CHANGES: Final = {MADE_AGAIN: "made_again", TRUNCATED: "truncated", AWAY_SINCE: "away"}
"""Heartbeat details of a proxy whose topic has changed, and their label."""


class ResultMetrics:
    """Counts answers. ``take`` gets every record of a query's results in order.

    A latency is what a reader of committed results observed: from a window's normal time to
    ``seen_at``, when its boundary of the last part was read. So it includes the commit, which
    ``emitted_at`` does not. Each window of a boundary that stands for a run counts.
    """

    def __init__(self, registry: CollectorRegistry, deployment: Deployment) -> None:
        self._latencies = _Latencies()
        registry.register(self._latencies)
        self._windows = Counter(
            "slackwater_windows", "Windows answered.", ["query", "label"], registry=registry
        )
        self._undone = Counter(
            "slackwater_undo", "UNDO records: tentative answers revoked.", ["query"],
            registry=registry,
        )  # fmt: skip
        self._late_windows = Counter(
            "slackwater_windows_beyond_bound",
            "Windows first answered later than the bound after their normal time.",
            ["query"],
            registry=registry,
        )
        self._bound = Gauge(
            "slackwater_bound_seconds",
            "X in force: in a chain the smallest bound among a query and its readers.",
            ["query"],
            registry=registry,
        )
        self._first: dict[str, _FirstAnswers] = {}
        self._errors = _Errors(registry)
        self._lock = threading.Lock()
        self.report(deployment)

    def report(self, deployment: Deployment) -> None:
        """Report these queries from now on; the metrics of others are removed."""
        with self._lock:
            for query in self._first.keys() - deployment.queries.keys():
                self._remove(query)
            for query, spec in deployment.queries.items():
                bound_us = deployment.bound_us(spec)
                units = spec.units(spec.bucket_us())
                due_spacing_us = units.slide_us if deployment.clock == "wall" else 0
                self._bound.labels(query).set(bound_us / 1e6)
                first = _FirstAnswers(spec.parts, units, due_spacing_us, bound_us)
                known = self._first.get(query)
                if known is not None and known.counts_like(first):
                    known.bound_us = bound_us
                    continue
                self._first[query] = first
                self._errors.report(query, spec)
                self._late_windows.labels(query)
                for label in ("stable", "tentative"):
                    self._windows.labels(query, label)  # exported from the start, at 0

    def _remove(self, query: str) -> None:
        del self._first[query]
        self._errors.remove(query)
        for by_query in (self._undone, self._late_windows, self._bound):
            with contextlib.suppress(KeyError):  # no such record yet
                by_query.remove(query)
        for label in ("stable", "tentative"):
            self._windows.remove(query, label)
            self._latencies.remove(query, label)

    def take(self, record: Mapping[str, Any]) -> None:
        """Accept a record of the result topics, with ``seen_at``."""
        query = record["query"]
        with self._lock:
            first = self._first.get(query)
            if first is None:
                return  # deleted meanwhile
            self._errors.take(record)
            if record["kind"] == "undo":
                self._undone.labels(query).inc()
            if record["kind"] != "boundary":
                return
            self._windows.labels(query, record["label"]).inc(record["windows"])
            run = first.take(record)
            if run is not None:
                self._latencies.observe(query, record["label"], run)
                self._late_windows.labels(query).inc(run.above(first.bound_us))


class _Errors:
    """How wrong tentative answers were; of queries with windows, since else a row is a reading."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._early: dict[str, EarlyErrors] = {}
        self._greatest_of: defaultdict[str, dict[str, float]] = defaultdict(dict)
        """By query and figure."""
        self._rows = Counter(
            "slackwater_tentative_rows",
            "Tentative rows whose window is exact now: right, off, or gone (no exact row).",
            ["query", "verdict"],
            registry=registry,
        )
        self._error = Summary(
            "slackwater_tentative_error",
            "How far a figure of a tentative row was from the exact one, in its own unit.",
            ["query", "figure"],
            registry=registry,
        )
        self._greatest = Gauge(
            "slackwater_tentative_error_max",
            "The greatest of these since the start of the exporter.",
            ["query", "figure"],
            registry=registry,
        )

    def report(self, query: str, spec: QuerySpec) -> None:
        """Judge the answers of this query from now on."""
        self.remove(query)
        if spec.window is not None:
            self._early[query] = EarlyErrors()
            for verdict in VERDICTS:
                self._rows.labels(query, verdict)

    def remove(self, query: str) -> None:
        """Forget a query and its metrics."""
        if self._early.pop(query, None) is None:
            return
        for verdict in VERDICTS:
            self._rows.remove(query, verdict)
        for figure in self._greatest_of.pop(query, ()):
            self._error.remove(query, figure)
            self._greatest.remove(query, figure)

    def take(self, record: Mapping[str, Any]) -> None:
        """Accept a record of a query's results."""
        query = record["query"]
        early = self._early.get(query)
        for row in () if early is None else early.take(record):
            self._rows.labels(query, row.verdict).inc()
            for figure, error in row.errors.items():
                self._error.labels(query, figure).observe(error)
                of = self._greatest_of[query]
                of[figure] = max(error, of.get(figure, 0.0))
                self._greatest.labels(query, figure).set(of[figure])


@dataclass(frozen=True, slots=True)
class AnsweredWindows:
    """Windows answered at once: the first one waited ``longest_us``, each later one less."""

    windows: int
    longest_us: int
    spacing_us: int

    @property
    def total_us(self) -> int:
        """Return the sum of the latencies."""
        n = self.windows
        return n * self.longest_us - self.spacing_us * n * (n - 1) // 2

    def above(self, limit_us: int) -> int:
        """Return the number of windows with a greater latency."""
        excess_us = self.longest_us - limit_us
        if excess_us <= 0:
            return 0
        return (
            min(self.windows, -(-excess_us // self.spacing_us)) if self.spacing_us else self.windows
        )


class _FirstAnswers:
    """Finds the windows that a boundary completes over all parts, for one query.

    An answer is a window's first if it is tentative, or stable with epoch 0. The normal times of a
    run are ``due_spacing_us`` apart: one slide, in a calendar the usual length. Where the clock
    follows the data they are unknown, and that of the last window is used for all.
    """

    def __init__(self, parts: int, units: WindowSpec, due_spacing_us: int, bound_us: int) -> None:
        self.bound_us = bound_us
        self._parts, self._units, self._due_spacing_us = parts, units, due_spacing_us
        self._grid = Grid(units.slide_us, units)
        self._answered: dict[int, int] = {}
        self._counted = 0

    def counts_like(self, other: _FirstAnswers) -> bool:
        """Return whether both count windows in the same way; their bounds may differ."""
        mine = (self._parts, self._units, self._due_spacing_us)
        return mine == (other._parts, other._units, other._due_spacing_us)

    def take(self, record: Mapping[str, Any]) -> AnsweredWindows | None:
        """Return the windows whose first answer is complete in every part with this boundary."""
        if record["label"] == "stable" and record["epoch"] != 0:
            return None
        part, start = record["part"], parse_time(record["window_start"])
        grid = self._grid
        if not grid.is_start(start):
            return None  # no root can have written it
        end = grid.later(start, record["windows"])
        if start != self._answered.get(part):
            # The part's first record, or the first after a loss: earlier windows are unknown.
            self._counted = max(self._counted, start) if self._answered else start
        self._answered[part] = end
        complete = min(self._answered.values())
        if len(self._answered) < self._parts or complete <= self._counted:
            return None
        windows = grid.windows_between(self._counted, complete)
        after_last = grid.windows_between(self._counted, end) - 1
        first_due = parse_time(record["due_at"]) - after_last * self._due_spacing_us
        self._counted = complete
        return AnsweredWindows(
            windows, parse_time(record["seen_at"]) - first_due, self._due_spacing_us
        )


class _Latencies(Collector):
    """A histogram that counts a run of a million windows in one step.

    The histogram of the client library would need one call per window.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, str], list[int]] = {}
        self._sums_us: dict[tuple[str, str], int] = {}

    def observe(self, query: str, label: str, run: AnsweredWindows) -> None:
        """Count these windows."""
        below = [run.windows - run.above(round(limit * 1e6)) for limit in LATENCY_S]
        with self._lock:
            counts = self._counts.setdefault((query, label), [0] * (len(LATENCY_S) + 1))
            for i, count in enumerate([*below, run.windows]):
                counts[i] += count
            of = (query, label)
            self._sums_us[of] = self._sums_us.get(of, 0) + run.total_us

    def remove(self, query: str, label: str) -> None:
        """Forget these counts."""
        with self._lock:
            self._counts.pop((query, label), None)
            self._sums_us.pop((query, label), None)

    def collect(self) -> Iterable[Metric]:
        """Return the counts so far."""
        family = HistogramMetricFamily(
            "slackwater_first_answer_latency_seconds",
            "From a window's normal time until its first answer could be read, committed.",
            labels=["query", "label"],
        )
        limits = [*map(floatToGoString, LATENCY_S), "+Inf"]
        with self._lock:
            for of, counts in self._counts.items():
                buckets = list(zip(limits, map(float, counts), strict=True))
                family.add_metric(list(of), buckets, self._sums_us[of] / 1e6)
        return [family]


def heartbeat_metrics(
    beats: Mapping[str, Heartbeat],
    ages_ms: Mapping[str, float],
    event_us: int | None,
    expected: Collection[str] = (),
) -> Iterable[Metric]:
    """Derive metrics from the latest heartbeats. ``event_us``: the event clock, where known.

    A process in ``expected`` that never sent a heartbeat is reported as not ready. A fragment that
    is not expected is reported while its heartbeats arrive: its query was paused or deleted. So is
    the aggregator of a node, which may have left; those of `up` are not expected beside it.
    """
    ready = GaugeMetricFamily(
        "slackwater_process_ready",
        "1 if a recent heartbeat reports the process ready.",
        labels=["process"],
    )
    state = GaugeMetricFamily(
        "slackwater_output_state", "1 for the state an output is in.",
        labels=["process", "output", "state"],
    )  # fmt: skip
    lag = GaugeMetricFamily(
        "slackwater_lag_seconds", "Event clock less the event time that the line has reached.",
        labels=["process", "line"],
    )  # fmt: skip
    refused = GaugeMetricFamily(
        "slackwater_quarantined_readings", "Readings that could not be used.",
        labels=["stream", "reason"],
    )  # fmt: skip
    not_finite = GaugeMetricFamily(
        "slackwater_not_finite_values",
        "Values that were NaN or Infinity in JSON, since the start of the proxy: missing values.",
        labels=["stream"],
    )
    changed = GaugeMetricFamily(
        "slackwater_topic_changes",
        "Partitions whose topic was made again or was truncated; 1 while the topic is away.",
        labels=["stream", "change"],
    )
    shares = GaugeMetricFamily(
        "slackwater_field_share",
        "Share of the readings since the start of the proxy that have the field.",
        labels=["stream", "field"],
    )
    offsets = GaugeMetricFamily(
        "slackwater_device_offset_seconds",
        "Time of a device's reading less the clock of its proxy: the ten largest of each proxy.",
        labels=["process", "key"],
    )
    skipped = GaugeMetricFamily(
        "slackwater_skipped_numbers",
        "Numbers that devices have skipped since the start of the proxy, by their counters.",
        labels=["stream"],
    )
    skipped_by = GaugeMetricFamily(
        "slackwater_device_skipped_numbers",
        "Numbers that a device has skipped since the start of the proxy: the ten largest.",
        labels=["process", "key"],
    )
    of_receivers = {
        figure: GaugeMetricFamily(metric, text, labels=["receiver"])
        for figure, (metric, text) in RECEIVER_GAUGES.items()
    }
    gauges = {
        name: GaugeMetricFamily(metric, text, labels=["process"])
        for name, (metric, text) in GAUGES.items()
    }
    expected = frozenset(seen_in(expected, beats).values())
    of_queries = {name for name in beats if kind_of(name) in KINDS and not stream_of(name)}
    may_end = of_queries - expected
    for process in sorted(expected - beats.keys()):
        ready.add_metric([process], 0.0)
    quarantined: defaultdict[tuple[str, str], int] = defaultdict(int)
    missing: defaultdict[str, int] = defaultdict(int)
    lost: defaultdict[str, int] = defaultdict(int)
    changes: defaultdict[tuple[str, str], int] = defaultdict(int)
    have: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for process, beat in beats.items():
        latest = ages_ms[process] <= STALE_S * 1000
        if not latest and process in may_end:
            continue
        ready.add_metric([process], float(beat.ready and latest))
        for output, emitted in beat.states.items():
            for each in STATES if process != NOTIFIER else ():
                state.add_metric([process, output, each], float(latest and emitted == each))
        for name, count in beat.detail.items():
            if name in FRONTIERS and event_us is not None:
                lag.add_metric([process, FRONTIERS[name]], (event_us - count) / 1e6)
            elif name.startswith(RECEIVER) and latest:
                receiver, _, figure = name.removeprefix(RECEIVER).rpartition(".")
                value = count / 1e3 if figure == "behind_ms" else count
                of_receivers[figure].add_metric([receiver], float(value))
            elif name in REASONS:
                quarantined[stream_of(process), name] += count
            elif name == NOT_FINITE:
                missing[stream_of(process)] += count
            elif name == SKIPPED:
                lost[stream_of(process)] += count
            elif name.startswith(SKIPPED_BY) and latest:
                skipped_by.add_metric([process, name.removeprefix(SKIPPED_BY)], count)
            elif name in TOPIC_CHANGES:
                stream = stream_of(process)
                changes[stream, TOPIC_CHANGES[name]] += 1 if name == AWAY_SINCE else count
            elif name.startswith(HAS):
                of = have[stream_of(process), name.removeprefix(HAS)]
                of[0] += count
                of[1] += beat.detail.get(OFFERED, 0)
            elif name.startswith(OFFSET_MS) and latest:
                offsets.add_metric([process, name.removeprefix(OFFSET_MS)], count / 1e3)
            elif name in gauges and latest:
                gauges[name].add_metric([process], count / 1e3)
    for (stream, reason), count in quarantined.items():
        refused.add_metric([stream, reason], count)
    for stream, count in missing.items():
        not_finite.add_metric([stream], count)
    for stream, count in lost.items():
        skipped.add_metric([stream], count)
    for (stream, change), count in changes.items():
        changed.add_metric([stream, change], count)
    for (stream, field), (count, offered) in have.items():
        if offered:
            shares.add_metric([stream, field], min(1.0, count / offered))
    of_streams = refused, not_finite, skipped, skipped_by, changed, shares, offsets
    return ready, state, lag, *of_streams, *of_receivers.values(), *gauges.values()


class HeartbeatCollector(Collector):
    """Collects heartbeat metrics at each scrape."""

    def __init__(
        self,
        listener: HeartbeatListener,
        event_us: Callable[[], int | None],
        expected: Callable[[], Collection[str]],
    ) -> None:
        self._listener = listener
        self._event_us = event_us
        self._expected = expected

    def collect(self) -> Iterable[Metric]:
        """Return the metrics of the heartbeats received so far."""
        beats = self._listener.all()
        ages_ms = {process: self._listener.age_ms(process) or 0.0 for process in beats}
        return heartbeat_metrics(beats, ages_ms, self._event_us(), self._expected())
