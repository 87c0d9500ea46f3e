"""Writes panes in bounded turns: those that a root stores, and those that a merger sends.

A pane may have a million keys. To take its digest and to copy its columns is divided into steps, of
which a turn handles some, and few records are in flight: others write through the same producer.
Contents are named by their digest, so two writers of one content write the same (``model.heads``).

Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sized
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from slackwater.model.heads import PaneColumns, PaneRef
from slackwater.primitives.digests import recorded

TURN_CELLS_MAX: Final = 1 << 17
"""Numbers handled in one turn: 1 MiB, some milliseconds."""
STEP_CELLS: Final = 1 << 13
"""What a step takes beside its numbers, in numbers: some tenths of a millisecond."""
IN_FLIGHT_CELLS_MAX: Final = 2 * TURN_CELLS_MAX
"""Numbers that are written and not acknowledged."""

T = TypeVar("T")
W_contra = TypeVar("W_contra", bound=Sized, contravariant=True)


class Extracted(Protocol[W_contra]):
    """What a writer needs of the contents of panes (``primitives.deltas.Aggregates``)."""

    def pieces(self, value: W_contra) -> int:
        """Return in how many pieces it is written."""
        ...

    def cells(self, value: W_contra) -> int:
        """Return how many numbers it has."""
        ...

    def digest_of_piece(self, value: W_contra, piece: int) -> tuple[int, ...]:
        """Return what a piece adds to the digest."""
        ...

    def total_digest(self, of_pieces: Iterable[tuple[int, ...]]) -> int:
        """Return the digest of all pieces."""
        ...

    def extract(self, value: W_contra, piece: int) -> PaneColumns:
        """Return a piece."""
        ...


@dataclass(frozen=True, slots=True)
class WriteStep(Generic[T]):
    """A step of writing, and how many numbers it handles; without a record nothing is written."""

    cells: int
    record: T | None = None


Steps = Generator[WriteStep[T], None, PaneRef]


def named(contents: Extracted[W_contra], child: int, start: int, value: W_contra) -> Steps[T]:
    """Yield the steps of taking the digest of a pane with rows, and return its name."""
    of_pieces = []
    pieces, cells = contents.pieces(value), contents.cells(value)
    for piece in range(pieces):
        of_pieces.append(contents.digest_of_piece(value, piece))
        yield WriteStep(cells // pieces)
    digest = recorded(contents.total_digest(of_pieces))
    return PaneRef(child, start, len(value), pieces, digest)


class TurnWriter(Generic[T]):
    """Carries out the steps of one piece of work after the other, some in each turn."""

    def __init__(self) -> None:
        self._work: Iterator[WriteStep[T]] | None = None
        self._in_flight: deque[int] = deque()
        self._is_waiting = False

    def begin(self, work: Iterator[WriteStep[T]]) -> None:
        """Begin a piece of work; the one before has ended."""
        assert self._work is None, "one piece of work at a time"
        self._work = work

    @property
    def has_work(self) -> bool:
        """Whether a piece of work has not ended."""
        return self._work is not None

    @property
    def is_busy(self) -> bool:
        """Whether ``write`` has more to do at once."""
        return self._work is not None and not self._is_blocked

    @property
    def is_acknowledged(self) -> bool:
        """Whether all that has been written is in the log."""
        return not self._in_flight

    @property
    def _is_blocked(self) -> bool:
        if self._is_waiting:
            return bool(self._in_flight)
        return sum(self._in_flight) >= IN_FLIGHT_CELLS_MAX

    def write(self) -> list[T]:
        """Return what is to be written in this turn, in order."""
        found: list[T] = []
        cells = 0
        while self._work is not None and not self._is_blocked and cells < TURN_CELLS_MAX:
            step = next(self._work, None)
            if step is None:
                self._work = None
                break
            cells += step.cells + STEP_CELLS
            if step.record is not None:
                self._in_flight.append(step.cells)
                found.append(step.record)
        return found

    def acknowledged(self) -> None:
        """Record that the next of the written records is in the log."""
        self._in_flight.popleft()

    def acknowledgements(self) -> Iterator[WriteStep[T]]:
        """Wait until all that has been written is in the log; for a piece of work."""
        self._is_waiting = True
        while self._in_flight:
            yield WriteStep(0)
        self._is_waiting = False
