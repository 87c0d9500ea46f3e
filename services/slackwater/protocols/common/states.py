"""The states of an output stream, and the moves between them, as a table (DPC, Figure 5).

A consumer chooses among replicas by these states (Table II), so they are part of the contract:
heartbeats carry them. Section 8.2 keeps one for each output instead of one for the whole node;
here every pair of lines has its own.

The table holds all that is legal. A move that it lacks is a mistake of ours and raises, with the
state and the event named. The diagram in ``docs/protocols/dpc.md`` is drawn from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final


class LineState(Enum):
    """What an output is at the moment."""

    STABLE = "STABLE"
    """Everything answered so far is final: the lines are one."""
    UP_FAILURE = "UP_FAILURE"
    """The live line is apart, and some input is missing or tentative."""
    STABILIZATION = "STABILIZATION"
    """The live line is apart, but lacks nothing any more: the stable line is catching up."""

    @classmethod
    def of(cls, version: str | None) -> LineState | None:
        """What a heartbeat says; None if it says nothing, or nothing that there is."""
        return _STATES.get(version) if version is not None else None


_STATES: Final = {state.value: state for state in LineState}


class LineEvent(Enum):
    """What moves an output from state to state."""

    INPUT_MISSING = "INPUT_MISSING"
    """A unit is answered without an input, or from a tentative one."""
    INPUT_COMPLETE = "INPUT_COMPLETE"
    """The live line's next unit lacks nothing. It forks on that only where the stable line is
    behind its own deadline (held up by its reading, not by an input)."""
    JOINED = "JOINED"
    """The stable line has come to where the live line is, in time, and so have its readers."""


Moves = Mapping[tuple[LineState, LineEvent], LineState]

MOVES: Final[Moves] = MappingProxyType(
    {
        (LineState.STABLE, LineEvent.INPUT_MISSING): LineState.UP_FAILURE,
        (LineState.STABLE, LineEvent.INPUT_COMPLETE): LineState.STABILIZATION,
        (LineState.UP_FAILURE, LineEvent.INPUT_MISSING): LineState.UP_FAILURE,
        (LineState.UP_FAILURE, LineEvent.INPUT_COMPLETE): LineState.STABILIZATION,
        # What was missing may come so quickly that the stable line is there at the next look.
        (LineState.UP_FAILURE, LineEvent.JOINED): LineState.STABLE,
        (LineState.STABILIZATION, LineEvent.INPUT_MISSING): LineState.UP_FAILURE,
        (LineState.STABILIZATION, LineEvent.INPUT_COMPLETE): LineState.STABILIZATION,
        (LineState.STABILIZATION, LineEvent.JOINED): LineState.STABLE,
    }
)


class IllegalMoveError(AssertionError):
    """The table has no such move."""


def moved(state: LineState, event: LineEvent) -> LineState:
    """The state after ``event``."""
    try:
        return MOVES[state, event]
    except KeyError:
        raise IllegalMoveError(f"{event.value} is no event of an output in {state.value}") from None
