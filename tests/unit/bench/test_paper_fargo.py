"""The bench of the thesis: which nodes are killed, which windows count as wrong, and its page."""

from __future__ import annotations

from typing import Any

import pytest
from bench.paper_fargo.latency import CHILDREN, PARTS, Windows, victims_of
from bench.paper_fargo.page import page, rows_of
from bench.paper_fargo.sensors import SENSORS, TICK_US, events

from slackwater.runtime.logs.kafka import KafkaTransport

END_S = 1_767_225_610
END = "2026-01-01T00:00:10.000000Z"
REPLICAS = "ab"


def placed(*nodes: str) -> dict[str, str]:
    """Each child's replicas on neighbours; the proxy is on the first node."""
    found = {"proxy/sensors": nodes[0]}
    for child in range(CHILDREN):
        for replica, letter in enumerate(REPLICAS):
            node = nodes[(child + replica) % len(nodes)]
            found[f"orderer/fargo.{child}.{letter}"] = node
    return found


def test_the_node_with_the_proxy_is_never_killed() -> None:
    for count in (1, 2):
        assert "n1" not in victims_of(placed("n1", "n2", "n3", "n4"), count)


def test_two_victims_leave_each_child_a_replica_if_possible() -> None:
    assert victims_of(placed("n1", "n2", "n3", "n4"), 2) == ("n2", "n4")


def boundary(label: str) -> dict[str, Any]:
    return {"kind": "boundary", "label": label, "window_end": END}


def counting(count: int, kind: str = "stable") -> dict[str, Any]:
    return {"kind": kind, "window_end": END, "fields": {"value": {"count": count}}}


def seen(*rows: dict[str, Any]) -> Windows:
    found = Windows(KafkaTransport("nowhere"))
    for row in rows:
        found.take(row, END_S + 0.25)
    return found


def test_a_window_is_right_if_each_event_is_in_one_exact_answer() -> None:
    rows = counting(4, "tentative"), boundary("tentative"), counting(6), counting(4)
    found = seen(*rows, boundary("stable"))
    assert found.wrong([END_S], 10) == []
    window = found.of[END_S]
    assert window.first_is_tentative
    assert window.first_s == pytest.approx(0.25)
    assert window.exact_s == pytest.approx(0.25)


@pytest.mark.parametrize("rows", [
    pytest.param((counting(9), boundary("stable")), id="an event is lost"),
    pytest.param((counting(10, "tentative"), boundary("tentative")), id="never exact"),
    pytest.param((counting(10), boundary("stable"), boundary("stable")), id="answered twice"),
])  # fmt: skip
def test_any_other_window_is_wrong(rows: Any) -> None:
    assert seen(*rows).wrong([END_S], 10) == [END_S]


def test_a_tick_has_its_events_within_it_and_of_the_size_of_the_thesis() -> None:
    tick = END_S * 1_000_000 // TICK_US
    for sensor in range(SENSORS):
        found = events(sensor, tick, 61)
        assert len(found) == 61
        assert all(90 <= len(event) <= 110 for event in found)
        assert b"2026-01-01T00:00:10.000000Z" in found[0]
        assert b"2026-01-01T00:00:10.019672Z" in found[-1]


def row(replicas: int, killed: int, cut: str, *exact_ms: float) -> dict[str, Any]:
    return {
        "replicas": replicas, "killed": killed, "cut": cut, "exact_ms": list(exact_ms),
        "first_ms": list(exact_ms), "tentative": 0,
    }  # fmt: skip


def part(replicas: int, *rows: dict[str, Any]) -> dict[str, Any]:
    return {
        "rows": list(rows), "replicas": replicas, "cores": {"broker": 0.5}, "windows": 12,
        "wrong": [], "events": 180_000, "per_s": 3_000, "machine": "", "at": "2026-01-01",
    }  # fmt: skip


def test_the_page_has_the_parts_that_there_are_or_tells_how_to_measure_them() -> None:
    kept = {
        "cut-3": part(2, row(2, 0, "-", 40.0, 60.0), row(2, 1, "3", 55.0)),
        "cut-6": part(2, row(2, 0, "-", 80.0), row(2, 1, "6", 57.0)),
    }
    assert rows_of(kept)[0]["exact_ms"] == [40.0, 60.0, 80.0]
    shown = page(kept)
    assert "| 2 | none | - | 3 | 103 | 60, at most 80 | 60, at most 80 | 0 |" in shown
    assert "Of 12 windows none lacked one of 180,000 events" in shown
    assert "alone" not in shown
    assert "To be measured" in page({})
    assert {*kept} < {*PARTS}
