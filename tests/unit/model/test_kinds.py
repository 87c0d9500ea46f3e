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
from slackwater.model.names import AGGREGATOR, ORDERER, PROXY, ROOT, RootName
from slackwater.runtime.security.acl import Rule, rules
from slackwater.runtime.security.credentials import Role
from slackwater.runtime.service.cpu import CpuShare, is_starved
from slackwater.runtime.service.registry import QueryDefinition
from slackwater.status.processes import ObservedHeartbeat, look_at

MERGER = "merger"
DEPLOYMENT = Deployment("wall", {"s": stream("s")}, {"q": query("q", "s", parts=2)})
MERGERS = ["merger/q.0", "merger/q.1"]


@pytest.fixture
def _with_mergers() -> Iterator[None]:
    """A made-up kind between aggregators and roots."""
    before = dict(KINDS)
    made_up = FragmentKind(
        *(MERGER, "mergers", HOST, "mergers, which merge deltas", RootName.parse),
        cost=Cost(1_000.0, 0.5),
        access={"Read": ("quarantine",)},
        groups=lambda q: tuple((f"{MERGER}/{q.name}.{part}",) for part in range(q.parts)),
        has_deadline=True,
    )
    rows = {name: before[name] for name in (PROXY, ORDERER, AGGREGATOR)}
    table = cast(dict[str, FragmentKind], KINDS)  # a constant elsewhere
    table.clear()
    table.update(rows | {MERGER: made_up, ROOT: before[ROOT]})
    yield
    table.clear()
    table.update(before)


@pytest.mark.usefixtures("_with_mergers")
def test_a_made_up_kind_is_in_the_layout_in_status_and_in_the_access_rules() -> None:
    hosts = [spec for spec in fragment_specs(DEPLOYMENT, LAUNCH) if spec.name.startswith("host/")]
    placed = [part for spec in hosts for part in spec.parts]
    assert sorted(name for name in placed if name.startswith("merger/")) == MERGERS

    names = process_names(DEPLOYMENT, broker=False)
    assert names[5:] == (*MERGERS, "root/q.0", "root/q.1")
    assert stages(DEPLOYMENT.queries["q"])[3:5] == (("merger/q.0",), ("merger/q.1",))
    running = {name: ObservedHeartbeat(beat(name), 1.0) for name in names if name != "merger/q.1"}
    queries = {"q": QueryDefinition("q", 0, 0, 1, DEPLOYMENT.queries["q"])}
    assert look_at(running, queries, None, NOW).wrong == ["not working: merger/q.1"]
    assert {*MERGERS} <= {*fragments_to_run(DEPLOYMENT, queries)}

    quarantine = Rule("topic", "sw.quarantine.s", ("Describe", "Read"))
    assert quarantine in rules(Role.HOST, DEPLOYMENT)


@pytest.mark.usefixtures("_with_mergers")
def test_a_made_up_kind_is_placed_sized_and_given_time() -> None:
    specs = [spec for spec in specs_of_query(DEPLOYMENT, "q") if spec.group.startswith(MERGER)]
    assert [process_of(spec.query, spec.fragment) for spec in specs] == MERGERS
    assert [key_of(name) for name in MERGERS] == [(spec.query, spec.fragment) for spec in specs]
    assert plan(DEPLOYMENT, PlannedLoad()).memory_mb > 2_000.0
    ladder = [DEPLOYMENT.deadline_us("q", kind) for kind in (ORDERER, MERGER, ROOT)]
    assert ladder == [1_850_000, 1_900_000, 1_950_000]
    assert is_starved(MERGERS[0], CpuShare(0.95, 0.0)), "it runs in Python"


def test_without_it_the_table_has_no_such_kind() -> None:
    read = {rule.name for rule in rules(Role.HOST, DEPLOYMENT) if "Read" in rule.operations}
    assert "sw.quarantine.s" not in read
    assert deadlines_from() == deadlines_from(ORDERER) == 2
    assert not is_hosted(MERGERS[0])
    assert query_of(MERGERS[0]) == ""


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
        ("proxy/a.1", "proxy/a.1", None),
    ],
)
def test_copies_of_a_fragment_have_one_group(name: str, group: str, replica: int | None) -> None:
    assert (group_of(name), replica_of(name)) == (group, replica)


def test_children_that_are_shared_are_one_set_of_fragments_of_each_kind() -> None:
    q = DEPLOYMENT.queries["q"]
    reader = replace(q, name="r", children_of="q", shared_by=("q", "r"))
    for kind in (kind for kind in KINDS.values() if not kind.reads_answers):
        assert (kind.groups(q) == kind.groups(reader)) == (kind.is_shared or kind.name == PROXY)
