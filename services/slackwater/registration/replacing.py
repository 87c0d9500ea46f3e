"""Determines when a query's new generation is ready to replace the earlier one.

A generation is *ready* when all input of its next answer is available, so that the bound holds
across the change: one replica of each child has passed the windows that the earlier generation has
answered, and its deltas have been written. There is one delta for each ordered record (rule-19), so
the ends of the logs show whether all deltas are written (rule-29).

The roots of the later generation follow the answers of the earlier one. If a root of a part is not
ready some seconds after the deltas are, the change is completed nevertheless: it answers later.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from slackwater.model.deployment import QuerySpec
from slackwater.model.names import OrdererName, RootName, copy_names
from slackwater.runtime.logs.topics import deltas_partition, ordered_partition
from slackwater.runtime.logs.transport import Log, Transport
from slackwater.runtime.service.heartbeat_view import answering
from slackwater.runtime.service.heartbeats import HeartbeatListener
from slackwater.runtime.service.state import read_root_states

ROOTS_S_MAX: Final = 10.0
"""How long the roots of a later generation are waited for once their deltas are written."""


class Replacing:
    """Checks generations that are to replace earlier ones; for one thread at a time.

    ``clock`` returns monotonic time, s.
    """

    def __init__(
        self,
        transport: Transport,
        listener: HeartbeatListener,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._transport, self._listener, self._clock = transport, listener, clock
        self._ordered_before: dict[str, Mapping[Log, int]] = {}
        self._complete_since_s: dict[str, float] = {}

    def is_ready(self, later: QuerySpec, earlier: QuerySpec) -> bool:
        """Whether the later generation is ready to replace the earlier one; blocks.

        For a query with a window the first call never returns True: the deltas must have reached
        the ends that the ordered logs had at the previous call.
        """
        if not self._is_complete(later, earlier):
            return False
        since_s = self._complete_since_s.setdefault(later.name, self._clock())
        return self._roots_follow(later) or self._clock() - since_s >= ROOTS_S_MAX

    def _roots_follow(self, query: QuerySpec) -> bool:
        """Whether a root of each part could answer at once."""
        parts = (copy_names(query.name, part, query.copies) for part in range(query.parts))
        return all(any(self._listener.ready(of.process) for of in part) for part in parts)

    def _is_complete(self, later: QuerySpec, earlier: QuerySpec) -> bool:
        """Whether the deltas of the next answer are there."""
        answered_to = self._answered_to(earlier)
        ahead = [
            [r for r in range(later.replicas) if self._reached(later, child, r) >= answered_to]
            for child in range(later.children)
        ]
        if not all(ahead):
            return False
        if later.window is None:
            return True
        logs = {
            (child, replica, line): self._ordered(later, child, replica, line)
            for child in range(later.children)
            for replica in range(later.replicas)
            for line in (0, 1)
        }
        before = self._ordered_before.get(later.name)
        self._ordered_before[later.name] = self._transport.end_offsets(logs.values())
        if before is None:
            return False
        deltas = {
            of: [self._deltas(later, part, *of) for part in range(later.parts)] for of in logs
        }
        ends = self._transport.end_offsets(log for each in deltas.values() for log in each)
        return all(
            any(
                all(
                    ends[log] >= before[logs[child, replica, line]]
                    for line in (0, 1)
                    for log in deltas[child, replica, line]
                )
                for replica in ahead[child]
            )
            for child in range(later.children)
        )

    def forget(self, live: Iterable[str]) -> None:
        """Forget generations that are not among these."""
        kept = {*live}
        self._ordered_before = {n: e for n, e in self._ordered_before.items() if n in kept}
        self._complete_since_s = {n: s for n, s in self._complete_since_s.items() if n in kept}

    def _answered_to(self, query: QuerySpec) -> int:
        """The event time (us) up to which an earlier generation has answered.

        That is the end of the last answered window, in the part that has answered the most. It is 0
        if no part has answered.
        """
        names = {RootName(query.name, part).process: part for part in range(query.parts)}
        latest = self._listener.latest
        beats = {name: answering(latest, query.name, part) for name, part in names.items()}
        known = {
            n: b.detail["answered_to"] for n, b in beats.items() if b and "answered_to" in b.detail
        }
        if known.keys() < {*names}:  # heartbeats of some roots have not been received yet
            states = read_root_states(self._transport, query.name, query.parts)
            known |= {n: state.answered_to for n, state in states.items() if n not in known}
        ahead_us = 0 if query.window is None else query.window.size_us - query.window.slide_us
        return max(known.values(), default=-ahead_us) + ahead_us

    def _reached(self, query: QuerySpec, child: int, replica: int) -> int:
        """The event time (us) that a replica has reached; -1 if it is suppressed or not ready."""
        process = OrdererName(query.name, child, replica).process
        beat = self._listener.latest(process)
        if beat is None or not self._listener.ready(process) or beat.detail.get("mute", 1):
            return -1
        return max(beat.detail.get("stable_to", -1), beat.detail.get("live_to", -1))

    def _ordered(self, query: QuerySpec, child: int, replica: int, line: int) -> Log:
        topic = self._transport.names.ordered(query.name, child)
        return topic, ordered_partition(replica, live=bool(line))

    def _deltas(self, query: QuerySpec, part: int, child: int, replica: int, line: int) -> Log:
        topic = self._transport.names.deltas(query.name, part)
        return topic, deltas_partition(child, replica, query.replicas, live=bool(line))
