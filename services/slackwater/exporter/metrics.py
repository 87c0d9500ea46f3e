"""What Prometheus is told, made of two things that everybody may read: results and heartbeats.

The processes themselves serve nothing: a metric is then no second truth beside the logs, no port is
open in a fragment, and a process that hangs cannot say that it is well. Counters of windows begin
at the exporter's start, as counters do; states are what was heard when Prometheus asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from slackwater.codec.results import parse_time
from slackwater.model.deployment import Deployment
from slackwater.model.records import Heartbeat
from slackwater.proxy.quarantine import REASONS
from slackwater.runtime.heartbeats import HeartbeatListener, stale_s

LATENCY_S: Final = (0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 4, 6, 10, 30, 60)
STATES: Final = ("STABLE", "UP_FAILURE", "STABILIZATION")
FRONTIERS: Final = {"stable_to": "stable", "stable_from": "stable", "live_to": "live"}
"""A fragment's counters that are event times, and the line whose place they tell."""


class ResultMetrics:
    """Counts what is answered. ``take`` gets every record of a query's results in order."""

    def __init__(self, registry: CollectorRegistry, deployment: Deployment) -> None:
        self._answered_to: dict[tuple[str, int], int] = {}
        self._windows = Counter(
            "slackwater_windows", "Windows answered.", ["query", "label"], registry=registry
        )
        self._undone = Counter(
            "slackwater_undo", "UNDO records: tentative answers revoked.", ["query"],
            registry=registry,
        )  # fmt: skip
        self._latency = Histogram(
            "slackwater_first_answer_latency_seconds",
            "From a window's normal time to its first answer.",
            ["query", "label"],
            buckets=LATENCY_S,
            registry=registry,
        )
        bound = Gauge("slackwater_bound_seconds", "X of the query.", ["query"], registry=registry)
        for query in deployment.queries.values():
            bound.labels(query.name).set(query.bound_us / 1e6)
            for label in ("stable", "tentative"):
                self._windows.labels(query.name, label)  # there from the start, at 0

    def take(self, record: Mapping[str, Any]) -> None:
        """A record as the result topics carry it."""
        query = record["query"]
        if record["kind"] == "undo":
            self._undone.labels(query).inc()
        if record["kind"] != "boundary":
            return
        label = record["label"]
        self._windows.labels(query, label).inc(record["windows"])
        # Answers come in window order, so one behind all tentative ones replaces none.
        # By their ends: a record may answer a run of windows, and begins with the first of them.
        part, end = (query, record["part"]), parse_time(record["window_end"])
        answered_to = self._answered_to.get(part)
        if answered_to is None or end > answered_to:
            self._answered_to[part] = end
            late_us = parse_time(record["emitted_at"]) - parse_time(record["due_at"])
            self._latency.labels(query, label).observe(late_us / 1e6)


def heartbeat_metrics(
    beats: Mapping[str, Heartbeat], ages_ms: Mapping[str, float], event_us: int | None
) -> Iterable[Metric]:
    """What the processes say now. ``event_us``: what the event clock shows, where it is known."""
    ready = GaugeMetricFamily(
        "slackwater_process_ready", "Heard lately and at its work.", labels=["process"]
    )
    state = GaugeMetricFamily(
        "slackwater_output_state", "1 for the state an output is in.",
        labels=["process", "output", "state"],
    )  # fmt: skip
    lag = GaugeMetricFamily(
        "slackwater_lag_seconds", "Event clock less what the line has reached.",
        labels=["process", "line"],
    )  # fmt: skip
    refused = GaugeMetricFamily(
        "slackwater_quarantined_readings", "Readings that could not be used.",
        labels=["stream", "reason"],
    )  # fmt: skip
    for process, beat in beats.items():
        heard = ages_ms[process] <= stale_s * 1000
        ready.add_metric([process], float(beat.ready and heard))
        for output, said in beat.states.items():
            for each in STATES:
                state.add_metric([process, output, each], float(heard and said == each))
        for name, count in beat.detail.items():
            if name in FRONTIERS and event_us is not None:
                lag.add_metric([process, FRONTIERS[name]], (event_us - count) / 1e6)
            elif name in REASONS:
                refused.add_metric([process.partition("/")[2], name], count)
    return ready, state, lag, refused


class HeartbeatCollector(Collector):
    """Asks at each scrape."""

    def __init__(self, listener: HeartbeatListener, event_us: Callable[[], int | None]) -> None:
        self._listener = listener
        self._event_us = event_us

    def collect(self) -> Iterable[Metric]:
        """What was heard up to now."""
        beats = self._listener.all()
        ages_ms = {process: self._listener.age_ms(process) or 0.0 for process in beats}
        return heartbeat_metrics(beats, ages_ms, self._event_us())
