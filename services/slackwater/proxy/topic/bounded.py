"""The part of a topic that a bounded history reads: up to an end offset of each partition.

The end offsets are those at the start of the history, so messages that arrive later are not read:
the answers do not depend on how long it takes. When all is read the stream waits for the end of the
history (us of event time) in its inbox, as a stream that reads files does (``sensors``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from slackwater.model.limits import FOREVER
from slackwater.proxy.sensors import end_from
from slackwater.proxy.topic.client import Fetched
from slackwater.proxy.topic.partition import Partition
from slackwater.runtime.logs.transport import Log
from slackwater.runtime.service.parts import ENDED

LOOK_EVERY_US: Final = 200_000


class Bounded:
    """The end offsets, by partition, and the inbox; a partition that was added later has none.

    Without end offsets the topic is read for ever.
    """

    def __init__(self, until: Sequence[int] | None = None, inbox: Path | None = None) -> None:
        assert (until is None) == (inbox is None)
        self._until, self._inbox = until, inbox

    def until(self, partition: int) -> int:
        """Return the offset before which the partition is read."""
        if self._until is None:
            return FOREVER
        return self._until[partition] if partition < len(self._until) else 0

    def kept(self, fetched: Fetched) -> Fetched:
        """Return the messages that are read: the same object if all are."""
        below = int(np.searchsorted(fetched.offsets, self.until(fetched.partition)))
        if below == len(fetched.offsets):
            return fetched
        return replace(fetched, offsets=fetched.offsets[:below], values=fetched.values[:below])

    def pass_over(self, partition: Partition, fetched: Fetched) -> None:
        """Note that the partition is read, if messages behind its end have been fetched."""
        until = self.until(partition.number)
        if len(fetched.offsets) and int(fetched.offsets[-1]) >= until:
            partition.position = max(partition.position, until)

    def cut(self, ends: Mapping[Log, int]) -> dict[Log, int]:
        """Return end offsets of partitions as if the topic ended there."""
        return {log: min(end, self.until(log[1])) for log, end in ends.items()}

    def has_ended(self, partitions: Iterable[Partition]) -> bool:
        """Whether all of the history has been read from these partitions, and sent."""
        return self._until is not None and all(
            p.position >= self.until(p.number) and not p.log.core.waiting for p in partitions
        )

    def detail(self, partitions: Iterable[Partition]) -> dict[str, int]:
        """Return what the heartbeat tells of the end; nothing of a topic without one."""
        return {} if self._until is None else {ENDED: int(self.has_ended(partitions))}

    def end(self, partitions: Sequence[Partition], flush: Callable[[Partition], None]) -> None:
        """Raise the watermarks to the end of the history, once the inbox has it (trace-24)."""
        assert self._inbox is not None
        for path in sorted(self._inbox.glob("*.json")):
            if (end_us := end_from(path)) is None:
                continue
            for partition in partitions:
                partition.log.core.advance_watermark(end_us)
                flush(partition)
            path.replace(path.with_suffix(".done"))


ALL: Final = Bounded()
"""A topic that is read for ever."""
