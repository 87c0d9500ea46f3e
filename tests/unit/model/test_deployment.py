"""The deployment as values: derived orders, and durations."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.model.deployment import (
    Deployment,
    FieldSpec,
    HttpInputSpec,
    HttpListenSpec,
    JoinSpec,
    KeySpec,
    QuerySpec,
    StreamSpec,
    TimeSpec,
    WindowSpec,
)
from slackwater.model.durations import format_duration_us, parse_duration_us
from slackwater.model.names import ROOT


def stream(
    name: str, *fields: str, disorder_us: int = 0, expect_every_us: int | None = None
) -> StreamSpec:
    return StreamSpec(
        name,
        KeySpec(column="k"),
        TimeSpec(("t",), unit="s"),
        tuple(FieldSpec(field, field) for field in fields),
        disorder_us=disorder_us,
        expect_every_us=expect_every_us,
    )


def query(
    *sources: str, children: int = 1, select: tuple[tuple[str, str], ...] | None = None
) -> QuerySpec:
    return QuerySpec(
        "q",
        sources,
        where="a > 1",
        select=select,
        window=WindowSpec(1_000_000, 500_000),
        aggregate=("count", "avg"),
        bound_us=2_000_000,
        children=children,
    )


def deployment(spec: QuerySpec, *streams: StreamSpec) -> Deployment:
    return Deployment("wall", {s.name: s for s in streams}, {"q": spec})


def test_fields_stand_in_the_order_of_first_appearance() -> None:
    # Neither the file's order of streams nor the alphabetical one: the order of `from`.
    d = deployment(query("s2", "s1"), stream("s1", "a", "c"), stream("s2", "b", "c", "d"))
    assert d.streams_of("q") == ("s2", "s1")
    assert d.input_fields("q") == ("b", "c", "d", "a")
    assert d.output_fields("q") == ("b", "c", "d", "a")


def test_select_has_exactly_its_fields() -> None:
    d = deployment(query("s", select=(("z", "a"), ("y", "a + 1"))), stream("s", "a", "b"))
    assert d.output_fields("q") == ("z", "y")
    assert d.input_fields("q") == ("a", "b")


def test_lateness_is_the_largest_sum_of_disorder_and_expect_every_of_one_stream() -> None:
    slow, silent = stream("s1", disorder_us=700), stream("s2", disorder_us=5, expect_every_us=10)
    d = deployment(query("s1"), slow, silent)
    assert d.lateness_us("q") == 700
    assert d.lateness_us(query("s1", "s2")) == 700, "s2 has passed long before"
    assert d.lateness_us(query("s2")) == 15
    rare = stream("s3", disorder_us=100, expect_every_us=900)
    assert deployment(query("s1"), slow, rare).lateness_us(query("s1", "s3")) == 1_000


def test_deadlines_form_a_ladder() -> None:
    d = deployment(query("s"), stream("s"))
    assert [d.deadline_us("q", kind) for kind in ("orderer", "root")] == [1_900_000, 1_950_000]
    assert d.deadline_us("q") == d.deadline_us("q", "orderer"), "the first"
    with pytest.raises(ValueError, match="aggregator"):
        d.deadline_us("q", "aggregator")


def test_a_query_travels_as_json() -> None:
    for spec in (query("s1", "s2", select=(("x", "a"),)), query("s")):
        assert QuerySpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    with pytest.raises(TypeError):
        QuerySpec.from_json({**query("s").to_json(), "new": 1})


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("0ms", 0),
        ("1us", 1),
        ("50ms", 50_000),
        ("2s", 2_000_000),
        ("1.5m", 90_000_000),
        ("0.1ms", 100),
        ("1.0000019s", 1_000_001),
        ("2h", 7_200_000_000),
        ("1d", 86_400_000_000),
        (" 5 s ", 5_000_000),
        ("36525d", 36_525 * 86_400_000_000),
    ],
)
def test_durations(text: str, us: int) -> None:
    assert parse_duration_us(text) == us


@pytest.mark.parametrize(
    "text",
    [
        *("", "5", "s", "-1s", "+1s", "1 sec", "1S", "1,5s", ".5s", "1.s", "1e3s", "1s 2ms", "٣s"),
        *("nan s", "inf s", "36526d", "9" * 30 + "s", "1s\n2s"),
    ],
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|hundred years"):
        parse_duration_us(text)


@given(st.integers(0, 10**15))
def test_a_duration_is_written_as_it_is_read(us: int) -> None:
    assert parse_duration_us(format_duration_us(us)) == us


def test_a_duration_is_written_short() -> None:
    written = [format_duration_us(us) for us in (0, 1_500_000, 120_000_000, 86_400_000_000, 7)]
    assert written == ["0s", "1500ms", "2m", "1d", "7us"]


def test_without_a_window_a_bucket_is_what_is_answered_as_one() -> None:
    windowed = QuerySpec("q", ("s",), None, None, WindowSpec(30, 10), ("count",), 2_000_000)
    rows = dataclasses.replace(windowed, window=None, aggregate=())
    assert windowed.units(10_000) == WindowSpec(30, 10)
    assert rows.units(10_000) == WindowSpec(10_000, 10_000)
    joined = dataclasses.replace(windowed, join=JoinSpec("s", "t", 1_000_000))
    assert [q.bucket_us() for q in (windowed, joined, rows)] == [250_000, 100_000, 10_000]
    assert (rows.bucket_us(60), rows.bucket_us(1e-9)) == (600_000, 1)
    assert QuerySpec.from_json(rows.to_json()) == rows


def test_all_generations_of_a_query_have_its_readers() -> None:
    q, p = query("s1"), dataclasses.replace(query("q"), name="p", bound_us=1_000_000)
    later = dataclasses.replace(query("s2"), name="q.g2", aggregate=("count", "avg", "max"))
    streams = {name: stream(name, name[1:]) for name in ("s1", "s2")}
    both = Deployment("wall", streams, {"q": q, "q.g2": later, "p": p})
    for generation in ("q", "q.g2"):
        assert both.deadline_us(generation, ROOT) == 1_000_000 - 3 * 50_000
        assert both.bound_of(generation) == p
        assert both.bound_at(both.queries[generation]) == p
    # The earliest one is read, until it has ended.
    assert both.query_read("q") == q
    assert both.queries_of("p") == ("q",)
    assert both.source_streams("p") == ("s1",)
    assert both.connected("q.g2").queries == both.queries
    changed = Deployment("wall", streams, {"q.g2": later, "p": p})
    assert changed.query_read("q") == later
    assert changed.query_read("s1") is None
    assert changed.queries_of("p") == ("q.g2",)
    assert changed.source_streams("p") == ("s2",)
    assert changed.fields_of("q") == ("2_count", "2_avg", "2_max")
    assert changed.stages("p") == 4
    assert changed.connected("p").queries == changed.queries


def test_what_a_query_over_http_needs_has_the_address_that_is_listened_on() -> None:
    posted = dataclasses.replace(stream("s1"), http=HttpInputSpec())
    queries = {"q": query("s1"), "p": dataclasses.replace(query("s2"), name="p")}
    listen = HttpListenSpec("0.0.0.0", 9000, "own.pem", "own.key")
    both = Deployment("wall", {"s1": posted, "s2": stream("s2")}, queries, http=listen)
    assert both.connected("q").http == listen
    assert both.connected("p").http == HttpListenSpec(), "equal queries have equal texts"
    assert both.connected("q", "p") == both
