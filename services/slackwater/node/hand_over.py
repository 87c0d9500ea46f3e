"""Generations that have ended in the record, and still run until their successors answer (rule-29).

The roots of a later generation take over when the registry has the end of the earlier one. That is
some time after the record has it, and two nodes receive the record at different times. If a node
ended the earlier generation at once, nobody would answer meanwhile. So it runs on, with all that it
reads, until the roots of the later one answer, or for ``HAND_OVER_S_MAX``. Kafka's fence ends its
answers. Its delivery ends at once, and that of the later generation starts.

Pure, and in no thread: the listener is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from slackwater.model.deployment import Deployment, QuerySpec
from slackwater.model.kinds import KINDS
from slackwater.model.names import earlier_generations
from slackwater.model.records import Heartbeat
from slackwater.protocols.flux.pair import ANSWERS
from slackwater.runtime.service.heartbeat_view import answering

HAND_OVER_S_MAX: Final = 5.0
"""How long a generation that has ended runs on if its successor does not answer."""


@dataclass(frozen=True)
class HandOver:
    """One generation: what of it runs here, with placement numbers, and which one follows."""

    ended: QuerySpec
    later: QuerySpec
    fragments: Mapping[str, int]

    def is_over(self, latest: Callable[[str], Heartbeat | None]) -> bool:
        """Whether a root of the later generation answers each part, by the latest heartbeats."""
        beats = [answering(latest, self.later.name, part) for part in range(self.later.parts)]
        return all(beat and beat.ready and beat.detail.get(ANSWERS, 1) for beat in beats)


def hand_overs(
    before: Deployment, now: Deployment, running: Mapping[str, int]
) -> dict[str, HandOver]:
    """The generations that have ended between two states of the record, by name.

    Args:
        before: the queries of the earlier state.
        now: those of the later state.
        running: what runs here, with placement numbers.
    """
    found: dict[str, HandOver] = {}
    for later in now.queries.values():
        for name in earlier_generations(later.name, before.queries.keys() - now.queries.keys()):
            ended = before.queries[name]
            names = [
                each
                for kind in KINDS.values()
                if not kind.follows
                for group in kind.groups(ended)
                for each in group
            ]
            fragments = {each: running[each] for each in names if each in running}
            if later.name in before.queries and fragments:
                found[name] = HandOver(ended, later, fragments)
    return found
