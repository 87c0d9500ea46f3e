"""Fragments that are added to running hosts and removed from them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from slackwater.deployment.fragments import (
    fragment_names,
    placed,
    process_names,
    without_queries,
)
from slackwater.deployment.parse import parse_deployment
from slackwater.deployment.sharing import share
from slackwater.machine.changes import fragments_to_hosts
from slackwater.machine.layout import Launch, fragment_specs
from slackwater.model.alerts import AlertSpec
from slackwater.model.deployment import Deployment
from slackwater.model.kinds import is_hosted
from slackwater.model.names import OrdererName, own_name

SHARED = """\
apiVersion: slackwater/v1
streams:
  a: {key: {value: a}, time: {column: t, unit: s}, fields: [x]}
queries:
  second: {from: [a], window: {size: 1s}, aggregate: [avg], copies: 1, bound: 2s}
  minute: {from: [a], window: {size: 1m}, aggregate: [max], copies: 1, bound: 2s}
"""
QUERIES = st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.integers(1, 3))


def hosted_of(deployment: Deployment, paused: Collection[str] = ()) -> list[str]:
    return [name for name in fragment_names(deployment, paused) if is_hosted(name)]


def fragments(replicas_of: dict[str, int]) -> list[str]:
    orderers = [
        OrdererName(query, 0, replica).process
        for query, replicas in replicas_of.items()
        for replica in range(replicas)
    ]
    return [*orderers, *(f"root/{query}.0" for query in replicas_of)]


def test_the_copies_of_a_part_are_in_different_hosts() -> None:
    added = fragments_to_hosts(["root/q.0.a", "root/q.0.b"], {"host/0": []})
    assert [*map(len, added.values())] == [1, 1]


@given(st.lists(QUERIES, max_size=4))
def test_replicas_are_in_different_hosts_whatever_was_added_before(
    rounds: list[dict[str, int]],
) -> None:
    placed: dict[str, list[str]] = {}
    for replicas_of in rounds:
        wanted = fragments(replicas_of)
        before = {each: host for host, has in placed.items() for each in has}
        placed = fragments_to_hosts(wanted, placed)
        after = {each: host for host, has in placed.items() for each in has}
        assert sorted(each for has in placed.values() for each in has) == sorted(wanted)
        assert all(after[each] == before[each] for each in after.keys() & before.keys())
        for host, has in placed.items():
            children = [own_name(each)[:-2] for each in has if each.startswith("orderer/")]
            assert len({*children}) == len(children), f"{host} has two replicas of one child"


def test_a_first_query_is_placed_as_at_a_start() -> None:
    assert fragments_to_hosts(fragments({"a": 2}), {}) == {
        "host/0": ["orderer/a.0.a", "root/a.0"],
        "host/1": ["orderer/a.0.b"],
    }


def test_an_added_root_goes_where_the_fewest_fragments_are() -> None:
    present = {"host/0": ["orderer/a.0.a", "root/a.0"], "host/1": ["orderer/a.0.b"]}
    placed = fragments_to_hosts(fragments({"a": 2, "b": 1}), present)
    assert placed["host/0"] == [*present["host/0"], "orderer/b.0.a"]
    assert placed["host/1"] == [*present["host/1"], "root/b.0"]


def test_children_run_while_any_query_reads_them() -> None:
    both = share(parse_deployment(SHARED, "d.yaml").deployment)
    orderers = ["orderer/second.0.a", "orderer/second.0.b"]
    assert hosted_of(both) == [*orderers, "root/second.0", "root/minute.0"]
    only = without_queries(both, ["second"])
    assert hosted_of(only) == [*orderers, "root/minute.0"]
    assert placed("aggregator", only) == placed("aggregator", both)
    assert hosted_of(without_queries(both, ["second", "minute"])) == []


def test_deliveries_of_a_generation_wait_also_for_a_paused_one() -> None:
    """Both were paused, and the later one was resumed by its name (rule-29)."""
    both = share(parse_deployment(SHARED, "d.yaml").deployment)
    later = replace(both.queries["minute"], name="second.g1", children_of="", shared_by=())
    later = replace(later, alerts=(AlertSpec("hot", "x_max > 1"),))
    resumed = replace(both, queries={"second.g1": later})
    running = ["orderer/second.g1.0.a", "orderer/second.g1.0.b", "root/second.g1.0"]
    assert hosted_of(resumed, paused=["second"]) == running
    launch = Launch(Path("d.yaml"), "127.0.0.1:9092", Path("data"))
    hosts = [spec for spec in fragment_specs(resumed, launch, ["second"]) if spec.parts]
    assert sorted(part for spec in hosts for part in spec.parts) == running
    names = process_names(resumed, broker=False, paused=["second"])
    assert not any(name.startswith("delivery/") for name in names)
    assert hosted_of(resumed) == [*running, "delivery/second.g1.alerts"], "that was deleted"
