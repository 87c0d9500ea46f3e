"""What Prometheus is told: windows by kind, latency of first answers, states, lag, quarantine."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client import CollectorRegistry
from tests.unit.test_layout import query, stream

from slackwater.codec.results import format_time
from slackwater.exporter.metrics import ResultMetrics, heartbeat_metrics
from slackwater.model.deployment import Deployment
from slackwater.model.records import Heartbeat

S = 1_000_000
DEPLOYMENT = Deployment("wall", {"s": stream("s")}, {"q": query("q", "s")})
BEAT = Heartbeat(
    process="root/q.0",
    pid=1,
    started_at=0,
    at=0,
    inc=3,
    ready=True,
    states={"sw.results.q.stable": "STABLE"},
    detail={"stable_from": 7 * S, "keys": 3},
)


def boundary(label: str, second: int, late_us: int, windows: int = 1) -> dict[str, object]:
    return {
        "query": "q",
        "part": 0,
        "kind": "boundary",
        "label": label,
        "window_start": format_time(second * S),
        "window_end": format_time((second + windows) * S),
        "windows": windows,
        "due_at": format_time((second + 1) * S),
        "emitted_at": format_time((second + 1) * S + late_us),
    }


def test_windows_are_counted_by_kind_and_only_first_answers_have_a_latency() -> None:
    registry = CollectorRegistry()
    metrics = ResultMetrics(registry, DEPLOYMENT)
    metrics.take(boundary("stable", 1, 40_000))
    metrics.take(boundary("tentative", 2, 1_900_000))
    metrics.take({"query": "q", "part": 0, "kind": "undo"})
    metrics.take(boundary("stable", 2, 9_000_000))  # replaces the tentative one
    metrics.take(boundary("stable", 3, 60_000, windows=4))

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"slackwater_{name}", {"query": "q"} | labels)

    assert value("windows_total", label="stable") == 6
    assert value("windows_total", label="tentative") == 1
    assert value("undo_total") == 1
    latency = "first_answer_latency_seconds"
    assert value(f"{latency}_count", label="stable") == 2
    assert value(f"{latency}_sum", label="tentative") == 1.9
    assert value(f"{latency}_bucket", label="stable", le="0.05") == 1
    assert value("bound_seconds") == DEPLOYMENT.queries["q"].bound_us / S


def count_of_first_answers(*records: dict[str, object]) -> float:
    registry = CollectorRegistry()
    metrics = ResultMetrics(registry, DEPLOYMENT)
    for record in records:
        metrics.take(record)
    name = "slackwater_first_answer_latency_seconds_count"
    labels = ("stable", "tentative")
    found = (registry.get_sample_value(name, {"query": "q", "label": each}) for each in labels)
    return sum(value or 0.0 for value in found)


def test_the_answers_that_replace_a_run_of_tentative_ones_are_not_the_first() -> None:
    """W1-W4 are empty and tentative in one record; of the exact ones W3 has a row."""
    records = [
        boundary("tentative", 1, 1_900_000, windows=4),
        boundary("stable", 1, 9_000_000, windows=2),
        boundary("stable", 3, 8_000_000),
        boundary("stable", 4, 7_000_000),
    ]
    assert count_of_first_answers(*records) == 1


def test_windows_before_1970_have_a_latency_too() -> None:
    assert count_of_first_answers(boundary("stable", -7, 40_000), boundary("stable", -6, 9)) == 2


def test_heartbeats_tell_states_lag_and_quarantine() -> None:
    proxy = replace(BEAT, process="proxy/s", states={}, detail={"late": 4})
    beats = {"root/q.0": BEAT, "proxy/s": proxy}
    ages = {"root/q.0": 100.0, "proxy/s": 5_000.0}
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for metric in heartbeat_metrics(beats, ages, 9 * S)
        for sample in metric.samples
    }

    assert found["slackwater_process_ready", "root/q.0"] == 1
    assert found["slackwater_process_ready", "proxy/s"] == 0, "not heard for 5 s"
    output = "sw.results.q.stable"
    assert found["slackwater_output_state", "root/q.0", output, "STABLE"] == 1
    assert found["slackwater_output_state", "root/q.0", output, "UP_FAILURE"] == 0
    assert found["slackwater_lag_seconds", "root/q.0", "stable"] == 2
    assert found["slackwater_quarantined_readings", "s", "late"] == 4


def test_without_a_clock_that_is_known_there_is_no_lag() -> None:
    names = {
        sample.name
        for metric in heartbeat_metrics({"root/q.0": BEAT}, {"root/q.0": 1.0}, None)
        for sample in metric.samples
    }
    assert "slackwater_lag_seconds" not in names
