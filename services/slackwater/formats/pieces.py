"""What a reader of files returns: pieces of bounded size, with a number for each place.

A place is a line of CSV or of JSON, or an element of a JSON array. All are counted from 1, and a
position in a file is the number of the next place to read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from slackwater.formats.dead_letters import DeadLetters
from slackwater.model.records import type_i64
from slackwater.protocols.dpc.source.arrived import Arrived
from slackwater.protocols.dpc.source.core import Reason

PIECE_BYTES_DEFAULT: Final = 4 * 1024 * 1024
Guard = tuple[DeadLetters, str]
"""The dead letters of a stream, and this file's name in them."""


@dataclass(frozen=True, slots=True)
class Malformed:
    """A place that is not a valid reading."""

    line: int
    text: str
    detail: str
    stime: int | None
    reason: Reason = "malformed"


class PlaceTexts(Protocol):
    """The original texts of a piece."""

    def text(self, line: int) -> str:
        """Return the text at a place."""
        ...


@dataclass(frozen=True, slots=True)
class FilePiece:
    """Content of a piece: readings in the file's order, malformed places, and blank lines.

    ``lines`` are the readings' places; ``arrived.positions`` the places after them.
    """

    arrived: Arrived
    lines: type_i64
    malformed: tuple[Malformed, ...]
    blank: int
    raw: PlaceTexts

    def text(self, line: int) -> str:
        """Return the original text at a place, for the quarantine."""
        return self.raw.text(line)


class ReadingsFile(Protocol):
    """A file of readings, opened according to a stream's declaration."""

    path: Path

    def verify(self) -> None:
        """Read a file to its end if damage could be there; ``DeploymentError`` if it is."""
        ...

    def pieces(self) -> Iterator[FilePiece]:
        """Yield the whole file in pieces of bounded size."""
        ...
