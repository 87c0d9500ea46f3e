"""What a copy of a root does with the panes while another copy answers (rule-27).

It holds their deltas undecoded, or folds them; ``protocols.flux.holding`` decides which. Those that
it has folded it compares with what the copy that answers has committed (trace-57).
"""

from __future__ import annotations

from slackwater.codec.results import format_time
from slackwater.model.records import RootState
from slackwater.primitives.digests import DIGEST_MASK, NO_DIGEST
from slackwater.protocols.dpc.soutput.config import RootConfig
from slackwater.protocols.dpc.soutput.core import RootCore
from slackwater.protocols.flux.holding import may_begin
from slackwater.sessions.effects import LogLine


def is_able(core: RootCore) -> bool:
    """Return whether a root could answer at once."""
    return core.connected and not core.suppress_tentative


class Following:
    """What one copy holds and compares."""

    def __init__(self, config: RootConfig) -> None:
        self._config = config
        self.compared = 0
        """How often this copy has compared its panes with those of the copy that answers."""
        self.disagreements = 0
        self._alarms: list[LogLine] = []

    def hold(self, core: RootCore, state: RootState) -> None:
        """Hold what follows a state record that has been adopted, or read it.

        Where merged panes come the copy reads these, and rests by itself (rule-36).
        """
        config, holding = self._config, core.resting.holding
        if (
            config.merged_wait_us is None
            and not config.is_compared(state.stable_from)
            and is_able(core)
            and self._may_begin(core, state)
        ):
            holding.hold(state)
        else:
            holding.read()

    def _may_begin(self, core: RootCore, state: RootState) -> bool:
        read_us = core.movable.read_us(core.resting.holding.records_after(state))
        return may_begin(state, read_us, self._config.held_read_us_max)

    def attend(self, core: RootCore, now: int) -> None:
        """Process input and time; read what is held if it has become too much."""
        core.attend(now)
        holding = core.resting.holding
        if holding.is_active:
            read_us = core.movable.read_us(holding.records)
            if read_us > self._config.held_read_us_max:
                holding.read()

    def compare(self, before: int, state: RootState, digest: int) -> None:
        """Raise an alarm if the panes that were answered are not those of this copy (trace-57).

        ``before`` is the S before; ``digest`` is 0 if this copy has not all of the panes. It does
        not end the copy: which of the two is wrong, nobody can tell from the digests.
        """
        if NO_DIGEST in {digest, state.digest}:
            return
        self.compared += 1
        if digest == state.digest:
            return
        self.disagreements += 1
        if self.disagreements.bit_count() == 1:  # the first, the second, the fourth, ...
            here, there = (f"{each & DIGEST_MASK:016x}" for each in (digest, state.digest))
            text = (
                f"disagrees with the copy that answers ({self.disagreements} times): the panes"
                f" from {format_time(before)} to {format_time(state.stable_from)} have the digest"
                f" {here} here, and {there} there"
            )
            self._alarms.append(LogLine(text, is_warning=True))

    def alarms(self) -> list[LogLine]:
        """Return the lines that have not been written yet."""
        found, self._alarms = self._alarms, []
        return found
