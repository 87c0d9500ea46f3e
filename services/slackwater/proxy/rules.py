"""The rules of the source logs of a live input: of a topic, MQTT, HTTP or files that are ingested.

Boundaries follow the clock if silence means that there are no readings (rule-9). With
``expect_every`` or ``clock: data`` they come from the readings alone. With ``clock: wall`` each
reading is compared with the clock (trace-45). A file that is replayed has rules of its own
(``replaying``).
"""

from __future__ import annotations

from slackwater.protocols.dpc.source.core import SourceRules
from slackwater.proxy.shell import InputContext


def follows_clock(context: InputContext) -> bool:
    """Return whether the stream's boundaries follow the clock, not the readings alone."""
    return context.spec.expect_every_us is None and context.deployment.clock == "wall"


def live_rules(context: InputContext, log: str, partitions: int = 0) -> SourceRules:
    """Return the rules of one of the stream's logs; ``partitions``: their number (rule-30)."""
    spec, by_clock = context.spec, follows_clock(context)
    return SourceRules(
        log=log,
        fields=spec.field_names,
        disorder_us=spec.disorder_us,
        late="promise" if by_clock else "input",
        clock_boundaries=by_clock,
        ahead_us=spec.ahead_us if context.deployment.clock == "wall" else None,
        learning=context.learning,
        partitions=partitions,
    )
