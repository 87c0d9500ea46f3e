"""Copies of a part in one process or on one node: what ``status`` says of their query."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.cli.test_summary import NOW, S, proxy, shown
from tests.unit.machine.test_layout import query
from tests.unit.status.test_status import FakeControls, Looking

from slackwater.cli import show
from slackwater.cli.show import print_status
from slackwater.cli.summary import page_json
from slackwater.model.names import UNPREFIXED
from slackwater.model.records import Heartbeat, HeartbeatPart
from slackwater.protocols.flux.pair import DISAGREES
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.service.registry import QueryDefinition
from slackwater.status.copies import on_one_node
from slackwater.status.overview import ControllerRow, FragmentRow, NodeRow, Overview
from slackwater.status.processes import ObservedHeartbeat, Picture, look_at

PARTS = 3
SPEC = replace(query("q", "lab", parts=PARTS), copies=2)
DEFINITION = QueryDefinition("q", 0, NOW - 600 * S, 100_000, SPEC)
DETAIL = {"stable_from": NOW - S, "answered_to": NOW - S}
HOSTS = {
    "host/0": [f"root/q.{part}.{'ba'[part % 2]}" for part in range(PARTS)] + ["orderer/q.0.a"],
    "host/1": [f"root/q.{part}.{'ab'[part % 2]}" for part in range(PARTS)] + ["orderer/q.0.b"],
}
"""The copies are in different hosts."""


def host(name: str, fragments: Iterable[str], *, pid: int = 1, at: int = NOW) -> list[Heartbeat]:
    """The heartbeats of its fragments, from one record."""
    parts = tuple(
        HeartbeatPart(fragment, NOW - 90 * S, 0, True, {}, (), DETAIL) for fragment in fragments
    )
    return [*Heartbeat(name, pid, NOW - 90 * S, at, -1, True, {}, parts=parts).each()]


def picture(*hosts: list[Heartbeat], definition: QueryDefinition = DEFINITION) -> Picture:
    """All that the query needs is ready; its roots are in these hosts."""
    beats = [beat for of in hosts for beat in of]
    names = ("aggregator/0", "aggregator/1")
    beats += [Heartbeat(name, 2, NOW - 90 * S, NOW, 0, True, {}) for name in names]
    beats.append(proxy("lab", NOW))
    latest = {beat.process: ObservedHeartbeat(beat, 50.0) for beat in beats}
    return look_at(latest, {definition.name: definition}, None, NOW, NOW)


def two_hosts() -> Picture:
    """In containers the process ids of two hosts are the same."""
    return picture(*(host(name, of, at=NOW + n) for n, (name, of) in enumerate(HOSTS.items())))


def one_host() -> Picture:
    return picture(host("host/0", [fragment for of in HOSTS.values() for fragment in of]))


def overview(nodes: dict[str, list[str]]) -> Overview:
    rows = [FragmentRow(name, node, "ready") for node, names in nodes.items() for name in names]
    there = tuple(NodeRow(node, "steady", (), False, 9, (), {}, ()) for node in nodes)
    return Overview((ControllerRow("h:1", "a", 4, ("a",)),), nodes=there, fragments=tuple(rows))


def on(of: Picture, nodes: dict[str, list[str]] | None) -> Picture:
    seen = None if nodes is None else overview(nodes)
    return replace(of, queries=on_one_node(of.queries, seen))


def remarks(of: Picture) -> tuple[str, ...]:
    (row,) = of.queries
    return row.remarks


def test_copies_in_two_hosts_need_no_remark_although_their_process_ids_are_equal() -> None:
    assert remarks(two_hosts()) == ()
    assert shown(two_hosts())[0].startswith("all is well")


def test_copies_in_one_process_are_named() -> None:
    of = one_host()
    assert remarks(of) == ("its copies are not apart: both of parts 0, 1, 2 run in one process",)
    lines = shown(of)
    assert lines[0] == "all runs at 12:26:40 UTC; copies of q are not apart"
    assert lines[1].endswith("; its copies are not apart: both of parts 0, 1, 2 run in one process")
    assert of.wrong == [], "no failure: exit code 0"


def test_copies_on_one_node_are_named_with_the_node() -> None:
    names = [fragment for of in HOSTS.values() for fragment in of]
    of = on(two_hosts(), {"n1": names, "n2": []})
    assert remarks(of) == ("its copies are not apart: both of parts 0, 1, 2 run on node n1",)
    of = on(one_host(), {"n1": names})
    assert remarks(of) == ("its copies are not apart: both of parts 0, 1, 2 run on node n1",)


def test_the_command_takes_the_node_from_the_controllers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    names = [fragment for of in HOSTS.values() for fragment in of]
    monkeypatch.setattr(show, "_Looking", Looking(two_hosts()))
    controls = FakeControls(overview({"n1": names}))
    print_status(Cluster("h:1"), UNPREFIXED, tmp_path, "table", watch=False, controls=controls)
    assert "both of parts 0, 1, 2 run on node n1" in capsys.readouterr().out


def test_only_the_parts_whose_copies_share_a_node_are_named() -> None:
    first, second = HOSTS.values()
    assert remarks(on(two_hosts(), {"n1": first, "n2": second})) == ()
    moved = {"n1": [*first, "root/q.1.b"], "n2": [n for n in second if n != "root/q.1.b"]}
    one = "its copies are not apart: both of part 1 run on node n1"
    assert remarks(on(two_hosts(), moved)) == (one,)


def test_a_copy_that_is_placed_nowhere_is_no_copy_in_one_place() -> None:
    names = [fragment for of in HOSTS.values() for fragment in of]
    assert remarks(on(two_hosts(), {"": names})) == ()


def test_without_controllers_or_without_nodes_the_processes_are_looked_at() -> None:
    assert remarks(on(one_host(), None)) == remarks(one_host())
    assert remarks(on(one_host(), {})) == remarks(one_host())


def test_a_stale_heartbeat_is_that_of_no_copy() -> None:
    host_0 = {b.process: b for b in host("host/0", ["root/q.0.a", "root/q.0.b"])}
    latest = {name: ObservedHeartbeat(beat, 9e3) for name, beat in host_0.items()}
    (row,) = look_at(latest, {"q": DEFINITION}, None, NOW, NOW).queries
    assert row.remarks == ()


@pytest.mark.parametrize("name", ["root/q", "root/q.x", "root/", "root"])
def test_a_foreign_heartbeat_does_no_harm(name: str) -> None:
    of = picture(host("host/0", [*HOSTS["host/0"], name]), host("host/1", HOSTS["host/1"], at=1))
    assert remarks(of) == ()


def test_each_generation_has_parts_of_its_own() -> None:
    later = replace(DEFINITION, name="q.g1", spec=replace(SPEC, name="q.g1"))
    of = picture(host("host/0", ["root/q.0.a", "root/q.0.b"]), definition=later)
    assert remarks(of) == ()


def test_the_json_has_the_remark_and_a_query_with_one_copy_has_none() -> None:
    out = json.loads(json.dumps(page_json(one_host(), None, NOW)))
    assert (out["well"], out["problems"]) == (True, [])
    assert out["queries"][0]["remarks"] == [
        "its copies are not apart: both of parts 0, 1, 2 run in one process"
    ]
    single = replace(DEFINITION, spec=replace(SPEC, copies=1))
    fragments = [f"root/q.{part}" for part in range(PARTS)]
    assert remarks(picture(host("host/0", fragments), definition=single)) == ()


def test_copies_that_disagree_are_told() -> None:
    hosts = [host(name, of) for name, of in HOSTS.items()]
    differ = [
        replace(beat, detail={**DETAIL, DISAGREES: 2}) if beat.process == "root/q.0.b" else beat
        for beat in hosts[0]
    ]
    sentence = (
        "the copies of part 0 of q had different panes, 2 times: one of them is wrong; its log has"
        " the times and digests"
    )
    assert picture(differ, hosts[1]).wrong == [sentence]
    assert picture(*hosts).wrong == []
