"""The states of an output stream and the transitions between them, as a table (DPC, Figure 5).

Heartbeats carry these states, and a consumer chooses among replicas by them (Table II). Every pair
of lines has a state of its own, as section 8.2 keeps one state per output instead of one per node.

The table holds all legal transitions. Any other transition is a bug and raises an error that names
the state and the event. The diagram in ``docs/protocols/dpc.md`` is drawn from the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final


class LineState(Enum):
    """The state of one output."""

    STABLE = "STABLE"
    """Everything answered so far is final; the lines are joined."""
    UP_FAILURE = "UP_FAILURE"
    """The lines are forked, and some input is missing or tentative."""
    STABILIZATION = "STABILIZATION"
    """The lines are forked and no input is missing; the stable line is catching up."""

    @classmethod
    def of(cls, version: str | None) -> LineState | None:
        """The state named in a heartbeat; None if absent or unknown."""
        return _STATES.get(version) if version is not None else None


_STATES: Final = {state.value: state for state in LineState}


class LineEvent(Enum):
    """The events that move an output between states."""

    INPUT_MISSING = "INPUT_MISSING"
    """A unit is answered without some input, or from a tentative input."""
    INPUT_COMPLETE = "INPUT_COMPLETE"
    """The live line's next unit lacks nothing. This event forks joined lines only if the stable
    line misses the deadline because its own reading is behind, while no input is missing."""
    JOINED = "JOINED"
    """The stable line has reached the live line before its deadline, and so have its readers."""


Moves = Mapping[tuple[LineState, LineEvent], LineState]

MOVES: Final[Moves] = MappingProxyType(
    {
        (LineState.STABLE, LineEvent.INPUT_MISSING): LineState.UP_FAILURE,
        (LineState.STABLE, LineEvent.INPUT_COMPLETE): LineState.STABILIZATION,
        (LineState.UP_FAILURE, LineEvent.INPUT_MISSING): LineState.UP_FAILURE,
        (LineState.UP_FAILURE, LineEvent.INPUT_COMPLETE): LineState.STABILIZATION,
        # A missing input may arrive so quickly that the stable line has caught up by the next step.
        (LineState.UP_FAILURE, LineEvent.JOINED): LineState.STABLE,
        (LineState.STABILIZATION, LineEvent.INPUT_MISSING): LineState.UP_FAILURE,
        (LineState.STABILIZATION, LineEvent.INPUT_COMPLETE): LineState.STABILIZATION,
        (LineState.STABILIZATION, LineEvent.JOINED): LineState.STABLE,
    }
)


class IllegalMoveError(AssertionError):
    """A transition that is not in the table."""


def moved(state: LineState, event: LineEvent) -> LineState:
    """The state after ``event``."""
    try:
        return MOVES[state, event]
    except KeyError:
        raise IllegalMoveError(f"{event.value} is no event of an output in {state.value}") from None
