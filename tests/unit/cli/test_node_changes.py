"""``slackwater node drain --wait``: what cannot leave a node is reported at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.definitions import apply
from tests.unit.control.test_recorded import recorded

from slackwater.cli import node_changes
from slackwater.control.control_object import JoinNode, MoveFragment
from slackwater.control.control_state import STREAMS, PlacementEntry
from slackwater.control.placement import FragmentSpec
from slackwater.model.errors import CheckFailed, UsageError
from slackwater.protocols.iads.messages import Stamp

ROOT = FragmentSpec("q", "root.0", "root.0")
SPOOLED = FragmentSpec(STREAMS, "lab", "lab/0", (), "n1")


def test_a_drain_moves_what_can_be_moved_and_names_what_cannot(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at = {"root": "n1"}

    async def state(_: Any) -> Any:
        placed = {
            ("q", "root.0"): PlacementEntry(1, 1, Stamp(1, 1, "a"), at["root"]),
            (STREAMS, "lab"): PlacementEntry(1, 2, Stamp(1, 1, "a"), "n1"),
        }
        at["root"] = "n2"  # it is moved meanwhile
        return SimpleNamespace(
            state=SimpleNamespace(placement=placed),
            nodes=SimpleNamespace(ready={1, 2}, unplaced=()),
        )

    monkeypatch.setattr(node_changes, "_state", state)
    monkeypatch.setattr(node_changes, "fragment_specs", lambda _: [ROOT, SPOOLED])
    with pytest.raises(CheckFailed, match=r"node n1 keeps proxy/lab: the readings in its spool"):
        node_changes.wait_drained(SimpleNamespace(), "n1")  # type: ignore[arg-type]
    assert capsys.readouterr().out == (
        "2 fragments are to run on other nodes: root/q.0, proxy/lab\n"
    )


def test_a_fragment_that_is_not_there_is_not_recorded_as_moved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def state(_: Any) -> Any:
        return SimpleNamespace(state=recorded(apply("q"), JoinNode("n1", 9)))

    requested: list[Any] = []
    monkeypatch.setattr(node_changes, "_state", state)
    monkeypatch.setattr(node_changes, "request", lambda _, operation: requested.append(operation))
    reach: Any = SimpleNamespace()
    with pytest.raises(
        UsageError, match=r"no fragment root/q\.7; the nearest is root/q\.0"
    ) as caught:
        node_changes.move(reach, "root/q.7", "n1")
    assert (caught.value.exit_code, requested) == (2, [])
    node_changes.move(reach, "root/q.0", "n1")
    assert requested == [MoveFragment("q", "root.0", "n1")]
