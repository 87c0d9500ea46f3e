"""A batch of messages of one partition, in the form for the source core and the quarantine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from slackwater.formats.messages import MESSAGE, Parsed
from slackwater.formats.positions import next_positions
from slackwater.model.records import type_i64
from slackwater.protocols.dpc.source.arrived import Arrived
from slackwater.protocols.dpc.source.core import Refused
from slackwater.proxy.quarantine import PAYLOAD_CHARS_MAX, QuarantineEntry, why


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages of one partition and their parsed form.

    ``texts`` returns, for a message, the function from an element's index to its text.
    """

    values: Sequence[bytes]
    offsets: type_i64
    parsed: Parsed
    texts: Callable[[bytes], Callable[[int], str]]
    mark: str = ""
    """Follows each place; see ``TopicState.mark``."""
    _texts_of: dict[int, Callable[[int], str]] = field(default_factory=dict)
    """The last message whose text was requested: it is parsed once for all its elements."""

    def text(self, index: int) -> str:
        """Return a message or element as text, for quarantine."""
        message, element = self._place(index)
        if element == MESSAGE:
            return self.values[message].decode(errors="replace")
        if message not in self._texts_of:
            self._texts_of.clear()
            self._texts_of[message] = self.texts(self.values[message])
        return self._texts_of[message](element)[:PAYLOAD_CHARS_MAX]

    def position(self, index: int) -> str:
        """Return the offset of a message, with the index of an element in it, and the topic's id.

        For example ``17``, ``17[2]`` or ``17@pLp4AYDATVapA4rAbqcY7w``.
        """
        message, element = self._place(index)
        offset = int(self.offsets[message])
        return f"{offset}{self.mark}" if element == MESSAGE else f"{offset}[{element}]{self.mark}"

    def _place(self, index: int) -> tuple[int, int]:
        elements = self.parsed.elements
        if elements is None:
            return index, MESSAGE
        return int(elements.messages[index]), int(elements.indices[index])

    def _next_positions(self) -> type_i64:
        """Return the input position after each reading."""
        at, elements = self.parsed.indices, self.parsed.elements
        if elements is None:
            return self.offsets[at] + 1
        offsets = self.offsets[elements.messages[at]]
        return next_positions(offsets, elements.indices[at], elements.lasts[at])

    def runs(self) -> list[tuple[Arrived, Any, tuple[int, int] | None]]:
        """Return readings between explicit boundaries, with their indices and the boundary.

        A boundary is the index of its message, and its watermark.
        """
        parsed, end = self.parsed, int(self.offsets[-1]) + 1
        complete = Arrived(
            parsed.stimes,
            parsed.key_index,
            parsed.keys,
            parsed.values,
            self._next_positions(),
            end,
        )
        if not parsed.boundaries:
            return [(complete, parsed.indices, None)]
        runs: list[tuple[Arrived, Any, tuple[int, int] | None]] = []
        start = 0
        for boundary in parsed.boundaries:
            stop = int(np.searchsorted(parsed.indices, boundary[0]))
            runs.append((complete.take(slice(start, stop)), parsed.indices[start:stop], boundary))
            start = stop
        runs.append((complete.take(slice(start, None)), parsed.indices[start:], None))
        return runs

    def malformed(self, where: str) -> list[QuarantineEntry]:
        """Return the entries of malformed messages and elements."""
        return [
            QuarantineEntry(
                where + self.position(bad.index),
                bad.reason,
                bad.stime,
                bad.detail,
                self.text(bad.index),
            )
            for bad in self.parsed.bad
        ]

    def boundary_ahead(self, where: str, boundary: tuple[int, int]) -> QuarantineEntry:
        """Return the entry of a boundary too far ahead of the clock."""
        index, watermark = boundary
        position, detail = where + self.position(index), "boundary: ahead of the proxy's clock"
        return QuarantineEntry(position, "ahead", watermark, detail, self.text(index))

    def refused(self, where: str, refused: Refused, indices: Any) -> list[QuarantineEntry]:
        """Return the entries of refused readings; ``indices`` are those of their run."""
        entries = []
        for i in refused.indices.tolist():
            index = int(indices[i])
            at = int(np.searchsorted(self.parsed.indices, index))
            stime = int(self.parsed.stimes[at])
            entries.append(
                QuarantineEntry(
                    where + self.position(index),
                    refused.reason,
                    stime,
                    why(refused, stime),
                    self.text(index),
                    self.parsed.keys[int(self.parsed.key_index[at])],
                )
            )
        return entries
