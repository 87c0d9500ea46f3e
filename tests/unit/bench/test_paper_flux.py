"""The bench of the Flux paper: which node is killed, which windows count as wrong, and its page."""

from __future__ import annotations

from typing import Any

import pytest
from bench.paper_flux.answers import PartAnswers
from bench.paper_flux.failure import victim_of
from bench.paper_flux.page import page

from slackwater.runtime.logs.kafka import KafkaTransport

ROOTS = {"root/bench.0.a": "n1", "root/bench.0.b": "n2", "root/bench.1.a": "n2"}
END = "2026-01-01T00:00:01.000000Z"
AT_S = 1_767_225_601.0
"""The same moment."""


def row(kind: str, **fields: Any) -> dict[str, Any]:
    return {"kind": kind, "part": 0, "window_end": END} | fields


def boundary(label: str = "stable") -> dict[str, Any]:
    return row("boundary", label=label, due_at=END)


def counting(count: int, kind: str = "stable") -> dict[str, Any]:
    return row(kind, fields={"v": {"count": count}})


def answers(*rows: dict[str, Any]) -> PartAnswers:
    """What a reader has seen half a second after the window's end."""
    found = PartAnswers(KafkaTransport("nowhere"), 1)
    for each in rows:
        found._take(each, AT_S + 0.5)
    return found


def test_the_node_that_answers_most_parts_is_killed() -> None:
    answering = {"root/bench.0.b": 0, "root/bench.1.a": 1}
    assert victim_of(ROOTS, answering) == ("n2", [0, 1])


def test_a_node_with_an_input_is_killed_only_if_no_other_one_answers() -> None:
    with_proxy = ROOTS | {"proxy/s1/0": "n2"}
    assert victim_of(with_proxy, {"root/bench.0.a": 0, "root/bench.1.a": 1}) == ("n1", [0])
    assert victim_of(with_proxy, {"root/bench.1.a": 1}) == ("n2", [1])


CORRECTED = counting(7, "tentative"), boundary("tentative"), counting(10), boundary()


@pytest.mark.parametrize("rows", [(counting(6), counting(4), boundary()), CORRECTED])
def test_a_window_with_each_reading_in_one_stable_answer_is_right(rows: Any) -> None:
    assert answers(*rows).wrong(AT_S - 1, AT_S, 10) == []


@pytest.mark.parametrize("rows", [
    pytest.param((counting(9), boundary()), id="a reading is lost"),
    pytest.param((counting(10, "tentative"), boundary("tentative")), id="never stable"),
    pytest.param((counting(10), boundary(), boundary()), id="answered twice"),
])  # fmt: skip
def test_any_other_window_is_wrong(rows: Any) -> None:
    assert answers(*rows).wrong(AT_S - 1, AT_S, 10) == [END]


def test_the_first_answer_counts_whatever_its_label() -> None:
    found = answers(*CORRECTED)
    (first,) = found.due(AT_S, AT_S + 1)
    assert (first.counted, first.is_tentative) == (7, True)
    assert first.late_s == pytest.approx(0.5)


def test_the_page_has_a_failures_figures_or_tells_how_to_measure_them() -> None:
    kill = {
        "later_ms": [10.0, 200.0], "latest_ms": 210.0, "others_later_ms": 3.0, "ready_s": 4.0,
        "tentative": 0, "ran": ["root/bench.0.a"],
    }  # fmt: skip
    found = {
        "kills": [kill], "wrong": [], "nodes": 4, "parts": 4, "readings_per_s": 5_000,
        "machine": "", "at": "2026-01-01",
    }  # fmt: skip
    assert "p50 105 ms, p99 198 ms" in page({"failure": found})
    assert "To be measured" in page({})
