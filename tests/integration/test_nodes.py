"""Two nodes and two controllers as processes: a node is killed, comes back and is drained.

A sender writes readings all the time. Every window is compared with the sum of what was sent; of a
query without a window every reading is compared. The first test is short, since it needs no Spark.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.support.controllers import Cluster, controllers
from tests.support.counted_sender import TOPIC, Sender, check_sums
from tests.support.nodes import Nodes
from tests.support.starting import make_topics
from tests.support.waiting import eventually_async

from slackwater.control.recorded import REGISTRATION
from slackwater.controller.links import StateFrame
from slackwater.delivery.records import AlertRecord, decode_delivery
from slackwater.machine.broker import EmbeddedBroker
from slackwater.runtime.logs.transport import Transport, read_to_end
from slackwater.runtime.service.registry import Registry

FILE = """\
apiVersion: slackwater/v1
streams:
  lab:
    topic: {name: lab-readings, format: json}
    key: {field: mote}
    time: {field: at, unit: ms}
    fields: [x]
    expect_every: 1s
queries:
  each: {from: [lab], window: {size: 1s}, aggregate: [sum], copies: 1, bound: 2s}
"""
CHAINED = """\
  wide: {from: [lab], window: {size: 2s}, aggregate: [sum], copies: 1, bound: 2s}
  waits: {from: [absent], window: {size: 1s}, aggregate: [sum], copies: 1, bound: 2s}
"""
ABSENT = """\
  absent:
    topic: {name: no-such-topic, format: json}
    key: {field: mote}
    time: {field: at, unit: ms}
    fields: [x]
    expect_every: 1s
queries:
"""
ROWS = "  rows: {from: [lab], where: x > 0, copies: 1, bound: 2s}\n"
FLIPS = "alerts: {flips: {query: rows, when: x % 40 < 20}}\n"
READER = "  read: {from: [rows], where: x > 0, select: {x: x}, bound: 4s}\n"


@pytest.fixture(name="broker")
def _broker(tmp_path: Path) -> Iterator[str]:
    with EmbeddedBroker(tmp_path / "broker") as broker:
        make_topics(broker.bootstrap, [TOPIC])
        yield broker.bootstrap


def readings(transport: Transport, query: str) -> list[float]:
    """The readings of a query without a window, in the order of its stable results."""
    log = (f"sw.results.{query}.stable", 0)
    rows = (
        json.loads(raw.value) for raw in read_to_end(transport, log, isolation="read_committed")
    )
    return [row["fields"]["x"] for row in rows if row["kind"] == "stable"]


def alerts(nodes: Nodes) -> list[AlertRecord]:
    """The records with which alerts of the query without a window begin and end."""
    log = (nodes.transport.names.alerts("rows"), 0)
    written = read_to_end(nodes.transport, log, isolation="read_committed")
    found = [decode_delivery(raw.value) for raw in written]
    return [r for r in found if isinstance(r, AlertRecord) and r.state in {"firing", "ended"}]


def check_alerts(found: list[AlertRecord], sent: list[int]) -> None:
    """Compare with a plain evaluation: one for each run of true rows; the deletion ends the last.

    The delivery may end before it has evaluated the last results of a query that is deleted.
    """
    begun = [n for at, n in enumerate(sent) if n % 40 < 20 and (not at or sent[at - 1] % 40 >= 20)]
    fired = [r.began.values["x"] for r in found if r.state == "firing"]
    assert len(fired) > 5
    assert fired == begun[: len(fired)]
    assert [r.state for r in found] == ["firing", "ended"] * len(fired)
    assert [r.began.values["x"] for r in found if r.state == "ended"] == fired
    reasons = [r.reason for r in found]
    assert {*reasons[:-1]} == {""}
    assert reasons[-1] in {"", "query deleted"}


async def answers_on(nodes: Nodes, query: str) -> None:
    """Wait for 20 more stable results of a query without a window."""
    before = len(readings(nodes.transport, query))
    await eventually_async(
        lambda: len(readings(nodes.transport, query)) > before + 20, f"{query} answers on"
    )


def check_each_once(nodes: Nodes, query: str) -> None:
    """Check that the stable results have each reading once, in the order sent."""
    found = [int(x) for x in readings(nodes.transport, query)]
    assert found == [*range(found[0], found[-1] + 1)], query


def places_of(status: str) -> dict[str, str]:
    """Where each fragment is ready according to `status --format json`; warnings may follow."""
    rows = json.JSONDecoder().raw_decode(status)[0]["fragments"]
    return {row["fragment"]: row["node"] for row in rows if row["state"] == "ready"}


async def test_the_fragments_of_a_killed_node_run_on_the_other_one(
    tmp_path: Path, broker: str
) -> None:
    async with controllers(tmp_path, "a", "b", relayed=False) as cluster:
        nodes, sender = Nodes(tmp_path, broker, cluster), Sender(broker)

        async def answers_more() -> None:
            before = len(alerts(nodes))
            await answers_on(nodes, "rows")
            await eventually_async(lambda: len(alerts(nodes)) >= before + 2, "alerts begin and end")

        async def is_changed() -> bool:
            return (await nodes.places()).keys() == {
                "registration/rows.g1", "orderer/rows.g1.0.a", "orderer/rows.g1.0.b",
                "root/rows.g1.0", "delivery/rows.g1.alerts", "proxy/lab",
            }  # fmt: skip

        def is_deleted() -> bool:
            states = {n: q.state for n, q in Registry(nodes.transport).all_queries().items()}
            return states == {"rows": "deleted", "rows.g1": "deleted"}

        async def is_reported() -> bool:
            frame = await nodes.frame()
            return all(
                entry.number in frame.nodes.ready
                for (_, fragment), entry in frame.state.placement.items()
                if fragment == REGISTRATION
            )

        try:
            file = tmp_path / "d.yaml"
            file.write_text(FILE[: FILE.index("  each")] + ROWS + FLIPS)
            for name in ("n1", "n2"):
                nodes.start(name)
            await nodes.command("query", "apply", str(file))
            placed = await nodes.run_on("n1", "n2")
            assert placed["orderer/rows.0.a"] != placed["orderer/rows.0.b"]
            await answers_more()
            shown = await nodes.command("status", "--format", "json", "--bootstrap", broker)
            assert places_of(shown) == placed
            victim = placed["root/rows.0"]
            other = "n2" if victim == "n1" else "n1"
            nodes.kill(victim)
            await nodes.run_on(other)
            nodes.cluster.kill("a")
            await answers_more()
            shown = await nodes.command("status", "--bootstrap", broker)
            assert re.search(
                r"^controller \S+ +does not answer: connection refused$", shown, re.MULTILINE
            )
            assert re.search(rf"^node {victim} +suspected, ", shown, re.MULTILINE)
            nodes.start(victim)
            await nodes.run_on(victim, other)
            await nodes.command("node", "leave", other)
            await nodes.run_on(victim)  # the one that has left is connected, and stays idle
            await answers_more()
            # The controller that is left loses its file: nothing ends, and the node gives it back.
            before = (await nodes.frame()).state.placement
            nodes.cluster.kill("b")
            shutil.rmtree(tmp_path / "b")
            nodes.cluster.start("b")
            await cluster.agreed("b")

            async def is_back() -> bool:
                return (await cluster.agreed("b")).state.placement == before

            await eventually_async(is_back, "the record is back, with the same placements")
            await nodes.run_on(victim)
            await answers_more()
            # Changed: the new generation takes its place, and no reading is lost or doubled.
            file.write_text(file.read_text().replace("x > 0", "x > -1"))
            await nodes.command("query", "apply", str(file))
            await eventually_async(is_changed, "generation 1 has replaced generation 0")
            await answers_more()
            printed = await nodes.command("query", "pause", "rows", "--bootstrap", broker)
            assert "its inputs are kept for 7d: readings that are deleted before" in printed
            await nodes.command("query", "resume", "rows")
            await answers_more()
            await nodes.command("query", "delete", "rows")
            await eventually_async(is_deleted, "a node carries the deletion out in Kafka")
            await eventually_async(is_reported, "it reports that")
            shown = await nodes.command("node", "list")
            assert "rows" not in shown, "nothing of it is left"
        finally:
            nodes.stop_all()
            sender.stop()
        check_each_once(nodes, "rows")
        check_alerts(alerts(nodes), [int(x) for x in readings(nodes.transport, "rows")])


@pytest.mark.drill
async def test_a_machine_that_restarts_without_controllers_runs_what_it_ran_last(
    tmp_path: Path, broker: str
) -> None:
    async with controllers(tmp_path, "a", relayed=False) as cluster:
        nodes, sender = Nodes(tmp_path, broker, cluster), Sender(broker)
        try:
            file = tmp_path / "d.yaml"
            file.write_text(FILE[: FILE.index("  each")] + ROWS)
            nodes.start("n1")
            await nodes.command("query", "apply", str(file))
            await nodes.run_on("n1")
            await answers_on(nodes, "rows")
            nodes.cluster.kill("a")
            nodes.kill("n1")
            nodes.start("n1")
            await answers_on(nodes, "rows")
            assert "this node runs what it ran last" in (tmp_path / "n1.log").read_text()
            nodes.cluster.start("a")
            await cluster.agreed("a")
            await nodes.run_on("n1")
            file.write_text(file.read_text().replace("x > 0", "x > -1"))
            await nodes.command("query", "apply", str(file))
            await answers_on(nodes, "rows")
            await nodes.command("query", "delete", "rows")
        finally:
            nodes.stop_all()
            sender.stop()
        check_each_once(nodes, "rows")


@pytest.mark.drill
async def test_a_query_that_another_one_reads_is_changed_on_nodes(
    tmp_path: Path, broker: str
) -> None:
    """A replica of the reader that starts on another node later reads what the first one reads.

    The change adds a field, which the reader has not been applied with. Afterwards the reader is
    deleted, and applied again.
    """
    async with controllers(tmp_path, "a", "b", relayed=False) as cluster:
        nodes, sender = Nodes(tmp_path, broker, cluster), Sender(broker)

        async def answers_more() -> None:
            await answers_on(nodes, "read")

        async def is_changed() -> bool:
            present = (await nodes.places()).keys()
            return "root/rows.g1.0" in present and "root/rows.0" not in present

        try:
            file = tmp_path / "d.yaml"
            rows = ROWS.replace("x > 0", "x > 0, select: {x: x}")
            file.write_text(FILE[: FILE.index("  each")] + rows + READER)
            for name in ("n1", "n2"):
                nodes.start(name)
            await nodes.command("query", "apply", str(file))
            placed = await nodes.run_on("n1", "n2")
            await answers_more()
            changed = rows.replace("{x: x}", "{y: 2 * x, x: x}")
            file.write_text(FILE[: FILE.index("  each")] + changed + READER)
            reported = await nodes.command("query", "apply", str(file))
            assert "query rows is changed" in reported
            assert "query read runs already" in reported
            await eventually_async(is_changed, "generation 1 has replaced generation 0")
            await answers_more()
            victim = placed["orderer/read.0.a"]
            other = "n2" if victim == "n1" else "n1"
            nodes.kill(victim)
            await nodes.run_on(other)
            await answers_more()
            assert "is read by read" in await nodes.command("query", "delete", "rows", code=2)
            await nodes.command("query", "delete", "read")
            await nodes.run_on(other)
            reported = await nodes.command("query", "apply", str(file))
            assert "query read was deleted: generation 1 is accepted" in reported
            await answers_more()
        finally:
            nodes.stop_all()
            sender.stop()
        for query in ("rows", "read"):
            check_each_once(nodes, query)


@pytest.mark.drill
async def test_each_half_of_a_split_network_answers_on(tmp_path: Path, broker: str) -> None:
    """Controllers and nodes are split in two halves for 10 s, and both reach Kafka (trace-41).

    Each half places everything on its own node. Of two copies the one that was placed later runs,
    the other one stays down.
    """
    names = ("n1", "n2")
    async with controllers(tmp_path, "a", "b", "c", nodes=names) as cluster:
        nodes, sender = Nodes(tmp_path, broker, cluster), Sender(broker)

        try:
            file = tmp_path / "d.yaml"
            file.write_text(FILE[: FILE.index("  each")] + ROWS)
            for name in names:
                nodes.start(name)
            await nodes.command("query", "apply", str(file))
            await nodes.run_on(*names)
            await answers_on(nodes, "rows")
            cluster.split("a", "n1")
            for half in (("a",), ("b", "c")):
                await eventually_async(partial(_is_alone, cluster, half), f"{half} is alone")
            for fragment in ("orderer/rows.0.a", "orderer/rows.0.b", "root/rows.0"):
                await eventually_async(partial(_stays_down, tmp_path, fragment), fragment)
            await eventually_async(partial(_is_settled, cluster), "one copy of each is ready")
            await answers_on(nodes, "rows")
            cluster.heal()
            await cluster.agreed("a", "b", "c")
            await nodes.run_on(*names)
            await answers_on(nodes, "rows")
        finally:
            nodes.stop_all()
            sender.stop()
        check_each_once(nodes, "rows")


async def _is_alone(cluster: Cluster, half: tuple[str, ...]) -> bool:
    """Whether this half has a view of its own, and all its placements are on its nodes."""
    frame = await cluster.state(half[0])
    node = "n1" if "a" in half else "n2"
    placed = {entry.node for entry in frame.state.placement.values()}
    return frame.members == half and placed == {node}


async def _is_settled(cluster: Cluster) -> bool:
    """Whether one half's copy of each fragment is ready, and the other's is known to stay down."""
    one, other = await cluster.state("a"), await cluster.state("b")
    keys = [key for key in one.state.placement if key[1].startswith(("orderer", "root"))]
    return bool(keys) and all(
        _runs_in_one(one, other, key) or _runs_in_one(other, one, key) for key in keys
    )


def _runs_in_one(here: StateFrame, there: StateFrame, key: tuple[str, str]) -> bool:
    runs, stays_down = here.state.placement.get(key), there.state.placement.get(key)
    if runs is None or stays_down is None:
        return False
    return runs.number in here.nodes.ready and stays_down.number in there.nodes.fenced


def _stays_down(folder: Path, fragment: str) -> bool:
    """Whether the copy with the smaller number stays down, by the logs of the nodes' hosts."""
    logs = [path.read_text() for path in folder.glob("n?/logs/host-*.log")]
    return any(
        re.search(rf"{re.escape(fragment)} .*stays down$", text, re.MULTILINE) for text in logs
    )


@pytest.mark.drill
async def test_what_controllers_place_runs_on_the_nodes_that_are_there(
    tmp_path: Path, broker: str
) -> None:
    async with controllers(tmp_path, "a", "b", relayed=False) as cluster:
        nodes, sender = Nodes(tmp_path, broker, cluster), Sender(broker)
        try:
            await _live_through_failures(nodes, tmp_path)
        finally:
            nodes.stop_all()
            sender.stop()
        check_sums(nodes.transport, sender, "each", 1)
        check_sums(nodes.transport, sender, "wide", 2)


async def _live_through_failures(nodes: Nodes, folder: Path) -> None:
    file = folder / "d.yaml"
    file.write_text(FILE)
    for name in ("n1", "n2"):
        nodes.start(name)
    await nodes.command("query", "apply", str(file))
    placed = await nodes.run_on("n1", "n2")
    assert placed["orderer/each.0.a"] != placed["orderer/each.0.b"]
    await nodes.answers_after("each", 1)

    # A second query beside one whose input does not exist; that one is told, and delays nobody.
    file.write_text(FILE.replace("queries:\n", ABSENT) + CHAINED)
    await nodes.command("query", "apply", str(file))
    placed = await nodes.run_on("n1", "n2", ignored="waits")
    assert "topic no-such-topic" in await nodes.command("node", "list", code=1)
    await nodes.command("query", "delete", "waits")
    placed = await nodes.run_on("n1", "n2")
    assert "root/wide.0" in await nodes.command("node", "list")
    assert not any(name.startswith("orderer/wide.") for name in placed), "it reads those of each"
    await nodes.answers_after("wide", 2)

    # The node of a root is killed, then a controller.
    victim = placed["root/each.0"]
    other = "n2" if victim == "n1" else "n1"
    nodes.kill(victim)
    await nodes.run_on(other)
    nodes.cluster.kill("a")
    await nodes.answers_after("each", 1)

    # It comes back and gets work; the other one is drained, and everything stops there.
    nodes.start(victim)
    await nodes.run_on("n1", "n2")
    drained = await nodes.command("node", "drain", other, "--wait")
    assert "is drained" in drained
    await nodes.run_on(victim)
    nodes.cluster.kill("b")  # no controller is there
    await nodes.answers_after("each", 1)
    for name in ("a", "b"):
        nodes.cluster.start(name)
    await nodes.cluster.agreed("a", "b")
    moved = await nodes.command("node", "move", f"{REGISTRATION}/each", "n9", code=2)
    assert "n9" in moved
    await nodes.command("query", "pause", "wide")
    await nodes.command("query", "resume", "wide")
    await nodes.run_on(victim)
    await nodes.answers_after("wide", 2)

    # The query is deleted whose children another one reads.
    await nodes.command("query", "delete", "each")
    placed = await nodes.run_on(victim)
    assert {"orderer/each.0.a", "orderer/each.0.b", "root/wide.0"} <= placed.keys()
    assert "root/each.0" not in placed
    await nodes.answers_after("wide", 2)
