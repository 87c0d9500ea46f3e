"""What a root of a later generation takes from the earlier one, which answers meanwhile (rule-29).

The root runs beside those of the earlier generation. It reads deltas of its own, and adopts S, T,
the epoch and the next seq of each state record that they commit, as one of two copies adopts those
of the other. So it can answer at once when the earlier generation has ended.

That has ended when the registry says so, and not before: a generation of which nothing is received
may be paused, or about to be restarted, and the change may still be cancelled (trace-44). Silence
therefore tells a later generation nothing.

A generation is no copy of another one. It has another definition, so its panes are not compared.
"""

from __future__ import annotations

from slackwater.model.names import ONLY, RootName, generation_of, own_name
from slackwater.model.records import RootState
from slackwater.protocols.dpc.soutput.config import RootConfig, continued_state
from slackwater.sessions.progress import PartProgress


class EarlierGeneration:
    """The generation whose results a root continues; of a first generation there is none."""

    def __init__(self, config: RootConfig) -> None:
        self._config = config
        self.is_followed = config.has_earlier
        """Whether it has not ended in the registry, and nobody of this generation has answered."""
        self._last: dict[int, RootState] = {}
        """By number, the last state record of the latest earlier generation that has one."""

    def began(self, found: PartProgress) -> None:
        """Take what was read at the start."""
        if found.own is not None:
            self.is_followed = False
        elif found.others:
            number = max(found.others)
            self._last = {number: found.others[number]}

    def ended(self) -> None:
        """Take that it has ended in the registry, or that this generation answers."""
        self.is_followed = False

    @property
    def progress(self) -> PartProgress | None:
        """The progress of the part while only earlier generations have answered; None: unknown."""
        return PartProgress(None, self._last) if self._last else None

    def of_part(self, record: RootState) -> RootState | None:
        """Return the state that follows from a state record of an earlier generation of the part.

        None if it is the record of something else, or of a generation that has been replaced.

        Raises:
            SlackwaterError: this generation begins after the earlier one's answers end.
        """
        config, of = self._config, RootName.parse(own_name(record.fragment))
        number = generation_of(of.query)
        if (of.part, of.copy) != (config.part, ONLY) or number >= generation_of(config.query):
            return None
        if number < max(self._last, default=0):
            return None
        self._last = {number: record}
        return continued_state(config, record)
