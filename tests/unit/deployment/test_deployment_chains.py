"""Chains in the deployment: derived values, and limits of the file."""

from __future__ import annotations

import pytest

from slackwater.deployment.parse import parse_deployment
from slackwater.model.deployment import Deployment
from slackwater.model.errors import DeploymentError
from slackwater.model.names import ORDERER, ROOT

HEAD = """\
apiVersion: slackwater/v1
streams:
  s: {key: {column: k}, time: {column: t, unit: s}, fields: [x], disorder: 200ms}
  u: {key: {column: k}, time: {column: t, unit: s}, fields: [x, y], disorder: 0ms, expect_every: 1s}
queries:
"""


def query(name: str, sources: str, bound: str = "8s", more: str = "") -> str:
    return (
        f"  {name}: {{from: [{sources}], window: {{size: 1s}}, aggregate: [count, avg],"
        f" bound: {bound}, replicas: 1{more}}}\n"
    )


def parsed(*queries: str, head: str = HEAD) -> Deployment:
    return parse_deployment(head + "".join(queries), "f.yaml").deployment


def refusal(*queries: str, head: str = HEAD) -> list[str]:
    with pytest.raises(DeploymentError) as caught:
        parse_deployment(head + "".join(queries), "f.yaml")
    return str(caught.value).splitlines()


FOUR = (query("d", "c"), query("c", "b"), query("b", "a"), query("a", "s"))


def test_a_chain_of_four_is_a_ladder_of_eight() -> None:
    """rule-15 and DPC, section 6.3: X = 8 s, stage k of 8 at X - (8 - k + 1) m."""
    d = parsed(*FOUR)
    assert [q.name for q in d.in_order()] == ["a", "b", "c", "d"]
    assert d.stages("d") == 8
    ladder = [d.deadline_us(name, kind) for name in "abcd" for kind in (ORDERER, ROOT)]
    assert ladder == [8_000_000 - (8 - k + 1) * 50_000 for k in range(1, 9)]
    assert ladder[0] == 7_600_000


def test_r13_the_smallest_bound_of_a_chain_holds_for_all_before_it() -> None:
    """With bounds of 5 s and 2 s the reader would always lack the source query (trace-13)."""
    d = parsed(query("a", "s", "5s"), query("b", "a", "2s"))
    assert (d.bound_us("a"), d.bound_us("b")) == (2_000_000, 2_000_000)
    assert d.deadline_us("a", ROOT) == 1_850_000
    assert d.deadline_us("b") == 1_900_000


def test_a_patient_reader_makes_nobody_hurry() -> None:
    d = parsed(query("a", "s", "2s"), query("b", "a", "60s"), query("c", "b", "60s"))
    assert d.bound_us("a") == 2_000_000
    assert d.deadline_us("a", ROOT) == 1_950_000


def test_of_several_readers_the_one_that_needs_it_first_counts() -> None:
    d = parsed(
        query("a", "s", "5s"), query("b", "a", "4s"), query("c", "a", "4s"), query("d", "c", "4s")
    )
    assert d.deadline_us("a", ROOT) == 4_000_000 - 5 * 50_000  # the root of a, then c, then d


def test_what_reaches_a_query_through_others() -> None:
    d = parsed(query("b", "a, u"), query("a", "s"))
    assert d.source_streams("b") == ("s", "u")
    assert d.queries_of("b") == ("a",)
    # The largest sum of disorder and expect_every, wherever in the chain; no window's size.
    assert d.lateness_us("b") == 1_000_000
    assert d.lateness_us("a") == 200_000
    far = parsed(query("b", "a, s"), query("a", "u"))
    assert far.lateness_us("b") == 1_000_000, "that of u, which it reads only through a"


def test_each_figure_of_a_result_is_a_field() -> None:
    d = parsed(query("b", "a, u"), query("a", "s"))
    assert d.fields_of("a") == ("x_count", "x_avg")
    assert d.input_fields("b") == ("x_count", "x_avg", "x", "y")
    assert d.fields_of("b")[:3] == ("x_count_count", "x_count_avg", "x_avg_count")


def test_without_a_window_a_field_keeps_its_name() -> None:
    d = parsed("  a: {from: [s], where: x > 1, bound: 2s}\n", query("b", "a"))
    assert d.fields_of("a") == ("x",)
    assert d.input_fields("b") == ("x",)


@pytest.mark.parametrize(
    ("queries", "reported"),
    [
        (
            (query("a", "b"), query("b", "c"), query("c", "a")),
            "f.yaml:8: queries.c.from[0]: queries read each other in a cycle: a -> b -> c -> a",
        ),
        ((query("a", "a"),), "f.yaml:6: queries.a.from[0]: queries read each other in a cycle"),
        ((query("a", "s"), query("b", "as")), "f.yaml:7: queries.b.from[0]: there is no stream or"),
        ((query("a", "s"), query("b", "a, a")), "f.yaml:7: queries.b.from[1]: 'a' is listed twice"),
        (
            (query("a", "s"), query("b", "a", more=", where: x > 1")),
            "f.yaml:7: queries.b.where: 'x > 1': there is no field",
        ),
        (
            (query("a", "s"), query("b", "a", more=", select: {z: x_max}")),
            "f.yaml:7: queries.b.select.z: 'x_max': there is no field",
        ),
        (
            (query("a", "s", "150ms"), query("b", "a", "150ms")),
            "f.yaml:7: queries.b.bound: 150ms cannot be kept: the stages of the queries",
        ),
        (
            (query("a", "s"), query("b", "a, s", more=", join: {left: a, right: s, within: 1s}")),
            "queries.b.join.left: this version does not support joins of queries",
        ),
    ],
)
def test_what_a_chain_cannot_be(queries: tuple[str, ...], reported: str) -> None:
    found = refusal(*queries)
    assert any(reported in message for message in found), found


def test_a_chain_may_follow_the_data_s_clock() -> None:
    head = HEAD.replace("streams:", "clock: data\nstreams:", 1)
    found = parsed(query("a", "s"), query("b", "a"), head=head)
    assert found.clock == "data"
    assert found.queries_of(found.queries["b"]) == ("a",)
