"""Input positions of messages with several readings.

A position is the offset at which the input continues, in 63 bits. A source record may end between
two readings of one message. Its position then also contains the index of the next element of that
message, in the bits above the offset. A restarted proxy reads the message again and drops the
elements that the log already covers. Between two messages the index is 0, and the position is the
plain offset, as for formats with one reading per message. A stream may therefore change its format
without a change of its log.

Rejected: the number of readings of the message in the log. Refused elements are not in the log, and
whether an element is refused may depend on the readings before it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from slackwater.model.errors import SlackwaterError
from slackwater.model.records import type_i64

OFFSET_BITS: Final = 47
OFFSET_MAX: Final = (1 << OFFSET_BITS) - 1
"""140 trillion messages in a partition."""
ELEMENTS_MAX: Final = 1 << (63 - OFFSET_BITS)
"""Maximum elements of a message, 65,536."""


def position_of(offset: int, element: int) -> int:
    """Return the position before this element of the message at ``offset``."""
    return offset | element << OFFSET_BITS


def split_position(position: int) -> tuple[int, int]:
    """Return the offset at which the input continues, and the next element of its message."""
    return position & OFFSET_MAX, position >> OFFSET_BITS


def next_positions(offsets: type_i64, elements: type_i64, lasts: npt.NDArray[np.bool_]) -> type_i64:
    """Return the position after each element: the next one of its message, or the next message."""
    if len(offsets) and int(offsets.max()) >= OFFSET_MAX:
        raise SlackwaterError(f"an offset of {offsets.max()}: at most {OFFSET_MAX} is supported")
    return np.where(lasts, offsets + 1, offsets + ((elements + 1) << OFFSET_BITS))
