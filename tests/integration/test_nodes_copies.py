"""Two copies of a part on two nodes: a node dies while no controller runs, another one leaves."""

from __future__ import annotations

from pathlib import Path

from tests.integration.test_nodes import FILE, ROWS, _broker, answers_on, check_each_once
from tests.support.controllers import controllers
from tests.support.counted_sender import Sender
from tests.support.nodes import Nodes
from tests.support.waiting import eventually

from slackwater.model.names import RootName
from slackwater.model.records import RootState
from slackwater.runtime.service.state import read_root_state

__all__ = ["_broker"]

COPIES = ROWS.replace("copies: 1", "copies: 2")


async def test_a_node_dies_without_controllers_and_the_other_copy_answers_on(
    tmp_path: Path, broker: str
) -> None:
    async with controllers(tmp_path, "a", relayed=False) as cluster:
        nodes, sender = Nodes(tmp_path, broker, cluster), Sender(broker)

        def state() -> RootState:
            found = read_root_state(nodes.transport, "rows", 0)
            assert found is not None
            return found

        def answers() -> str:
            """Name the copy that answers."""
            return RootName("rows", 0, state().copy).process

        try:
            file = tmp_path / "d.yaml"
            file.write_text(FILE[: FILE.index("  each")] + COPIES)
            for name in ("n1", "n2"):
                nodes.start(name)
            await nodes.command("query", "apply", str(file))
            placed = await nodes.run_on("n1", "n2")
            assert placed["root/rows.0.a"] != placed["root/rows.0.b"]
            await answers_on(nodes, "rows")
            # No controller: the node that dies is not even suspected, and its copy is replaced.
            before, victim = state(), placed[answers()]
            other = "n2" if victim == "n1" else "n1"
            nodes.cluster.kill("a")
            nodes.kill(victim)
            eventually(lambda: state().term > before.term, "the other copy has taken over")
            assert placed[answers()] == other
            # A node that leaves hands its part over before its copy ends.
            nodes.cluster.start("a")
            await cluster.agreed("a")
            nodes.start(victim)
            placed = await nodes.run_on("n1", "n2")
            await answers_on(nodes, "rows")
            assert placed[answers()] == other
            await nodes.command("node", "leave", other)
            await nodes.run_on(victim)
            await answers_on(nodes, "rows")
            logs = [log.read_text() for log in (tmp_path / other).rglob("host*.log")]
            assert any("resigns: the other copy takes over" in log for log in logs)
        finally:
            nodes.stop_all()
            sender.stop()
        check_each_once(nodes, "rows")
