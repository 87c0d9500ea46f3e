"""The table of an output's states: every state with every event, and the manual shows it."""

from itertools import product
from pathlib import Path

import pytest

from slackwater.protocols.common.states import MOVES, IllegalMoveError, LineEvent, LineState, moved

DOCS = Path(__file__).parents[4] / "docs" / "protocols" / "dpc.md"


def diagram() -> str:
    """Return the table as Mermaid, as in the manual."""
    lines = ["stateDiagram-v2", "    [*] --> STABLE"]
    lines += [
        f"    {a.value} --> {b.value}: {e.value}" for (a, e), b in MOVES.items() if a is not b
    ]
    return "\n".join(lines)


@pytest.mark.parametrize(("state", "event"), list(product(LineState, LineEvent)))
def test_every_state_meets_every_event(state: LineState, event: LineEvent) -> None:
    """The paper's moves (Figure 5), written a second time."""
    after = {
        LineEvent.INPUT_MISSING: LineState.UP_FAILURE,
        LineEvent.INPUT_COMPLETE: LineState.STABILIZATION,
        LineEvent.JOINED: LineState.STABLE,
    }[event]
    if (state, event) == (LineState.STABLE, LineEvent.JOINED):
        with pytest.raises(IllegalMoveError, match="JOINED is no event of an output in STABLE"):
            moved(state, event)
    else:
        assert moved(state, event) is after


def test_every_state_can_be_reached_and_left() -> None:
    assert {to for (at, _), to in MOVES.items() if at is not to} == set(LineState)
    assert {at for (at, _), to in MOVES.items() if at is not to} == set(LineState)


def test_the_manual_shows_the_table() -> None:
    assert diagram() in DOCS.read_text(encoding="utf-8"), f"docs/protocols/dpc.md:\n{diagram()}"
