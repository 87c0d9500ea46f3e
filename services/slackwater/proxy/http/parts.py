"""Common parts of all body formats: the limit of readings, and the readings of a body as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from slackwater.proxy.requests import UnusableBody

READINGS_MAX: Final = 100_000
"""Maximum readings of one body."""


@dataclass(frozen=True, slots=True)
class Texts:
    """The readings of a body as text."""

    pieces: Sequence[bytes]

    def __call__(self, index: int) -> str:
        """Return one reading."""
        return self.pieces[index].decode(errors="replace")


def check_number(readings: int) -> None:
    """Refuse a body with too many readings."""
    if readings > READINGS_MAX:
        reason = f"the body has more than {READINGS_MAX} readings: send several bodies"
        raise UnusableBody(reason, 413)
