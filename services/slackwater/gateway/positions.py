"""The id of an event of a stream: how far each part of a query has been sent.

A query's parts have no order between each other (``client/merge.py``), so one number cannot name a
place in the stream of all parts. An id has one position for each part, the ``seq`` of its last
change: ``climate/0:1841,1:1790``. A reader sends it back as ``Last-Event-ID``. Whatever a reader
sends is checked: an id that cannot be one is None, and the reader gets a snapshot.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

ID_CHARS_MAX: Final = 16_384
_POSITION: Final = re.compile(r"(\d{1,6}):(\d{1,18})", re.ASCII)

Positions = Mapping[int, int]
"""The ``seq`` of the last change of each part."""


def format_id(query: str, positions: Positions) -> str:
    """Return the id; parts ascend."""
    return f"{query}/" + ",".join(f"{part}:{seq}" for part, seq in sorted(positions.items()))


def parse_id(text: str | None, query: str) -> dict[int, int] | None:
    """Return the positions of an id of this query; None if it is not one."""
    if text is None or len(text) > ID_CHARS_MAX or not text.startswith(f"{query}/"):
        return None
    found: dict[int, int] = {}
    for each in text.removeprefix(f"{query}/").split(","):
        position = _POSITION.fullmatch(each)
        if position is None or int(position[1]) in found:
            return None
        found[int(position[1])] = int(position[2])
    return found
