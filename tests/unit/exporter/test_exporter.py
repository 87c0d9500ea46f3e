"""The exporter's metrics: windows by kind, latency of first answers, states, lag, quarantine."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry
from tests.support.memory import MemoryBroker
from tests.unit.machine.test_layout import query, stream

from slackwater.codec.results import format_time
from slackwater.exporter.app import Queries
from slackwater.exporter.metrics import ResultMetrics, heartbeat_metrics
from slackwater.exporter.queries import QUERIES_MAX, answering
from slackwater.model.deployment import Deployment, QuerySpec
from slackwater.model.names import generation_of
from slackwater.model.records import Heartbeat
from slackwater.runtime.logs.topics import topics_for
from slackwater.runtime.service.registry import QueryDefinition, QueryState, Registry

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


def boundary(
    label: str, second: int, late_us: int, windows: int = 1, epoch: int | None = None, part: int = 0
) -> dict[str, object]:
    """Return a boundary.

    Its last window is read ``late_us`` after its normal time, emitted 10 ms before.
    """
    due = (second + windows) * S
    return {
        "query": "q",
        "part": part,
        "kind": "boundary",
        "label": label,
        "epoch": int(label == "tentative") if epoch is None else epoch,
        "window_start": format_time(second * S),
        "window_end": format_time(due),
        "windows": windows,
        "due_at": format_time(due),
        "emitted_at": format_time(due + late_us - 10_000),
        "seen_at": format_time(due + late_us),
    }


class Page:
    """A scrape after these records of query q; X is 2 s."""

    def __init__(self, *records: dict[str, object], deployment: Deployment = DEPLOYMENT) -> None:
        self._registry = CollectorRegistry()
        self.metrics = ResultMetrics(self._registry, deployment)
        for record in records:
            self.metrics.take(record)

    def value(self, name: str, **labels: str) -> float | None:
        return self._registry.get_sample_value(f"slackwater_{name}", {"query": "q"} | labels)

    @property
    def first_answers(self) -> float:
        name = "first_answer_latency_seconds_count"
        return sum(self.value(name, label=each) or 0.0 for each in ("stable", "tentative"))


LATENCY = "first_answer_latency_seconds"


def test_windows_are_counted_by_kind_and_only_first_answers_have_a_latency() -> None:
    page = Page(
        boundary("stable", 1, 40_000),
        boundary("tentative", 2, 1_900_000),
        {"query": "q", "part": 0, "kind": "undo"},
        boundary("stable", 2, 9_000_000, epoch=1),  # replaces the tentative one
        boundary("stable", 3, 60_000, windows=4),
    )
    assert page.value("windows_total", label="stable") == 6
    assert page.value("windows_total", label="tentative") == 1
    assert page.value("undo_total") == 1
    assert page.value(f"{LATENCY}_sum", label="tentative") == 1.9
    assert page.value(f"{LATENCY}_bucket", label="stable", le="0.05") == 1
    assert page.value("bound_seconds") == DEPLOYMENT.queries["q"].bound_us / S


def row(label: str, second: int, average: float | None) -> dict[str, object]:
    """Return a row of key k."""
    bounds = {"window_start": format_time(second * S), "window_end": format_time((second + 1) * S)}
    fields = {"t": {"avg": average}}
    return {"query": "q", "part": 0, "kind": label, "key": "k", "fields": fields, **bounds}


def test_the_error_of_tentative_answers_by_figure() -> None:
    wrong = [(2, 20.0, 20.5), (3, 20.0, 22.0), (4, 20.0, 20.0)]
    page = Page(
        *(each for n, early, _ in wrong for each in (
            row("tentative", n, early), boundary("tentative", n, 0))),
        {"query": "q", "part": 0, "kind": "undo"},
        *(each for n, _, exact in wrong for each in (
            row("stable", n, exact), boundary("stable", n, 0, epoch=1))),
        row("stable", 5, 1.0), boundary("stable", 5, 0),
    )  # fmt: skip
    assert page.value("tentative_rows_total", verdict="off") == 2
    assert page.value("tentative_rows_total", verdict="right") == 1
    assert page.value("tentative_rows_total", verdict="gone") == 0
    assert page.value("tentative_error_count", figure="t_avg") == 3
    assert page.value("tentative_error_sum", figure="t_avg") == 2.5
    assert page.value("tentative_error_max", figure="t_avg") == 2.0
    page.metrics.report(replace(DEPLOYMENT, queries={}))
    assert page.value("tentative_error_sum", figure="t_avg") is None
    assert page.value("tentative_rows_total", verdict="off") is None


def test_each_window_of_a_run_has_a_latency_of_its_own() -> None:
    """Seconds 1 to 5 in one boundary: the last 0.2 s after its normal time, the first 4.2 s."""
    page = Page(boundary("stable", 1, 200_000, windows=5))
    assert page.value(f"{LATENCY}_count", label="stable") == 5
    assert page.value(f"{LATENCY}_sum", label="stable") == pytest.approx(0.2 * 5 + 1 + 2 + 3 + 4)
    for limit, below in {"0.1": 0, "0.2": 1, "1.0": 1, "1.5": 2, "4.0": 4, "6.0": 5}.items():
        assert page.value(f"{LATENCY}_bucket", label="stable", le=limit) == below
    assert page.value(f"{LATENCY}_bucket", label="stable", le="+Inf") == 5
    assert page.value("windows_beyond_bound_total") == 3, "X is 2 s"


def test_windows_beyond_the_bound_are_counted_once_each() -> None:
    page = Page(boundary("stable", 0, 2_000_000))
    assert page.value("windows_beyond_bound_total") == 0, "at X"
    late = boundary("tentative", 1, 2_000_001)
    corrected = boundary("stable", 1, 60_000_000, epoch=1)
    assert Page(late, corrected).value("windows_beyond_bound_total") == 1


def test_overdue_windows_that_were_skipped_are_late_first_answers_each() -> None:
    skipped = boundary("tentative", 1, 2_500_000, windows=100) | {"skipped": True, "missing": ["s"]}
    page = Page(skipped, boundary("stable", 1, 9_000_000, windows=100, epoch=1))
    assert page.first_answers == 100
    assert page.value("windows_beyond_bound_total") == 100


def test_a_million_windows_in_a_run_cost_no_more_than_one() -> None:
    page = Page(boundary("stable", 0, 0, windows=1_000_000))
    assert page.first_answers == 1_000_000
    assert page.value("windows_beyond_bound_total") == 999_997


def test_the_commit_is_in_the_latency() -> None:
    """The time of a reader of committed results.

    ``emitted_at`` is 10 ms before in these records.
    """
    assert Page(boundary("stable", 1, 40_000)).value(f"{LATENCY}_sum", label="stable") == 0.04


def test_the_answers_that_replace_a_run_of_tentative_ones_are_not_the_first() -> None:
    """W1-W4 are empty and tentative in one record; of the stable ones W3 has a row."""
    page = Page(
        boundary("tentative", 1, 1_900_000, windows=4),
        boundary("stable", 1, 9_000_000, windows=2, epoch=1),
        boundary("stable", 3, 8_000_000, epoch=1),
        boundary("stable", 4, 7_000_000, epoch=1),
    )
    assert page.first_answers == 4


def test_an_exporter_that_starts_amid_corrections_takes_none_for_a_first_answer() -> None:
    assert Page(boundary("stable", 1, 600_000_000, epoch=7)).first_answers == 0


def test_windows_before_1970_have_a_latency_too() -> None:
    assert Page(boundary("stable", -7, 40_000), boundary("stable", -6, 9)).first_answers == 2


def test_a_window_is_answered_when_its_last_part_is() -> None:
    two = Deployment("wall", {"s": stream("s")}, {"q": query("q", "s", parts=2)})
    page = Page(
        boundary("stable", 1, 100_000),
        boundary("stable", 2, 100_000),
        boundary("stable", 2, 3_000_000, part=1),
        boundary("stable", 3, 200_000, windows=2, part=1),
        boundary("stable", 3, 400_000),
        deployment=two,
    )
    assert page.first_answers == 2, "second 1 was not read from part 1; 4 is absent from part 0"
    assert page.value(f"{LATENCY}_sum", label="stable") == pytest.approx(3.4)
    assert page.value("windows_beyond_bound_total") == 1


def test_in_a_chain_the_smallest_bound_is_in_force() -> None:
    queries = {"q": query("q", "s"), "r": replace(query("r", "q"), bound_us=S)}
    chain = Deployment("wall", {"s": stream("s")}, queries)
    page = Page(boundary("stable", 1, 1_500_000), deployment=chain)
    assert page.value("bound_seconds") == 1.0
    assert page.value("windows_beyond_bound_total") == 1


def test_where_the_clock_follows_the_data_a_run_has_one_normal_time() -> None:
    data = Deployment("data", {"s": stream("s")}, {"q": query("q", "s")})
    page = Page(boundary("stable", 1, 0, windows=9), deployment=data)
    assert page.value("windows_beyond_bound_total") == 0


def test_heartbeats_tell_states_lag_and_quarantine() -> None:
    proxy = replace(BEAT, process="proxy/s", states={}, detail={"late": 4, "not_finite": 2})
    second = replace(proxy, process="proxy/s.1", detail={"late": 3, "not_finite": 5})
    beats = {"root/q.0": BEAT, "proxy/s": proxy, "proxy/s.1": second}
    ages = {"root/q.0": 100.0, "proxy/s": 5_000.0, "proxy/s.1": 100.0}
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for metric in heartbeat_metrics(beats, ages, 9 * S)
        for sample in metric.samples
    }

    assert found["slackwater_process_ready", "root/q.0"] == 1
    assert found["slackwater_process_ready", "proxy/s"] == 0, "not received for 5 s"
    output = "sw.results.q.stable"
    assert found["slackwater_output_state", "root/q.0", output, "STABLE"] == 1
    assert found["slackwater_output_state", "root/q.0", output, "UP_FAILURE"] == 0
    assert found["slackwater_lag_seconds", "root/q.0", "stable"] == 2
    assert found["slackwater_quarantined_readings", "s", "late"] == 4 + 3
    assert found["slackwater_not_finite_values", "s"] == 2 + 5


def test_heartbeats_tell_the_share_of_fields_and_the_clocks_of_devices() -> None:
    detail = {"offered": 200, "has.t": 200, "has.h": 0, "there.humidity": 1, "offset_ms.a": 7_200}
    detail |= {"skipped": 3, "skipped_devices": 1, "skipped.a": 3}
    first = replace(BEAT, process="proxy/s", states={}, detail=detail)
    second = replace(first, process="proxy/s.1", detail={"offered": 200, "has.t": 100, "has.h": 0})
    silent = replace(first, process="proxy/r", detail={"offered": 0, "has.t": 0, "offset_ms.b": 1})
    beats = {beat.process: beat for beat in (first, second, silent)}
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for metric in heartbeat_metrics(beats, dict.fromkeys(beats, 100.0) | {"proxy/r": 9e9}, None)
        for sample in metric.samples
        if sample.name in {"slackwater_field_share", "slackwater_device_offset_seconds"}
        or "skipped" in sample.name
    }
    assert found == {
        ("slackwater_field_share", "s", "t"): 0.75,
        ("slackwater_field_share", "s", "h"): 0.0,
        ("slackwater_device_offset_seconds", "proxy/s", "a"): 7.2,
        ("slackwater_skipped_numbers", "s"): 3,
        ("slackwater_device_skipped_numbers", "proxy/s", "a"): 3,
    }


def test_a_notifier_tells_what_its_receivers_have_got() -> None:
    detail = {"sent": 7, "waiting": 2, "failures": 3, "behind_ms": 1_500}
    beat = replace(
        BEAT,
        process="notifier",
        states={"webhook": "answered 503"},
        detail={f"receiver.webhook.{name}": n for name, n in detail.items()},
    )

    def found(age_ms: float) -> dict[tuple[str, ...], float]:
        return {
            (sample.name, *sample.labels.values()): sample.value
            for metric in heartbeat_metrics({"notifier": beat}, {"notifier": age_ms}, None)
            for sample in metric.samples
        }

    assert found(100.0) == {
        ("slackwater_process_ready", "notifier"): 1,
        ("slackwater_notifier_sent", "webhook"): 7,
        ("slackwater_notifier_waiting", "webhook"): 2,
        ("slackwater_notifier_failures", "webhook"): 3,
        ("slackwater_notifier_behind_seconds", "webhook"): 1.5,
    }
    assert found(9e9) == {("slackwater_process_ready", "notifier"): 0}


def test_heartbeats_tell_cpu_commits_and_who_is_missing() -> None:
    detail = {"overdue_ms": 1_500, "commit_ms": 20, "cpu_ms_per_s": 250, "cpu_wait_ms_per_s": 3_000}
    expected = ("root/q.0", "orderer/q.0.a")
    metrics = heartbeat_metrics(
        {"root/q.0": replace(BEAT, detail=detail)}, {"root/q.0": 1.0}, None, expected
    )
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for metric in metrics
        for sample in metric.samples
    }
    assert found["slackwater_overdue_seconds", "root/q.0"] == 1.5
    assert found["slackwater_commit_seconds", "root/q.0"] == 0.02
    assert found["slackwater_process_cpu_cores", "root/q.0"] == 0.25
    assert found["slackwater_process_cpu_wait_seconds", "root/q.0"] == 3.0
    assert found["slackwater_process_ready", "orderer/q.0.a"] == 0, "never heard"
    assert found["slackwater_process_ready", "root/q.0"] == 1


def test_without_a_clock_that_is_known_there_is_no_lag() -> None:
    names = {
        sample.name
        for metric in heartbeat_metrics({"root/q.0": BEAT}, {"root/q.0": 1.0}, None)
        for sample in metric.samples
    }
    assert "slackwater_lag_seconds" not in names


def test_the_last_heartbeat_of_a_fragment_that_is_not_expected_is_not_reported() -> None:
    """Its query was deleted or paused: it would otherwise be an alert for ever."""
    beats = {name: replace(BEAT, process=name) for name in ("root/q.0", "root/old.0", "proxy/s")}
    ages = dict.fromkeys(beats, 5_000.0)

    def reported(ages: dict[str, float]) -> set[str]:
        metrics = heartbeat_metrics(beats, ages, None, ("root/q.0",))
        return {sample.labels["process"] for metric in metrics for sample in metric.samples}

    assert reported(ages) == {"root/q.0", "proxy/s"}
    assert reported(ages | {"root/old.0": 10.0}) == set(beats), "while it runs"


A, B = "aggregator/q.0.a", "aggregator/q.0.b"
"""Fragments without heartbeats of their own."""


@pytest.mark.parametrize(
    ("aggregators", "ages_ms", "not_ready"),
    [
        ({}, {}, {"aggregator/0", "aggregator/1"}),
        ({"aggregator/0": []}, {}, {"aggregator/1"}),
        ({"aggregator/n1": []}, {}, {A, B}),
        ({"aggregator/n1": ["q.0.a"]}, {}, {B}),
        ({"aggregator/n1": ["q.0.a", "q.0.b"]}, {}, set()),
        (
            {"aggregator/n1": ["q.0.a", "q.0.b"], "aggregator/7": []},
            {"aggregator/7": 60_000.0},
            set(),
        ),
        (
            {"aggregator/n1": ["q.0.a"], "aggregator/n2": ["q.0.b"]},
            {"aggregator/n2": 6e4},
            {"aggregator/n2"},
        ),
    ],
)
def test_an_aggregator_is_expected_where_a_heartbeat_named_its_fragments(
    aggregators: dict[str, list[str]], ages_ms: dict[str, float], not_ready: set[str]
) -> None:
    """Which nodes have one depends on the placement, and a node may leave for good."""
    beats = {
        name: replace(BEAT, process=name, states=dict.fromkeys(fragments, "STABLE"))
        for name, fragments in aggregators.items()
    }
    metrics = heartbeat_metrics(beats, dict.fromkeys(beats, 1.0) | ages_ms, None, (A, B))
    ready = {
        sample.labels["process"]: sample.value
        for metric in metrics
        for sample in metric.samples
        if sample.name == "slackwater_process_ready"
    }
    assert {name for name, is_ready in ready.items() if not is_ready} == not_ready
    assert {name for name, is_ready in ready.items() if is_ready} == beats.keys() - ages_ms.keys()


def defined(spec: QuerySpec, state: QueryState = "running") -> QueryDefinition:
    return QueryDefinition(spec.name, generation_of(spec.name), 0, S, spec, state=state)


def found(*definitions: QueryDefinition) -> dict[str, QueryDefinition]:
    return {each.name: each for each in definitions}


Q, ADDED, CHANGED = query("q", "s"), query("added", "s"), query("q.g1", "s", parts=2)


class Exporter:
    """The queries of an exporter, and the followers that run."""

    def __init__(self) -> None:
        self.page = Page()
        self.following: set[str] = set()
        self._changed = threading.Condition()
        self.queries = Queries(DEPLOYMENT, self.page.metrics, self._follow)

    def _follow(self, query: str, ended: threading.Event) -> None:
        with self._changed:
            self.following.add(query)
            self._changed.notify_all()
        ended.wait()
        with self._changed:
            self.following.discard(query)
            self._changed.notify_all()

    def follows(self, *queries: str) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self.following == set(queries), 10)


def test_queries_that_are_applied_and_deleted_later_are_reported_and_removed() -> None:
    exporter = Exporter()
    assert exporter.follows("q")
    exporter.queries.take(found(defined(Q), defined(ADDED)))
    assert exporter.follows("q", "added")
    assert exporter.page.value("windows_total", query="added", label="stable") == 0
    assert {"root/added.0", "orderer/added.0.a"} <= {*exporter.queries.processes}
    exporter.page.metrics.take(boundary("stable", 1, 40_000) | {"query": "added"})
    assert exporter.page.value(f"{LATENCY}_count", query="added", label="stable") == 1

    exporter.queries.take(found(defined(Q), defined(ADDED, "deleted")))
    assert exporter.follows("q")
    exporter.page.metrics.take(boundary("stable", 2, 40_000) | {"query": "added"})
    for name in ("windows_total", f"{LATENCY}_count"):
        assert exporter.page.value(name, query="added", label="stable") is None
    assert exporter.page.value("bound_seconds", query="added") is None
    assert not any("added" in name for name in exporter.queries.processes)


def test_a_stream_that_was_added_with_a_query_has_a_proxy() -> None:
    exporter = Exporter()
    far = query("far", "added-stream")
    applied = Deployment("wall", {"added-stream": stream("added-stream")}, {"far": far})
    exporter.queries.take(found(defined(Q), replace(defined(far), deployment=applied)))
    assert "proxy/added-stream" in exporter.queries.processes
    paused = replace(defined(far, "paused"), deployment=applied)
    exporter.queries.take(found(defined(Q), paused))
    assert "proxy/added-stream" in exporter.queries.processes, "it is read"
    deleted = replace(defined(far, "deleted"), deployment=applied)
    exporter.queries.take(found(defined(Q), deleted))
    assert "proxy/added-stream" not in exporter.queries.processes


def test_a_query_without_answers_can_be_deleted() -> None:
    exporter = Exporter()
    exporter.queries.take(found(defined(Q, "deleted")))
    assert exporter.follows()
    assert exporter.page.value("windows_total", label="stable") is None


def test_a_paused_query_keeps_its_metrics_and_is_expected_nowhere() -> None:
    exporter = Exporter()
    exporter.page.metrics.take(boundary("stable", 1, 40_000))
    exporter.queries.take(found(defined(Q, "paused")))
    assert exporter.page.value("windows_total", label="stable") == 1
    assert not any("/q." in name for name in exporter.queries.processes)
    exporter.queries.take(found(defined(Q, "paused"), defined(CHANGED)))
    assert "orderer/q.g1.0.a" in exporter.queries.processes
    assert "root/q.g1.0" in exporter.queries.processes, "it follows the paused one"


def test_a_generation_is_measured_when_the_earlier_one_has_ended() -> None:
    exporter = Exporter()
    exporter.queries.take(found(defined(Q), defined(CHANGED)))
    exporter.page.metrics.take(boundary("stable", 1, 40_000))
    assert exporter.page.value(f"{LATENCY}_count", label="stable") == 1, "still one part"
    assert {"orderer/q.g1.0.a", "root/q.0"} <= {*exporter.queries.processes}

    exporter.queries.take(found(defined(Q, "deleted"), defined(replace(CHANGED, bound_us=S))))
    assert exporter.follows("q"), "the results' name is the query's"
    assert exporter.page.value("bound_seconds") == 1.0
    exporter.page.metrics.take(boundary("stable", 2, 40_000))
    assert exporter.page.value(f"{LATENCY}_count", label="stable") == 1, "a part is absent"
    exporter.page.metrics.take(boundary("stable", 2, 40_000, part=1))
    assert exporter.page.value(f"{LATENCY}_count", label="stable") == 2
    assert exporter.page.value("windows_total", label="stable") == 3
    assert {"root/q.g1.0", "root/q.g1.1"} <= {*exporter.queries.processes}
    assert "root/q.0" not in exporter.queries.processes


def test_a_change_elsewhere_does_not_restart_the_count_of_a_run() -> None:
    exporter = Exporter()
    exporter.page.metrics.take(boundary("stable", 1, 40_000))
    exporter.queries.take(found(defined(Q), defined(ADDED)))
    exporter.page.metrics.take(boundary("stable", 1, 40_000))
    assert exporter.page.value(f"{LATENCY}_count", label="stable") == 1, "the same window"


def test_the_number_of_queries_with_metrics_is_bounded() -> None:
    specs = [query(f"a{n}", "s") for n in range(QUERIES_MAX + 5)]
    present = answering(DEPLOYMENT, found(*map(defined, specs)))
    assert len(present.queries) == QUERIES_MAX
    assert "q" in present.queries, "of the file"


@pytest.mark.timeout(60)
def test_the_registry_is_followed() -> None:
    broker = MemoryBroker()
    for spec in topics_for([], []):
        broker.create_topic(spec.name, spec.partitions)
    registry, stopping = Registry(broker), threading.Event()
    exporter = Exporter()
    thread = threading.Thread(target=exporter.queries.run, args=(registry, stopping))
    thread.start()
    registry.publish_queries(defined(Q))
    registry.publish_queries(defined(ADDED))
    assert exporter.follows("q", "added")
    registry.publish_queries(defined(ADDED, "deleted"))
    assert exporter.follows("q")
    stopping.set()
    thread.join()
