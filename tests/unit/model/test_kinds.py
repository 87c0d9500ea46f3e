"""The table of kinds: a row more is a kind more, in all that reads the table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import pytest
from tests.unit.machine.test_layout import LAUNCH, query, stream
from tests.unit.status.test_status import NOW, beat

from slackwater.control.recorded import _of_query as specs_of_query
from slackwater.control.recorded import key_of, process_of
from slackwater.deployment.fragments import process_names, stages
from slackwater.exporter.queries import fragments_to_run
from slackwater.machine.layout import fragment_specs
from slackwater.machine.plan import PlannedLoad, plan
from slackwater.model.deployment import Deployment
from slackwater.model.kinds import (
    HOST,
    KINDS,
    PROCESSES,
    Cost,
    FragmentKind,
    deadlines_from,
    group_of,
    is_hosted,
    query_of,
    replica_of,
)
from slackwater.model.names import (
    AGGREGATOR,
    DELIVERY,
    ORDERER,
    PROXY,
    ROOT,
    UPLINK,
    RootName,
)
from slackwater.runtime.security.acl import Rule, rules
from slackwater.runtime.security.credentials import Role
from slackwater.runtime.service.cpu import CpuShare, is_starved
from slackwater.runtime.service.registry import QueryDefinition
from slackwater.status.processes import ObservedHeartbeat, look_at

SIEVE = "sieve"
DEPLOYMENT = Deployment("wall", {"s": stream("s")}, {"q": query("q", "s", parts=2)})
SIEVES = ["sieve/q.0", "sieve/q.1"]


@pytest.fixture
def _with_sieves() -> Iterator[None]:
    """A made-up kind between aggregators and roots."""
    before = dict(KINDS)
    made_up = FragmentKind(
        *(SIEVE, "sieves", HOST, "sieves, which drop deltas", RootName.parse),
        cost=Cost(1_000.0, 0.5),
        access={"Read": ("quarantine",)},
        groups=lambda q: tuple((f"{SIEVE}/{q.name}.{part}",) for part in range(q.parts)),
        has_deadline=True,
    )
    rows = {name: before[name] for name in (PROXY, ORDERER, AGGREGATOR)}
    table = cast(dict[str, FragmentKind], KINDS)  # a constant elsewhere
    table.clear()
    table.update(rows | {SIEVE: made_up, ROOT: before[ROOT]})
    yield
    table.clear()
    table.update(before)


@pytest.mark.usefixtures("_with_sieves")
def test_a_made_up_kind_is_in_the_layout_in_status_and_in_the_access_rules() -> None:
    hosts = [spec for spec in fragment_specs(DEPLOYMENT, LAUNCH) if spec.name.startswith("host/")]
    placed = [part for spec in hosts for part in spec.parts]
    assert sorted(name for name in placed if name.startswith("sieve/")) == SIEVES

    names = process_names(DEPLOYMENT, broker=False)
    assert names[5:] == (*SIEVES, "root/q.0", "root/q.1")
    assert stages(DEPLOYMENT.queries["q"])[3:5] == (("sieve/q.0",), ("sieve/q.1",))
    running = {name: ObservedHeartbeat(beat(name), 1.0) for name in names if name != "sieve/q.1"}
    queries = {"q": QueryDefinition("q", 0, 0, 1, DEPLOYMENT.queries["q"])}
    assert look_at(running, queries, None, NOW).wrong == ["not working: sieve/q.1"]
    assert {*SIEVES} <= {*fragments_to_run(DEPLOYMENT, queries)}

    quarantine = Rule("topic", "sw.quarantine.s", ("Describe", "Read"))
    assert quarantine in rules(Role.HOST, DEPLOYMENT)


@pytest.mark.usefixtures("_with_sieves")
def test_a_made_up_kind_is_placed_sized_and_given_time() -> None:
    specs = [spec for spec in specs_of_query(DEPLOYMENT, "q") if spec.group.startswith(SIEVE)]
    assert [process_of(spec.query, spec.fragment) for spec in specs] == SIEVES
    assert [key_of(name) for name in SIEVES] == [(spec.query, spec.fragment) for spec in specs]
    assert plan(DEPLOYMENT, PlannedLoad()).memory_mb > 2_000.0
    ladder = [DEPLOYMENT.deadline_us("q", kind) for kind in (ORDERER, SIEVE, ROOT)]
    assert ladder == [1_850_000, 1_900_000, 1_950_000]
    assert is_starved(SIEVES[0], CpuShare(0.95, 0.0)), "it runs in Python"


def test_without_it_the_table_has_no_such_kind() -> None:
    read = {rule.name for rule in rules(Role.HOST, DEPLOYMENT) if "Read" in rule.operations}
    assert "sw.quarantine.s" not in read
    assert deadlines_from() == deadlines_from(ORDERER) == 2
    assert not is_hosted(SIEVES[0])
    assert query_of(SIEVES[0]) == ""


def test_mergers_are_no_stage_and_their_copies_are_in_different_hosts() -> None:
    q = replace(query("q", "s", parts=2), mergers=2)
    deployment = replace(DEPLOYMENT, queries={"q": q})
    names = ["merger/q.0.a", "merger/q.0.b"]
    assert {*names} <= {*process_names(deployment)}
    assert stages(q) == stages(replace(q, mergers=0)), "nobody waits for a merger"
    hosts = [spec for spec in fragment_specs(deployment, LAUNCH) if spec.name.startswith("host/")]
    placed = {part: spec.name for spec in hosts for part in spec.parts}
    assert placed[names[0]] != placed[names[1]]
    assert deployment.deadline_us("q", ORDERER) == 1_900_000, "two stages, as without them"


def test_a_fragment_runs_in_a_process_that_there_is() -> None:
    for kind in KINDS.values():
        assert kind.process in PROCESSES
        assert Role(kind.process), "it has a principal of its own"


@pytest.mark.parametrize(
    ("name", "group", "replica"),
    [
        ("orderer/q.g1.2.c", "orderer/q.g1.2", 2),
        ("aggregator/q.0.a", "aggregator/q.0", 0),
        ("root/q.3", "root/q.3", None),
        ("root/q.3.b", "root/q.3", 1),
        ("merger/q.3.b", "merger/q.3", 1),
        ("proxy/a.1", "proxy/a.1", None),
    ],
)
def test_copies_of_a_fragment_have_one_group(name: str, group: str, replica: int | None) -> None:
    assert (group_of(name), replica_of(name)) == (group, replica)


def test_children_that_are_shared_are_one_set_of_fragments_of_each_kind() -> None:
    q = replace(DEPLOYMENT.queries["q"], mergers=2)
    reader = replace(q, name="r", children_of="q", shared_by=("q", "r"))
    kinds = [kind for kind in KINDS.values() if kind.groups(q)]
    assert {kind.name for kind in kinds} == {*KINDS} - {PROXY, UPLINK, DELIVERY}
    for kind in kinds:
        assert (kind.groups(q) == kind.groups(reader)) == kind.is_shared
